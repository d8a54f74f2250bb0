// The job's orders to its nodes.

#include <algorithm>

#include "launcher/lead/membership/node_membership.h"

namespace dlaunch {

void NodeMembership::order(int node, const NodeMessage& message) {
  if (node == own()) return own_->take(message);
  links_.send(node_at(node).link, message);
}

void NodeMembership::order_all(const NodeMessage& message) {
  for (const int node : own_last()) order(node, message);
}

// ranks: of all slots of the job.
std::vector<NodePlace> NodeMembership::places_on(int node,
                                                 const std::vector<JobCore::Place>& places,
                                                 const std::vector<int>& ranks) const {
  std::vector<NodePlace> found;
  for (const auto& place : places) {
    const Home& home = home_of(place.slot);
    if (home.node != node) continue;
    int below = place.rank < 0 ? -1 : 0;  // of its node
    for (std::size_t slot = 0; place.rank >= 0 && slot < ranks.size(); ++slot) {
      below += homes_[slot].node == node && ranks[slot] >= 0 && ranks[slot] < place.rank;
    }
    found.push_back({home.slot, place.rank, below});
  }
  return found;
}

void NodeMembership::start(const JobCore::StartWorkers& start, const JobCore& job) {
  std::vector<int> ranks, members(roster_.nodes().size());
  for (Slot slot = 0; slot < job.slots(); ++slot) {
    ranks.push_back(job.rank_of(slot));
    if (ranks.back() >= 0) ++members[static_cast<std::size_t>(home_of(slot).node)];
  }
  NodeStart to{.round = start.round, .size = job.size()};
  to.one_world = start.all && !job.are_tasks();
  to.nodes = static_cast<int>(members.size()) -
             static_cast<int>(std::count(members.begin(), members.end(), 0));
  for (std::size_t slot = 0; slot < ranks.size(); ++slot) {
    if (ranks[slot] != 0) continue;
    const Endpoint& master = addresses_of(homes_[slot].node).master;
    to.master_addr = master.host;
    to.master_port = master.port;
  }
  to.peers = peers_of(ranks, job.size());
  for (const int node : own_last()) {
    to.node_rank = 0;  // among those that have members
    for (int other = 0; other < node; ++other) {
      to.node_rank += members[static_cast<std::size_t>(other)] > 0;
    }
    to.local_size = members[static_cast<std::size_t>(node)];
    to.places = places_on(node, start.places, ranks);
    if (!to.places.empty()) order(node, to);
  }
}

void NodeMembership::stop(const JobCore::StopWorkers& stop) {
  for (int node = 0; node < nodes(); ++node) {
    NodeStop to{.slots = {}, .signal = stop.signal};
    for (const Slot slot : stop.slots) {
      const Home& home = home_of(slot);
      if (home.node == node) to.slots.push_back(home.slot);
    }
    if (!to.slots.empty()) order(node, to);
  }
}

void NodeMembership::hand_on(const JobCore::HandOn& pass) { order_all(NodeHandOn{pass.signal}); }

void NodeMembership::fence(const JobCore::Fence& fence) {
  order_all(NodeFence{fence.round, fence.lost});
}

void NodeMembership::announce(const JobCore::Announce& announce) {
  const int size = static_cast<int>(announce.slots.size());
  for (const int node : own_last()) {
    NodeAnnounce to{announce.round, size, {}};
    for (int rank = 0; rank < size; ++rank) {
      const Home& home = home_of(announce.slots[static_cast<std::size_t>(rank)]);
      if (home.node == node) to.places.push_back({home.slot, rank, -1});
    }
    if (!to.places.empty()) order(node, to);
  }
}

// The own node comes last: a failure there stops the others.
std::vector<int> NodeMembership::own_last() const {
  std::vector<int> order;
  for (int node = 0; node < nodes(); ++node) {
    if (node != own()) order.push_back(node);
  }
  if (own() >= 0) order.push_back(own());
  return order;
}

const NodeMembership::Addresses& NodeMembership::addresses_of(int node) const {
  const auto it = remotes_.find(node_at(node).link);
  return node == own() || it == remotes_.end() ? own_addresses_ : it->second.addresses;
}

// host:port of each rank. ranks: of all slots of the job.
std::vector<std::string> NodeMembership::peers_of(const std::vector<int>& ranks, int size) const {
  if (size > kMostPeers) return {};
  std::map<int, int> node_of;  // by rank
  for (std::size_t slot = 0; slot < ranks.size(); ++slot) {
    if (ranks[slot] >= 0) node_of[ranks[slot]] = homes_[slot].node;
  }
  std::vector<std::string> peers;
  std::map<int, std::size_t> used;  // ports, by node
  for (const auto& [rank, node] : node_of) {
    const Addresses& there = addresses_of(node);
    const std::size_t next = used[node]++;
    if (next >= there.ports.size()) return {};
    const auto port = static_cast<std::uint16_t>(there.ports[next]);
    peers.push_back(to_string(Endpoint{there.master.host, port}));
  }
  return peers;
}

void NodeMembership::finish(int exit_code, const std::string& why, std::function<void()> then) {
  finished_ = true;
  roster_timer_.cancel();
  for (int node = 0; node < nodes(); ++node) {
    if (node != own()) order(node, NodeFinish{exit_code, why});
  }
  for (const auto& [link, remote] : remotes_) {
    if (remote.waits) links_.send(link, NodeFinish{exit_code, why});
  }
  links_.part_all(std::move(then));
}

}  // namespace dlaunch
