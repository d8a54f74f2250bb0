// JobSlots: the slots of a job, and the node of each. The job numbers its slots itself, from 0 on;
// so does each node. The job's come in this order: those of the workers at the start, node by node,
// with the nodes of one rack together (elastic/rack_order.h); the spares, one for each node in
// turn; those that the job may grow to, on hosts that have not come yet. Pure.
#pragma once

#include <map>
#include <vector>

#include "elastic/job_core.h"
#include "elastic/node_roster.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

class JobSlots {
 public:
  struct Home {  // of a slot of the job
    int node;
    Slot slot;  // of that node's
  };
  JobSlots() = default;
  // nodes: by slot of the job. size: the number of workers at the start.
  JobSlots(const std::vector<int>& nodes, int size);
  // For a job that begins on these nodes.
  static JobSlots lay_out(const std::vector<NodeRoster::Node>& nodes, const Plan& plan);

  int size() const { return size_; }
  const Home& home(Slot slot) const { return homes_[static_cast<std::size_t>(slot)]; }
  // The job's slot for a slot of a node; -1: there is none.
  Slot slot_of(int node, Slot slot) const;
  // The number of a node's slots.
  int count_on(int node) const;
  // By slot of the job.
  std::vector<int> nodes() const;

 private:
  std::vector<Home> homes_;                   // by slot of the job
  std::map<int, std::vector<Slot>> by_node_;  // the job's slots, by those of the node
  int size_ = 0;
};

}  // namespace dlaunch
