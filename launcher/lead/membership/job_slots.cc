#include "launcher/lead/membership/job_slots.h"

#include <algorithm>
#include <map>

namespace dlaunch {

JobSlots::JobSlots(const std::vector<int>& nodes, int size) : size_(size) {
  std::map<int, Slot> used;
  for (const int node : nodes) homes_.push_back({node, used[node]++});
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
  const auto is = [=](const Home& home) { return home.node == node && home.slot == slot; };
  const auto found = std::find_if(homes_.begin(), homes_.end(), is);
  return found == homes_.end() ? -1 : static_cast<Slot>(found - homes_.begin());
}

int JobSlots::count_on(int node) const {
  return static_cast<int>(std::count_if(homes_.begin(), homes_.end(),
                                        [=](const Home& home) { return home.node == node; }));
}

std::vector<int> JobSlots::nodes() const {
  std::vector<int> nodes;
  for (const Home& home : homes_) nodes.push_back(home.node);
  return nodes;
}

}  // namespace dlaunch
