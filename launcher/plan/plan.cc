#include "launcher/plan/plan.h"

#include <fmt/format.h>

#include "base/units.h"
#include "base/version.h"

namespace dlaunch {

std::string NodesPlan::where_elected() const {
  if (!etcd) return "the folder " + folder;
  std::string text;
  for (const auto& server : etcd->endpoints) {
    text += (text.empty() ? "etcd at " : ", ") + to_string(server);
  }
  return text;
}

std::string stdin_of(const Plan& plan) {
  if (plan.stdin_to == StdinPlan::none) return "none";
  return plan.stdin_to == StdinPlan::all ? "all" : std::to_string(plan.stdin_rank);
}

std::string what_must_agree(const Plan& plan) {
  const auto& nodes = plan.nodes;
  const std::string patience = nodes.host_timeout == NodesPlan().host_timeout
                                   ? ""
                                   : ", --host-timeout " + format_duration(nodes.host_timeout);
  return fmt::format("dlaunch {}, --nnodes {}:{}{}", DLAUNCH_VERSION, nodes.min, nodes.max,
                     patience);
}

}  // namespace dlaunch
