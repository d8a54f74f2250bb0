#include "fuzz.h"
#include "launcher/lead/control/control_request.h"

static int fuzz_control_request(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const auto request = parse_control_request(fuzz_text(data, size));
  if (!request) return -1;
  // What is accepted means the same when it is written again, and any job can say what of it.
  const auto again = parse_control_request(encode(*request));
  if (!again || again->command != request->command || again->number != request->number ||
      again->after != request->after) {
    __builtin_trap();
  }
  JobStatus job;
  job.state = JobState::active;
  job.size = job.max_size = 2;
  job.workers.resize(2);
  (void)decide(*request, job);
  return 0;
}

static const FuzzTarget control_request_target("control_request", fuzz_control_request);
