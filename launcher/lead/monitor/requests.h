// MonitorRequests: the leader's pending questions to the job's hosts. Each question gets one
// answer: from the host, or, when the host is lost or was lost before, that none comes. Pure.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/wire/node_message.h"

namespace dlaunch {

class MonitorRequests {
 public:
  using Ask = std::function<void(int node, const NodeMessage& question)>;
  using Stacks = std::function<void(int pid, const std::vector<std::string>& lines)>;
  using Recorded = std::function<void(const NodeRecorded& recorded)>;
  using Workers = std::function<void(const std::map<int, NodeWorkers>& by_node)>;
  // is_here: the node is connected. ask may deliver the answer at once.
  MonitorRequests(std::function<bool(int node)> is_here, Ask ask)
      : is_here_(std::move(is_here)), ask_(std::move(ask)) {}

  // The stacks of the worker at that slot of the node. limit: as NodeDump.
  void dump(int node, Slot slot, Stacks done, Duration limit = {});
  // Where the process groups of the worker at that slot stand, as NodeAskRecorder.
  void ask_recorder(int node, Slot slot, Recorded done, bool in_haste = false);
  // The workers of these nodes, with or without their GPUs, except of nodes that do not answer
  // within a second.
  void survey(TimePoint now, const std::set<int>& nodes, bool gpus, const Workers& done);

  void take(int node, const NodeStacks& stacks);
  void take(int node, const NodeRecorded& recorded);
  void take(int node, const NodeWorkers& workers);
  void lost(int node);
  std::optional<TimePoint> deadline() const;
  void on_clock(TimePoint now);  // deadline() has passed

 private:
  template <class Done>
  struct Pending {
    int node;
    Done done;
  };
  template <class Done>
  using AllPending = std::map<std::uint32_t, Pending<Done>>;  // by request
  struct Survey {
    std::set<int> awaited;
    std::map<int, NodeWorkers> answers;
    Workers done;
    TimePoint limit;
  };
  template <class Done>
  static Done take_pending(AllPending<Done>& all, int node, std::uint32_t request);
  template <class Done>
  static std::vector<Done> take_pending(AllPending<Done>& all, int node);
  void finish_if_all_there(std::uint32_t request);
  void finish(std::uint32_t request);

  const std::function<bool(int node)> is_here_;
  const Ask ask_;
  std::uint32_t last_ = 0;
  AllPending<Stacks> dumps_;
  AllPending<Recorded> recorders_;
  std::map<std::uint32_t, Survey> surveys_;
};

}  // namespace dlaunch
