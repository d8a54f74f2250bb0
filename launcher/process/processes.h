// Processes: the worker processes of this node. Starts them, learns of their end by pidfd, reaps
// them and says how they ended; signals them, and ends what they leave behind. Orphans that come
// back to this process, a subreaper, are reaped, too. One thread, the loop's.
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

#include "elastic/agent_core.h"
#include "launcher/output/output_hub.h"
#include "launcher/process/oom.h"
#include "launcher/process/worker_starter.h"
#include "launcher/report/after_traceback.h"
#include "launcher/report/report.h"

namespace dlaunch {

class Processes {
 public:
  struct Listener {
    std::function<void(Slot, const WorkerEnd&)> ended;
    // A child was stopped or continued, or has ended.
    std::function<void()> child_changed;
    // It was started, but ended before it came to run its program.
    std::function<void(Slot, const SpawnError&)> never_ran;
  };
  // All but the numbers must outlive this object.
  // helpers: children that are no workers and are left to whoever started them.
  Processes(asio::io_context& loop, OutputHub& hub, WorkerStarter& starter,
            const std::set<pid_t>& helpers, int slots, Listener listener);

  // It has at least so many slots from now on.
  void grow(int slots) {
    processes_.resize(std::max(processes_.size(), static_cast<std::size_t>(slots)));
  }
  // stage == none on success.
  SpawnError start(Slot slot, const WorkerPlace& place);
  // The worker's place from now on: of a later round.
  void move(Slot slot, int rank, int round, std::string round_dir);
  // To its process group; SIGKILL to all its descendants.
  void signal(Slot slot, int number);
  // Reaps it at once if it has ended already, which calls the listener.
  void reap_if_ended(Slot slot);
  // What workers that have ended left behind has a moment to go by itself, as those do that clean
  // up after a process (Python's resource_tracker), and is killed then. Where no worker runs,
  // blocks until it is gone, but for no more than 3 s; otherwise returns at once.
  void end_leftovers();

  bool running(Slot slot) const;
  pid_t pid(Slot slot) const;
  TimePoint started(Slot slot) const { return processes_[static_cast<std::size_t>(slot)]->started; }
  // As OutputHub::said_at().
  std::optional<TimePoint> said_at(Slot slot) const { return hub_.said_at(slot); }
  // As OutputHub::threw_at() and OutputHub::on_traceback().
  std::optional<TimePoint> threw_at(Slot slot) const { return hub_.threw_at(slot); }
  void on_traceback(std::function<void()> begun) { hub_.on_traceback(std::move(begun)); }
  // What a worker has done since its last traceback; nullopt: it has printed none.
  std::optional<AfterTraceback> after_traceback(Slot slot) const;
  // The process that has linked libdlring, if one has told: the worker itself, or one below it.
  pid_t program_pid(Slot slot) const;
  // CUDA_VISIBLE_DEVICES, as it was given to it.
  const std::string& gpus(Slot slot) const;
  void set_program_pid(Slot slot, pid_t pid) { at(slot).program_pid = pid; }
  // It waits for its next round, in which move() puts it.
  bool waits(Slot slot) const { return processes_[static_cast<std::size_t>(slot)]->waits; }
  void set_waits(Slot slot, bool waits) { at(slot).waits = waits; }
  // It has called MPI_Abort() and waits to be killed: it ends by that, with this exit code.
  void abort(Slot slot, int exit_code);
  // Why the worker is about to be killed; stands in what is told of its end.
  void call_hung(Slot slot, const std::string& why) { at(slot).hung = why; }
  // --chaos is about to kill it; so does this.
  void note_chaos(Slot slot) { at(slot).by_chaos = true; }
  const WorkerPlace& place(Slot slot) const;
  // Of those that run:
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
    asio::steady_timer look;                // at what is left of its group
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
  void kill_later();
  void kill_leftovers();
  void tell_of_leftover(pid_t pid) const;
  void note_signal(Slot slot, int number);
  WorkerEnd describe_end(Slot slot, const siginfo_t& info);
  Process& at(Slot slot) { return *processes_[static_cast<std::size_t>(slot)]; }

  asio::io_context& loop_;
  OutputHub& hub_;
  WorkerStarter& starter_;
  const std::set<pid_t>& helpers_;
  Listener listener_;
  asio::signal_set children_;
  asio::steady_timer leftovers_;  // for what is left while other workers run
  bool kills_later_ = false;
  std::set<pid_t> ended_groups_;      // of workers
  std::map<int, int> ranks_of_done_;  // workers that have ended with code 0, by their number
  OomCounter oom_before_;
  std::vector<std::unique_ptr<Process>> processes_;  // by slot; null: never used
};

}  // namespace dlaunch
