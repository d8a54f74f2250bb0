#include "fuzz.h"
#include "launcher/node/watch/ras_report.h"

static int fuzz_ras_report(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const auto is_ours = [](std::string_view host, pid_t pid) {
    return !host.empty() && pid % 2 == 1;
  };
  if (const auto report = read_ras_report(fuzz_text(data, size), is_ours)) {
    for (const auto& [pid, named] : report->named) {
      if (pid % 2 != 1 || named.empty()) __builtin_trap();
      for (const NcclProgress& at : named) {
        if (at.comm == 0 || at.function.empty() || at.ranks < 0 || at.rank < 0) __builtin_trap();
      }
    }
    for (const pid_t pid : report->silent) {
      if (pid % 2 != 1) __builtin_trap();
    }
  }
  return 0;
}

static const FuzzTarget ras_report_target("ras_report", fuzz_ras_report);
