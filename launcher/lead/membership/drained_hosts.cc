#include "launcher/lead/membership/drained_hosts.h"

#include <signal.h>

#include <algorithm>
#include <utility>

namespace dlaunch {

void DrainedHosts::take_over() {
  for (const auto& was : membership_.drained_before()) {
    hosts_[was.name] = {.node = was.node, .name = was.name, .drained = true, .left = was.left};
    if (was.left) membership_.keep_out(was.name, true);
  }
}

void DrainedHosts::go_on() {
  for (const auto& [name, host] : hosts_) {
    membership_.keep_out(name, true);
    if (!host.left) job_.feed(JobCore::NodeDrain{host.node});
  }
}

std::vector<HostStatus> DrainedHosts::all() const {
  std::vector<HostStatus> hosts;
  const auto names = membership_.host_names();
  for (const std::string& name : names) {
    HostStatus host{.node = static_cast<int>(hosts.size()), .name = name};
    if (job_.starts_hosts()) host.listed_as = job_.listed_as(host.node);
    const auto drained = hosts_.find(name);
    if (drained != hosts_.end()) host = drained->second;
    hosts.push_back(std::move(host));
  }
  // Another host may have taken the number of a host that left.
  for (const auto& [name, host] : hosts_) {
    if (std::ranges::find(names, name) == names.end()) hosts.push_back(host);
  }
  return hosts;
}

void DrainedHosts::drain(const HostStatus& host) {
  const int node = host.node;
  const bool listed = job_.starts_hosts() && !membership_.is_own(node);
  membership_.keep_out(host.name, !host.drained);
  if (host.drained) {
    hosts_.erase(host.name);
    job_.write_down();
    if (listed) job_.take_out(node, false);
    if (!host.left && membership_.is_here(node)) job_.feed(JobCore::NodeBack{node});
    return;
  }
  HostStatus& now = hosts_[host.name] = host;
  now.drained = true;
  job_.write_down();
  if (listed) job_.take_out(node, true);
  job_.feed(JobCore::NodeDrain{node});
}

bool DrainedHosts::leave(int node) {
  if (leaving_.contains(node)) return true;
  int others = membership_.own_slots() > 0 ? 1 : 0;  // our own node stays
  for (const int other : membership_.others_here()) {
    others += other != node && !leaving_.contains(other);
  }
  if (others < job_.least) return false;
  leaving_.insert(node);
  job_.feed(JobCore::NodeDrain{node});
  return true;
}

void DrainedHosts::let_go() {
  std::erase_if(leaving_, [this](int node) {
    if (!job_.nobody_on(node)) return false;
    membership_.release(node, "the job continues without this host", 128 + SIGTERM);
    return true;
  });
  bool news = false;
  for (auto& [name, host] : hosts_) {
    const int node = host.node;
    const bool ours = membership_.is_own(node) || membership_.leads_beside(name);
    if (host.left || ours || !job_.nobody_on(node)) continue;
    host.left = news = true;
    if (!job_.starts_hosts())
      membership_.release(node, "this host is drained: the job continues without it");
  }
  if (news) job_.write_down();
}

std::vector<std::string> DrainedHosts::in_words() const {
  std::vector<std::string> lines;
  for (const auto& [name, host] : hosts_) {
    const bool done = host.left || job_.nobody_on(host.node);
    lines.push_back(name + (done ? ": drained" : ": draining; its workers leave"));
  }
  return lines;
}

std::vector<JobJournal::Drained> DrainedHosts::journal() const {
  std::vector<JobJournal::Drained> drained;
  drained.reserve(hosts_.size());
  for (const auto& [name, host] : hosts_) drained.push_back({name, host.node, host.left});
  return drained;
}

}  // namespace dlaunch
