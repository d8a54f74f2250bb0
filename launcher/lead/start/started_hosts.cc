#include "launcher/lead/start/started_hosts.h"

#include <fmt/format.h>

#include "base/log.h"
#include "launcher/lead/report/report.h"

namespace dlaunch {

StartedHosts::StartedHosts(asio::io_context& loop, const Plan& plan, OutputHub& hub,
                           std::set<pid_t>& helpers, Handlers handlers)
    : loop_(loop),
      plan_(plan),
      helpers_(helpers),
      handlers_(std::move(handlers)),
      quorum_(plan.nodes),
      starter_(
          loop, plan, hub, helpers,
          {.answered = [this](const auto& failures) { on_answered(failures); },
           .lost = [this](const HostFailure& failure, bool again) { on_lost(failure, again); },
           .leave =
               [this](int node) {
                 leaving_.insert(node);
                 handlers_.leaves(node);
               },
           .order = [this](int node, const NodeMessage& what) { handlers_.order(node, what); }}) {}

Result<void> StartedHosts::start(const Secret& secret, const std::string& endpoint) {
  if (auto ok = starter_.start(secret, endpoint); !ok) return ok;
  if (plan_.nodes.discovery.empty()) return {};
  discovery_ = std::make_unique<HostDiscovery>(
      loop_, plan_.nodes.discovery, helpers_,
      [this](const std::vector<HostEntry>& hosts) { starter_.list(hosts); });
  discovery_->start();
  return {};
}

void StartedHosts::on_answered(std::vector<HostFailure> failures) {
  const int own = plan_.nodes.own_number();
  const SpawnError error = own >= 0 ? handlers_.own_failure() : SpawnError();
  if (error.stage != Stage::none) {
    failures.push_back({own, start_exit_code(error.stage, error.os_errno), error.what});
  }
  if (!failures.empty()) on_failed(failures);
}

void StartedHosts::on_lost(const HostFailure& failure, bool again) {
  if (again) return;
  if (!begun_) return on_failed({failure});
  log_warn("host {}: {}", starter_.name(failure.node), failure.what);
}

void StartedHosts::on_failed(const std::vector<HostFailure>& failures) {
  if (over_) return;
  std::set<int> nodes;
  for (const auto& failure : failures) nodes.insert(failure.node);
  const bool enough = begun_ || quorum_.enough_without(nodes);
  for (const auto& line : failure_table(failures, plan_.nodes.hosts)) {
    log_line(enough ? LogLevel::warn : LogLevel::error, line);
  }
  if (!enough) handlers_.too_few(exit_code_of(failures));
}

void StartedHosts::let_go(const std::function<bool(int node)>& nobody_on) {
  for (auto node = leaving_.begin(); node != leaving_.end();) {
    if (!over_ && begun_ && !nobody_on(*node)) {
      ++node;
      continue;
    }
    handlers_.gone(*node);
    starter_.end_host(*node);
    node = leaving_.erase(node);
  }
}

std::vector<std::string> StartedHosts::in_words() const {
  std::vector<std::string> lines;
  for (int node = 0; node < static_cast<int>(plan_.nodes.hosts.size()); ++node) {
    const std::string words = starter_.words(node);
    if (!words.empty()) lines.push_back(fmt::format("{}: {}", starter_.name(node), words));
  }
  return lines;
}

void StartedHosts::finish(const std::function<bool(int node)>& linked, std::function<void()> done) {
  over_ = true;
  discovery_.reset();
  starter_.finish(linked, std::move(done));
}

}  // namespace dlaunch
