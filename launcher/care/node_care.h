// NodeCare: looks after the workers of one host on behalf of the dlaunch that leads the job: tells
// it how far they have come, shows their stacks, and hurts one where --chaos asks for it; one that
// was stopped for that goes on at its time, whether or not anybody leads then. On the leader's own
// host, too. One thread, the loop's.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "launcher/care/gpu_watch.h"
#include "launcher/care/node_steps.h"
#include "launcher/care/rank_news.h"
#include "launcher/care/traceback_news.h"
#include "launcher/hosts/node_message.h"
#include "launcher/process/processes.h"

namespace dlaunch {

class NodeCare {
 public:
  // Answers and news go to `tell`. processes and helpers, who has children that are no workers,
  // must outlive it.
  NodeCare(asio::io_context& loop, Processes& processes, std::set<pid_t>& helpers,
           std::function<void(const NodeMessage&)> tell);

  // Whoever leads from now on knows nothing yet. still_after: as RankNews; max: only who was
  // stopped is told of.
  void begin(Duration still_after);
  // A question or an order; false: it is neither.
  bool take(const NodeMessage& message);
  // A child was stopped or continued, or a round began.
  void look();
  void stop();

 private:
  void arm();
  bool watches() const { return interval_ != Duration::max(); }
  void on(const NodeLook& look);
  void on(const NodeCut& cut);
  void on(const NodeDump& dump);
  void on(const NodeHung& hung);
  void on(const NodeHurt& hurt);
  void on(const NodeSurvey& survey);
  NodeWorker describe(Slot slot) const;
  std::vector<NodeGpu> gpus_of_worker(Slot slot, const std::vector<GpuFigures>& all) const;
  void go_on(TimePoint now);
  void look_at_tracebacks();
  bool runs(Slot slot) const;

  asio::io_context& loop_;
  Processes& processes_;
  const std::function<void(const NodeMessage&)> tell_;
  std::optional<RankNews> news_;
  NodeSteps steps_;
  GpuWatch gpus_;
  TracebackNews tracebacks_;
  asio::steady_timer traceback_timer_;
  Duration interval_ = Duration::max();  // max: only `look` looks
  asio::steady_timer timer_;
  struct Stopped {
    pid_t pid;
    TimePoint until;
  };
  std::map<Slot, Stopped> stopped_;  // by --chaos
  asio::steady_timer go_on_timer_;
};

}  // namespace dlaunch
