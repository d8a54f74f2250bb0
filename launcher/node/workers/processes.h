// Processes: the worker processes of this node. Starts them, waits for their ends by pidfd, reaps
// them and describes their ends; signals them, and ends what they leave behind. Also reaps orphans
// that come back to this process, a subreaper. One thread, the loop's.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include "base/run_progress.h"
#include "elastic/agent_core.h"
#include "launcher/node/workers/oom.h"
#include "launcher/node/workers/worker_starter.h"
#include "launcher/output/output_hub.h"
#include "launcher/wire/after_traceback.h"
#include "launcher/wire/deadline_timer.h"
#include "launcher/wire/worker_end.h"

namespace dlaunch {

class Processes {
 public:
  struct Handlers {
    std::function<void(Slot, const WorkerEnd&)> ended;
    // A child was stopped or continued, or has ended.
    std::function<void()> child_changed;
    // It was started, but ended before its program ran.
    std::function<void(Slot, const SpawnError&)> never_ran;
  };
  // All but the numbers must outlive this object. helpers: children that are no workers; their
  // starters reap them.
  Processes(asio::io_context& loop, OutputHub& hub, WorkerStarter& starter,
            const std::set<pid_t>& helpers, int slots, Handlers handlers);

  // It has at least so many slots from now on.
  void grow(int slots) {
    processes_.resize(std::max(processes_.size(), static_cast<std::size_t>(slots)));
  }
  // stage == none on success.
  SpawnError start(Slot slot, const WorkerPlace& place);
  // Changes the worker's place to that of a later round.
  void move(Slot slot, int rank, int round, std::string round_dir);
  // Signals its process group; SIGKILL goes to all its descendants.
  void signal(Slot slot, int number);
  // Reaps it at once, and calls the handlers, if it has ended already.
  void reap_if_ended(Slot slot);
  // Gives processes that ended workers left behind a moment to end by themselves, because some
  // clean up after a worker (Python's resource_tracker), and kills them then. If no worker runs,
  // blocks until they are gone, but for no more than 3 s; otherwise returns at once.
  void end_leftovers();

  bool running(Slot slot) const;
  pid_t pid(Slot slot) const { return at(slot).pid; }
  TimePoint started(Slot slot) const { return at(slot).started; }
  // As OutputHub's.
  std::optional<TimePoint> said_at(Slot slot) const { return hub_.said_at(slot); }
  std::optional<Traceback> traceback(Slot slot) const { return hub_.traceback(slot); }
  void on_traceback(std::function<void()> begun) { hub_.on_traceback(std::move(begun)); }
  // The worker's progress since its last traceback; nullopt: it has printed none.
  std::optional<AfterTraceback> after_traceback(Slot slot) const;
  // Reads what it has written to the pipe of its heartbeats.
  void read_heartbeats(Slot slot);
  // When it was last found to have sent a heartbeat; nullopt: it has sent none.
  std::optional<TimePoint> beat_at(Slot slot) const { return at(slot).beat; }
  // How far its program has come; nullopt: it has not said so.
  const std::optional<RunProgress>& progress(Slot slot) const { return at(slot).progress.last(); }
  // The process that has linked libdlring, if known: the worker itself, or one below it.
  pid_t program_pid(Slot slot) const;
  // The CUDA_VISIBLE_DEVICES that it got.
  const std::string& gpus(Slot slot) const { return at(slot).gpus; }
  void set_program_pid(Slot slot, pid_t pid) { at(slot).program_pid = pid; }
  // It waits for its next round; move() ends the wait.
  bool waits(Slot slot) const { return at(slot).waits; }
  void set_waits(Slot slot, bool waits) { at(slot).waits = waits; }
  // It has called MPI_Abort() and waits to be killed: its end counts as this exit code.
  void abort(Slot slot, int exit_code);
  // Why the worker is about to be killed; goes into its WorkerEnd.
  void call_hung(Slot slot, const std::string& why) { at(slot).hung = why; }
  // --chaos is about to kill it; this does not kill.
  void note_chaos(Slot slot) { at(slot).by_chaos = true; }
  const WorkerPlace& place(Slot slot) const { return at(slot).place; }
  // Of the running workers:
  std::vector<Slot> running_slots() const;
  std::vector<Slot> members() const;  // that have a rank
  std::optional<Slot> slot_of_worker(int worker) const;
  std::optional<Slot> slot_of_rank(int rank) const;

 private:
  struct Process {
    explicit Process(asio::io_context& loop) : exited(loop), look(loop) {}
    pid_t pid = -1;
    pid_t program_pid = -1;
    std::string hung;
    bool by_chaos = false;
    asio::posix::stream_descriptor exited;  // the pidfd
    asio::steady_timer look;                // looks at the rest of its group
    UniqueFd heartbeats;
    std::optional<TimePoint> beat;
    ProgressReader progress;
    TimePoint started{};
    int signal_sent = 0;
    Duration silent{};   // as WorkerEnd::silent_since_traceback
    int abort_code = 0;  // of MPI_Abort(); 0: not called
    bool running = false;
    bool waits = false;
    WorkerPlace place;
    std::string gpus;
  };
  void watch(Slot slot);
  bool reap(Slot slot);
  bool group_lives(const Process& process) const;
  void look_again(Slot slot);
  void watch_orphans();
  void reap_orphans();
  template <class Pred>
  std::optional<Slot> find(Pred is_meant) const;
  bool stays(pid_t child) const;
  std::vector<pid_t> orphans() const;
  bool is_leftover(pid_t pid) const;
  void await_orphans();
  void kill_leftovers();
  void tell_of_leftover(pid_t pid) const;
  void note_signal(Slot slot, int number);
  WorkerEnd describe_end(Slot slot, const siginfo_t& info);
  Process& at(Slot slot) { return *processes_[static_cast<std::size_t>(slot)]; }
  const Process& at(Slot slot) const { return *processes_[static_cast<std::size_t>(slot)]; }

  asio::io_context& loop_;
  OutputHub& hub_;
  WorkerStarter& starter_;
  const std::set<pid_t>& helpers_;
  Handlers handlers_;
  asio::signal_set children_;
  DeadlineTimer leftovers_;           // for leftovers while other workers run
  std::set<pid_t> ended_groups_;      // of workers
  std::map<int, int> ranks_of_done_;  // workers that ended with code 0, by number
  OomCounter oom_before_;
  std::vector<std::unique_ptr<Process>> processes_;  // by slot; null: never used
};

}  // namespace dlaunch
