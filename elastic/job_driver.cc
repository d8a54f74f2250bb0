#include "elastic/job_driver.h"

namespace dlaunch {

JobDriver::JobDriver(const JobConfig& config, Pump& pump, Hands& hands)
    : core_(config), pump_(pump), hands_(hands) {}

void JobDriver::feed(const JobCore::Event& event) {
  pump_.post([this, event] {
    for (const auto& action : hands_.decide(core_, event)) {
      std::visit([this](const auto& what) { hands_.perform(what); }, action);
    }
  });
}

}  // namespace dlaunch
