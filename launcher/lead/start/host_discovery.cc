#include "launcher/lead/start/host_discovery.h"

#include "base/log.h"

namespace dlaunch {

HostDiscovery::HostDiscovery(asio::io_context& loop, std::string script, std::set<pid_t>& helpers,
                             OnHosts on_hosts, const Times& times)
    : script_(std::move(script)),
      on_hosts_(std::move(on_hosts)),
      times_(times),
      command_(loop, helpers),
      timer_(loop, [this] { ask(); }) {}

void HostDiscovery::ask() {
  auto asked =
      command_.run(shell_command(script_, times_.patience), [this](const Command::End& end) {
        judge(end);
        ask_later();
      });
  if (asked) return;
  complain(asked.error().what);
  ask_later();
}

void HostDiscovery::judge(const Command::End& end) {
  if (const auto why = describe(end, times_.patience); !why.empty()) return complain(why);
  auto hosts = parse_hostfile(end.text, "line");
  if (!hosts) return complain("printed something other than hosts: " + hosts.error().what);
  told_.clear();
  for (HostEntry& host : *hosts) host.line = 0;
  if (*hosts == last_) return;
  last_ = std::move(*hosts);
  on_hosts_(last_);
}

void HostDiscovery::complain(const std::string& why) {
  if (std::exchange(told_, why) == why) return;
  log_warn("the hosts stay as they are: --host-discovery-script '{}' {}", script_, why);
}

void HostDiscovery::ask_later() { timer_.arm(steady_now() + times_.period); }

}  // namespace dlaunch
