#include "launcher/lead/membership/job_slots.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "elastic/rack_order.h"

namespace dlaunch {
namespace {

// The numbers of the nodes in the order of their ranks. Without any rack it is that of the numbers;
// else absent nodes come last.
std::vector<std::size_t> rank_order(const std::vector<NodeRoster::Node>& nodes) {
  std::vector<std::size_t> order(nodes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto has_rack = [](const NodeRoster::Node& node) { return !node.rack.empty(); };
  if (std::ranges::none_of(nodes, has_rack)) return order;
  const auto absent = std::stable_partition(
      order.begin(), order.end(), [&](std::size_t number) { return nodes[number].nproc > 0; });
  const std::vector<std::size_t> present(order.begin(), absent);
  std::vector<std::string> racks;
  racks.reserve(present.size());
  for (const std::size_t number : present) racks.push_back(nodes[number].rack);
  std::ranges::transform(order_by_rack(racks), order.begin(),
                         [&](int place) { return present[static_cast<std::size_t>(place)]; });
  return order;
}

}  // namespace

JobSlots::JobSlots(const std::vector<int>& nodes, int size) : size_(size) {
  for (const int node : nodes) {
    auto& slots = by_node_[node];
    slots.push_back(static_cast<Slot>(homes_.size()));
    homes_.push_back({node, static_cast<Slot>(slots.size()) - 1});
  }
}

JobSlots JobSlots::lay_out(const std::vector<NodeRoster::Node>& nodes, const Plan& plan) {
  const std::vector<std::size_t> order = rank_order(nodes);
  std::vector<int> slots;  // by slot: its node
  const auto add = [&](std::size_t node, int times) {
    for (int i = 0; i < times; ++i) slots.push_back(static_cast<int>(node));
  };
  for (const std::size_t node : order) add(node, nodes[node].nproc);
  const int size = static_cast<int>(slots.size());
  for (int i = 0; i < plan.spares; ++i) add(order[static_cast<std::size_t>(i) % order.size()], 1);
  for (const std::size_t node : order) {
    if (nodes[node].nproc == 0) add(node, plan.nodes.nproc_of(node, plan.nproc));
  }
  if (nodes.size() == 1) add(0, plan.max_nproc - size);
  return {slots, size};
}

Slot JobSlots::slot_of(int node, Slot slot) const {
  const auto found = by_node_.find(node);
  if (found == by_node_.end() || slot < 0 || slot >= count_on(node)) return -1;
  return found->second[static_cast<std::size_t>(slot)];
}

int JobSlots::count_on(int node) const {
  const auto found = by_node_.find(node);
  return found == by_node_.end() ? 0 : static_cast<int>(found->second.size());
}

std::vector<int> JobSlots::nodes() const {
  std::vector<int> nodes;
  for (const Home& home : homes_) nodes.push_back(home.node);
  return nodes;
}

}  // namespace dlaunch
