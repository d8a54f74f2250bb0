#include "cli/ctl/follow.h"

#include <cerrno>
#include <functional>
#include <optional>

#include "base/exit_code.h"
#include "base/print.h"
#include "cli/ctl/options.h"

namespace dlaunch::ctl {
namespace {

using Json = nlohmann::ordered_json;  // as in the line
using Command = ControlRequest::Command;

// Asks again and again until take(event) is false. The answer comes with the next event.
void follow_events(RunningJob job, const std::function<bool(const Json&)>& take) {
  ControlRequest request{.command = Command::events, .number = {}, .after = 0};
  bool outlives_leader = false;
  const auto ask_on = [&]() -> Json {
    while (true) {
      try {
        return ask_in_order(job, request);
      } catch (const Failure& failure) {
        if (!outlives_leader) throw;
        find_next_leader(job, failure);
      }
    }
  };
  while (true) {
    const Json answer = ask_on();
    for (const Json& event : answer.at("events")) {
      if (!take(event)) return;
    }
    request.after = answer.at("next").get<std::uint64_t>();
    outlives_leader = answer.at("outlives_leader").get<bool>();
  }
}

}  // namespace

void run_events(const RunningJob& job, bool follow) {
  const auto print = [](const Json& event) {
    if (!print_all(event.dump() + "\n")) {
      throw Failure{kExitSystem, errno_error("write to stdout", errno).what};
    }
    return event.at("event") != "job_ended";
  };
  if (follow) return follow_events(job, print);
  const Json answer = ask_in_order(job, {.command = Command::events, .number = {}});
  for (const Json& event : answer.at("events")) print(event);
}

int run_wait(const RunningJob& job) {
  int exit_code = kExitInternal;
  follow_events(job, [&exit_code](const Json& event) {
    if (event.at("event") != "job_ended") return true;
    exit_code = event.at("exit_code").get<int>();
    return false;
  });
  return exit_code;
}

}  // namespace dlaunch::ctl
