// NodeMonitor: watches the workers of one host for the job's leader. It reports how far they have
// come, prints their stacks, and injects faults where --chaos asks for them. A worker that such a
// fault has stopped continues at its time, with or without a leader. The leader's own host has one,
// too. One thread, the loop's.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>

#include "launcher/node/watch/activity.h"
#include "launcher/node/watch/give_up_news.h"
#include "launcher/node/watch/gpu_watch.h"
#include "launcher/node/watch/nccl_ras.h"
#include "launcher/node/watch/node_steps.h"
#include "launcher/node/watch/rank_news.h"
#include "launcher/node/watch/span_reader.h"
#include "launcher/node/watch/traceback_news.h"
#include "launcher/node/workers/processes.h"
#include "launcher/wire/deadline_timer.h"
#include "launcher/wire/node_message.h"

namespace dlaunch {

class NodeMonitor {
 public:
  // Answers and news go to `tell`. processes and helpers (our children that are no workers) must
  // outlive it.
  NodeMonitor(asio::io_context& loop, Processes& processes, std::set<pid_t>& helpers,
              std::function<void(const NodeMessage&)> tell);

  // Starts afresh for a leader that knows nothing yet. still_after: as RankNews; max: only stopped
  // workers are reported.
  void begin(Duration still_after);
  // The leader's questions and orders (kIsForMonitor).
  void on(const NodeLook& look);
  void on(const NodeCut& cut);
  void on(const NodeDump& dump);
  void on(const NodeAskRecorder& ask);
  void on(const NodeHung& hung);
  void on(const NodeInject& inject);
  void on(const NodeSurvey& survey);
  // Call it when a child was stopped or continued, or a round began.
  void look();
  // The worker has ended: sends the last of its spans and of its progress.
  void last_news(Slot slot);
  void stop();

 private:
  NodeWorker describe(Slot slot) const;
  std::vector<NodeGpu> gpus_of_worker(Slot slot, const std::vector<GpuFigures>& all) const;
  void go_on(TimePoint now);
  void look_at_tracebacks();
  void send_progress(TimePoint now);
  void send_progress_of(TimePoint now, Slot slot);
  void send_spans();
  void send_trace(TimePoint now, const WorkerPlace& place);
  TimePoint active_at(Slot slot);
  void look_for_give_ups();

  asio::io_context& loop_;
  Processes& processes_;
  const std::function<void(const NodeMessage&)> tell_;
  std::optional<RankNews> news_;
  std::map<Slot, std::pair<pid_t, Activity>> activities_;     // of workers without a better sign
  struct Reading {                                            // of a process's stacks
    bool in_haste = false;                                    // a shorter limit
    std::vector<std::pair<NodeStacks, std::size_t>> asked{};  // with the most lines for each
    std::vector<NodeDump> later{};                            // those that have more time
  };
  std::map<pid_t, Reading> dumps_;
  NodeSteps steps_;
  SpanReader spans_;
  DeadlineTimer spans_timer_;
  GpuWatch gpus_;
  NcclRas ras_;
  TracebackNews tracebacks_;
  GiveUpNews give_ups_;
  DeadlineTimer traceback_timer_;
  Duration interval_{};
  bool watches_ = false;  // for workers that stand still
  struct SentProgress {
    int rank = -1;
    TimePoint said{}, sent = TimePoint::min();
  };
  SentProgress progress_;
  DeadlineTimer timer_;
  struct Stopped {
    pid_t pid;
    TimePoint until;
  };
  std::map<Slot, Stopped> stopped_;  // by --chaos
  DeadlineTimer go_on_timer_;
};

}  // namespace dlaunch
