#include "launcher/lead/membership/job_slots.h"

namespace dlaunch {

JobSlots::JobSlots(const std::vector<int>& nodes, int size) : size_(size) {
  for (const int node : nodes) {
    auto& slots = by_node_[node];
    slots.push_back(static_cast<Slot>(homes_.size()));
    homes_.push_back({node, static_cast<Slot>(slots.size()) - 1});
  }
}

JobSlots JobSlots::lay_out(const std::vector<NodeRoster::Node>& nodes, const Plan& plan) {
  std::vector<int> order;
  const auto add = [&](std::size_t node, int times) {
    for (int i = 0; i < times; ++i) order.push_back(static_cast<int>(node));
  };
  for (std::size_t node = 0; node < nodes.size(); ++node) add(node, nodes[node].nproc);
  const int size = static_cast<int>(order.size());
  for (int i = 0; i < plan.spares; ++i) add(static_cast<std::size_t>(i) % nodes.size(), 1);
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node].nproc == 0) add(node, plan.nodes.nproc_of(node, plan.nproc));
  }
  if (nodes.size() == 1) add(0, plan.max_nproc - size);
  return {order, size};
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
