#include "launcher/node/workers/processes.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/contract.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/text.h"
#include "elastic/job_core.h"
#include "launcher/node/workers/worker_evidence.h"
#include "launcher/process/process_tree.h"

namespace dlaunch {
namespace {

constexpr std::size_t kTailLines = 20;
constexpr Duration kCleanUp = std::chrono::seconds(1);
constexpr Duration kLook = std::chrono::milliseconds(10);  // at a group whose leader has ended

}  // namespace

Processes::Processes(asio::io_context& loop, OutputHub& hub, WorkerStarter& starter,
                     const std::set<pid_t>& helpers, int slots, Handlers handlers)
    : loop_(loop),
      hub_(hub),
      starter_(starter),
      helpers_(helpers),
      handlers_(std::move(handlers)),
      children_(loop),
      leftovers_(loop, [this] { kill_leftovers(); }),
      oom_before_(read_oom_counter()),
      processes_(static_cast<std::size_t>(slots)) {
  asio::error_code ec;
  children_.add(SIGCHLD, ec);
  watch_orphans();
}

bool Processes::running(Slot slot) const {
  const auto at = static_cast<std::size_t>(slot);
  return at < processes_.size() && processes_[at] && processes_[at]->running;
}

pid_t Processes::program_pid(Slot slot) const {
  const Process& process = at(slot);
  return process.program_pid > 0 ? process.program_pid : process.pid;
}

void Processes::read_heartbeats(Slot slot) {
  Process& process = at(slot);
  if (!process.heartbeats) return;
  char bytes[4096];
  for (long n; (n = ::read(process.heartbeats.get(), bytes, sizeof bytes)) > 0;) {
    process.beat = steady_now();
    process.progress.feed(*process.beat, {bytes, static_cast<std::size_t>(n)});
  }
}

std::vector<Slot> Processes::running_slots() const {
  std::vector<Slot> found;
  for (Slot slot = 0; slot < static_cast<Slot>(processes_.size()); ++slot) {
    if (running(slot)) found.push_back(slot);
  }
  return found;
}

std::vector<Slot> Processes::members() const {
  auto found = running_slots();
  std::erase_if(found, [this](Slot slot) { return place(slot).rank < 0; });
  return found;
}

// Finds a running worker.
template <class Pred>
std::optional<Slot> Processes::find(Pred is_meant) const {
  for (const Slot slot : running_slots()) {
    if (is_meant(at(slot))) return slot;
  }
  return std::nullopt;
}

std::optional<Slot> Processes::slot_of_worker(int worker) const {
  return find([=](const Process& process) { return process.place.worker == worker; });
}

std::optional<Slot> Processes::slot_of_rank(int rank) const {
  return find([=](const Process& process) { return process.place.rank == rank; });
}

SpawnError Processes::start(Slot slot, const WorkerPlace& place) {
  auto stdio = hub_.open_worker(place.round, slot, place.rank);
  if (!stdio) return {Stage::stdio, stdio.error().os_errno, stdio.error().what};
  auto process = std::make_unique<Process>(loop_);
  process->started = steady_now();
  process->place = place;
  Spawned spawned;
  const auto error = starter_.start(place, *stdio, spawned);
  if (error.stage != Stage::none) return error;
  process->pid = spawned.pid;
  ended_groups_.erase(spawned.pid);
  process->gpus = std::move(spawned.gpus);
  process->heartbeats = std::move(spawned.heartbeats);
  process->running = true;
  asio::error_code ec;
  process->exited.assign(spawned.pidfd.release(), ec);
  processes_[static_cast<std::size_t>(slot)] = std::move(process);
  watch(slot);
  return {};
}

void Processes::move(Slot slot, int rank, int round, std::string round_dir) {
  at(slot).waits = false;
  at(slot).place.round = round;
  at(slot).place.rank = rank;
  at(slot).place.round_dir = std::move(round_dir);
  hub_.set_rank(slot, rank);
}

void Processes::watch(Slot slot) {
  at(slot).exited.async_wait(asio::posix::stream_descriptor::wait_read,
                             [this, slot, pid = at(slot).pid](asio::error_code ec) {
                               if (ec || at(slot).pid != pid || !at(slot).running) return;
                               if (!reap(slot)) watch(slot);
                             });
}

// The signal to end went to the worker's whole group: a shell ends at once, and its child may be
// saving a checkpoint. The worker counts as running until the group has ended, too.
bool Processes::group_lives(const Process& process) const {
  if (!ends_the_job(process.signal_sent)) return false;
  const auto all = orphans();
  return std::ranges::any_of(all, [&](pid_t child) { return ::getpgid(child) == process.pid; });
}

void Processes::look_again(Slot slot) {
  at(slot).look.expires_after(kLook);
  at(slot).look.async_wait([this, slot](asio::error_code error) {
    if (!error) watch(slot);
  });
}

void Processes::reap_if_ended(Slot slot) {
  if (running(slot)) (void)reap(slot);
}

// False: it has not ended. It may stay a zombie for now, which keeps its number.
bool Processes::reap(Slot slot) {
  Process& process = at(slot);
  siginfo_t info{};
  const auto id = static_cast<id_t>(process.pid);
  if (::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    return errno == ECHILD;  // kill_descendants() has reaped it: the job is over
  }
  if (info.si_pid == 0) return false;
  if (group_lives(process)) {
    look_again(slot);
    return true;
  }
  ::waitid(P_PID, id, &info, WEXITED | WNOHANG);
  ended_groups_.insert(process.pid);
  if (info.si_code == CLD_EXITED && info.si_status == 0) {
    ranks_of_done_[process.place.worker] = process.place.rank;
  }
  process.running = false;
  asio::error_code ec;
  process.exited.close(ec);
  read_heartbeats(slot);
  process.heartbeats.reset();
  hub_.worker_ended(slot);
  reap_orphans();
  if (info.si_code == CLD_EXITED && info.si_status == kExitNotFound) {
    if (const auto error = starter_.failure_of(process.place)) {
      handlers_.never_ran(slot, *error);
      return true;
    }
  }
  handlers_.ended(slot, describe_end(slot, info));
  return true;
}

WorkerEnd Processes::describe_end(Slot slot, const siginfo_t& info) {
  const Process& process = at(slot);
  WorkerEnd end;
  end.rank = process.place.rank;
  end.local_rank = process.place.local_rank;
  end.pid = process.pid;
  end.started = process.started;
  end.ended = steady_now();
  end.signal_we_sent = process.signal_sent;
  end.hung = process.hung;
  note_wait_status(end, info);
  end.silent_since_traceback = process.silent;
  if (process.silent > Duration::zero()) end.traceback = hub_.last_traceback(slot);
  if (process.abort_code != 0 && end.signal == SIGKILL && process.signal_sent == 0) {
    end.signal = 0;
    end.exit_code = process.abort_code;
  }
  end.by_chaos = process.by_chaos && end.signal == SIGKILL;
  note_corruption(end, process.place);
  if (!has_failed(end)) return end;
  note_out_of_memory(end, oom_before_);
  note_left_files(end, process.place);
  // Reports about peers from before its SIGKILL explain nothing.
  if (end.signal == SIGKILL) end.peer_lost = -1;
  end.stderr_tail = hub_.stderr_tail(slot, kTailLines);
  end.stderr_log = hub_.stderr_log(slot);
  end.traceback = hub_.last_traceback(slot);
  return end;
}

// The signal ends it, unless it had begun to end before.
void Processes::note_signal(Slot slot, int number) {
  Process& process = at(slot);
  if (process.signal_sent == 0) {
    if (is_ending(process.pid)) return;
    hub_.before_signal(slot);
    const auto after = after_traceback(slot);
    const TimePoint now = steady_now();
    if (after && after->stands(now)) process.silent = now - after->threw;
  }
  process.signal_sent = number;
}

std::optional<AfterTraceback> Processes::after_traceback(Slot slot) const {
  const auto threw = hub_.threw_at(slot);
  if (!threw) return std::nullopt;
  AfterTraceback after{.threw = *threw, .said = hub_.said_at(slot)};
  if (place(slot).rank < 0) return after;
  for (const auto& position : read_positions(flight_record_of(place(slot)))) {
    after.inside = after.inside || position.inside;
    after.moved = std::max(after.moved.value_or(position.moved), position.moved);
  }
  return after;
}

void Processes::signal(Slot slot, int number) {
  Process& process = at(slot);
  if (!process.running) return;
  if (number == SIGKILL || ends_the_job(number)) note_signal(slot, number);
  if (number == SIGKILL) kill_descendants_of(process.pid);
  // A process that has just been forked may not lead its group yet.
  if (::kill(-process.pid, number) != 0 || number == SIGKILL) ::kill(process.pid, number);
}

void Processes::abort(Slot slot, int exit_code) {
  Process& process = at(slot);
  if (!process.running || process.signal_sent != 0) return;
  process.abort_code = exit_code;
  kill_descendants_of(process.pid);
  if (::kill(-process.pid, SIGKILL) != 0) ::kill(process.pid, SIGKILL);
}

void Processes::end_leftovers() {
  if (!running_slots().empty()) {  // beside the other workers: later, and without a wait
    if (!leftovers_.is_armed() && !orphans().empty()) leftovers_.arm(steady_now() + kCleanUp);
    return;
  }
  await_orphans();
  for (const pid_t child : orphans()) tell_of_leftover(child);
  helpers_.empty() ? static_cast<void>(kill_descendants()) : kill_leftovers();
  hub_.read_leftovers();
}

// Cleaners of a worker, and filters of its output, learn of its end when we do: gives them time.
void Processes::await_orphans() {
  for (const auto until = steady_now() + kCleanUp; !orphans().empty() && steady_now() < until;) {
    ::poll(nullptr, 0, 2);
    hub_.read_leftovers();
    reap_orphans();
  }
}

// A worker's orphans come to us, its subreaper. The trees of running workers are not searched:
// each search leaves entries in the kernel's cache of /proc that make a process, or a thread, slow
// to end.
void Processes::kill_leftovers() {
  for (const pid_t child : orphans()) {
    if (is_leftover(child)) tell_of_leftover(child);
    auto tree = descendants_of(child);
    tree.push_back(child);  // last: until then it is their ancestor
    for (const pid_t pid : tree) {
      if (is_leftover(pid)) ::kill(pid, SIGKILL);
    }
  }
}

// Its environment names its worker, wherever it has moved; a process with another environment may
// still be in the worker's group.
bool Processes::is_leftover(pid_t pid) const {
  const auto worker = environment_of(pid, contract::kWorker);
  if (!worker) return ended_groups_.contains(::getpgid(pid));
  return !find([&](const Process& process) {
            return std::to_string(process.place.worker) == *worker;
          }).has_value();
}

// Leftovers of a failed worker are not reported.
void Processes::tell_of_leftover(pid_t pid) const {
  const auto worker = environment_of(pid, contract::kWorker);
  const auto done = ranks_of_done_.find(worker ? std::atoi(worker->c_str()) : 0);
  if (done == ranks_of_done_.end()) return;
  log_warn("rank {} has ended and left {} (pid {}) behind; dlaunch kills it", done->second,
           escaped(name_of_process(pid)), pid);
}

std::vector<pid_t> Processes::orphans() const {
  std::vector<pid_t> found = children();
  std::erase_if(found, [this](pid_t child) { return stays(child) || has_ended(child); });
  return found;
}

bool Processes::stays(pid_t child) const {
  return helpers_.contains(child) ||
         find([=](const Process& process) { return process.pid == child; }).has_value();
}

// Orphans of workers come back to us, the subreaper; we reap them.
void Processes::watch_orphans() {
  children_.async_wait([this](asio::error_code error, int) {
    if (error) return;
    reap_orphans();
    handlers_.child_changed();
    watch_orphans();
  });
}

void Processes::reap_orphans() {
  siginfo_t info{};
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
    if (stays(info.si_pid)) return;  // its pidfd reports it, and then we are called again
    ::waitpid(info.si_pid, nullptr, WNOHANG);
    info = {};
  }
}

}  // namespace dlaunch
