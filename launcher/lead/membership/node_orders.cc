#include "launcher/lead/membership/node_orders.h"

#include <algorithm>
#include <map>
#include <utility>

#include "launcher/plan/plan.h"

namespace dlaunch {
namespace {

int number_below(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

// host:port of each rank.
std::vector<std::string> peers_of(const std::map<int, int>& node_of, int size,
                                  const std::vector<NodeAddresses>& addresses) {
  if (size > kMostPeers) return {};
  std::vector<std::string> peers;
  std::map<int, std::size_t> used;  // ports, by node
  for (const auto& [rank, node] : node_of) {
    const NodeAddresses& there = addresses[static_cast<std::size_t>(node)];
    const std::size_t next = used[node]++;
    if (next >= there.ports.size()) return {};
    const auto port = static_cast<std::uint16_t>(there.ports[next]);
    peers.push_back(to_string(Endpoint{there.master.host, port}));
  }
  return peers;
}

// Of each node, in the order of their lowest ranks. A node that has only spares gets the number
// behind the others.
std::vector<int> node_ranks_of(const std::map<int, int>& node_of, std::size_t nodes) {
  std::vector<int> node_ranks(nodes, -1);
  int next = 0;
  for (const auto& [rank, node] : node_of) {
    int& number = node_ranks[static_cast<std::size_t>(node)];
    if (number < 0) number = next++;
  }
  std::ranges::replace(node_ranks, -1, next);
  return node_ranks;
}

template <class Message>
std::vector<NodeOrder> in_order(const std::map<int, Message>& by_node) {
  std::vector<NodeOrder> found;
  found.reserve(by_node.size());
  for (const auto& [node, message] : by_node) found.push_back({node, message});
  return found;
}

}  // namespace

std::vector<NodeOrder> orders(const JobCore::StartWorkers& start, const JobCore& job,
                              const JobSlots& slots, const std::vector<NodeAddresses>& addresses) {
  std::map<int, int> node_of;  // by rank
  for (Slot slot = 0; slot < job.slots(); ++slot) {
    if (job.rank_of(slot) >= 0) node_of[job.rank_of(slot)] = slots.home(slot).node;
  }
  std::vector<std::vector<int>> ranks(addresses.size());  // by node, in order
  for (const auto& [rank, node] : node_of) ranks[static_cast<std::size_t>(node)].push_back(rank);
  const std::vector<int> node_ranks = node_ranks_of(node_of, addresses.size());
  NodeStart to{.round = start.round, .size = job.size()};
  to.one_world = start.all && !job.are_tasks();
  to.nodes = static_cast<int>(
      std::ranges::count_if(ranks, [](const auto& there) { return !there.empty(); }));
  if (const auto first = node_of.find(0); first != node_of.end()) {
    const Endpoint& master = addresses[static_cast<std::size_t>(first->second)].master;
    to.master_addr = master.host;
    to.master_port = master.port;
  }
  to.peers = peers_of(node_of, job.size(), addresses);
  std::vector<std::vector<NodePlace>> places(addresses.size());
  for (const auto& [slot, rank] : start.places) {
    const auto& home = slots.home(slot);
    const auto node = static_cast<std::size_t>(home.node);
    places[node].push_back({home.slot, rank, rank < 0 ? -1 : number_below(ranks[node], rank)});
  }
  std::vector<NodeOrder> found;
  for (std::size_t node = 0; node < ranks.size(); ++node) {
    to.local_size = static_cast<int>(ranks[node].size());
    to.node_rank = node_ranks[node];
    to.places = std::move(places[node]);
    to.rack = addresses[node].rack;
    if (!to.places.empty()) found.push_back({static_cast<int>(node), to});
  }
  return found;
}

std::vector<NodeOrder> orders(const JobCore::StopWorkers& stop, const JobSlots& slots) {
  std::map<int, NodeStop> by_node;
  for (const Slot slot : stop.slots) {
    const auto& home = slots.home(slot);
    NodeStop& to = by_node[home.node];
    to.signal = stop.signal;
    to.slots.push_back(home.slot);
  }
  return in_order(by_node);
}

std::vector<NodeOrder> orders(const JobCore::Announce& announce, const JobSlots& slots) {
  std::map<int, NodeAnnounce> by_node;
  const int size = static_cast<int>(announce.slots.size());
  for (int rank = 0; rank < size; ++rank) {
    const auto& home = slots.home(announce.slots[static_cast<std::size_t>(rank)]);
    NodeAnnounce& to = by_node[home.node];
    to.round = announce.round;
    to.size = size;
    to.places.push_back({home.slot, rank, -1});
  }
  return in_order(by_node);
}

}  // namespace dlaunch
