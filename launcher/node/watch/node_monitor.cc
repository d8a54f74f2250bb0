#include "launcher/node/watch/node_monitor.h"

#include <signal.h>

#include <algorithm>
#include <memory>

#include "base/log.h"
#include "base/signal_name.h"
#include "launcher/node/watch/stacks.h"
#include "launcher/node/watch/torch_recorder.h"
#include "launcher/node/workers/worker_evidence.h"
#include "launcher/process/process_tree.h"

namespace dlaunch {
namespace {

// How often to look for progress, and whether a worker stands still for that long.
Duration interval_for(Duration still_after) {
  return std::clamp<Duration>(still_after / 8, std::chrono::milliseconds(200),
                              std::chrono::seconds(1));
}

constexpr Duration kBetweenProgress = std::chrono::seconds(1);

// Of libdlring's collectives, or of NCCL's.
std::vector<TallySums> tallies_of(const WorkerPlace& place) {
  auto tallies = read_tallies(flight_record_of(place));
  return tallies.empty() ? read_tallies(nccl_record_of(place)) : tallies;
}

// Limits of what is sent to the leader.
constexpr std::size_t kMaxLines = 500, kMaxLinesInHaste = 150, kMaxLineBytes = 400;

std::vector<std::string> bounded(std::vector<std::string> lines, std::size_t most) {
  const std::size_t all = lines.size();
  if (all > most) {
    lines.resize(most);
    lines.push_back("… " + std::to_string(all - most) + " more lines");
  }
  for (auto& line : lines) {
    if (line.size() > kMaxLineBytes) line.resize(kMaxLineBytes);
  }
  return lines;
}

// What the report says about the processes of a worker.
void note_ras(NodeRecorded& recorded, const RasReport& report, pid_t worker) {
  if (report.named.empty() && report.silent.empty()) return;
  auto pids = descendants_of(worker);
  pids.push_back(worker);
  for (const pid_t pid : pids) {
    recorded.ras_silent = recorded.ras_silent || report.silent.contains(pid);
    const auto named = report.named.find(pid);
    if (named == report.named.end()) continue;
    recorded.ras.insert(recorded.ras.end(), named->second.begin(), named->second.end());
  }
  if (recorded.ras.size() > kNcclComms) recorded.ras.resize(kNcclComms);
}

}  // namespace

NodeMonitor::NodeMonitor(asio::io_context& loop, Processes& processes, std::set<pid_t>& helpers,
                         std::function<void(const NodeMessage&)> tell)
    : loop_(loop),
      processes_(processes),
      tell_(std::move(tell)),
      spans_timer_(loop, [this] { send_spans(); }),
      gpus_(loop, helpers),
      ras_(loop),
      traceback_timer_(loop, [this] { look_at_tracebacks(); }),
      timer_(loop,
             [this] {
               look();
               timer_.arm(steady_now() + interval_);
             }),
      go_on_timer_(loop, [this] { go_on(steady_now()); }) {}

void NodeMonitor::begin(Duration still_after) {
  news_.emplace(still_after);
  interval_ = interval_for(still_after);
  watches_ = still_after != Duration::max();
  progress_ = {};
  timer_.arm(steady_now() + interval_);
  spans_ = {};
  spans_timer_.arm(steady_now() + spans_interval(1));
  tracebacks_ = {};
  give_ups_ = {};
  processes_.on_traceback([this] { look_at_tracebacks(); });
  look_at_tracebacks();
}

void NodeMonitor::stop() {
  news_.reset();
  timer_.arm(kNever);
  spans_timer_.arm(kNever);
  traceback_timer_.arm(kNever);
  processes_.on_traceback(nullptr);
  go_on(kNever);
}

void NodeMonitor::look() {
  if (!news_) return;
  std::vector<RankNews::Worker> workers;
  for (const Slot slot : processes_.members()) {
    const auto& place = processes_.place(slot);
    processes_.read_heartbeats(slot);
    const pid_t pid = processes_.program_pid(slot);
    workers.push_back({.slot = slot,
                       .rank = place.rank,
                       .round = place.round,
                       .pid = pid,
                       .state = state_of_process(pid),
                       .left = processes_.waits(slot),
                       .positions = {}});
    if (!watches_) continue;
    workers.back().positions = read_positions(flight_record_of(place));
    workers.back().beat = processes_.beat_at(slot);
    if (workers.back().positions.empty() && !workers.back().beat) {
      workers.back().active = active_at(slot);
    } else {
      activities_.erase(slot);
    }
  }
  const NodeSeen seen = news_->look(steady_now(), workers);
  if (!seen.ranks.empty()) tell_(seen);
  send_progress(steady_now());
}

void NodeMonitor::send_progress(TimePoint now) {
  if (now < progress_.sent + kBetweenProgress) return;
  std::optional<Slot> lowest;
  for (const Slot slot : processes_.members()) {
    if (!processes_.progress(slot)) continue;
    if (!lowest || processes_.place(slot).rank < processes_.place(*lowest).rank) lowest = slot;
  }
  if (lowest) send_progress_of(now, *lowest);
}

void NodeMonitor::send_progress_of(TimePoint now, Slot slot) {
  const int rank = processes_.place(slot).rank;
  const auto& progress = processes_.progress(slot);
  if (!progress || (rank == progress_.rank && progress->at == progress_.said)) return;
  progress_ = {rank, progress->at, now};
  tell_(NodeRunProgress{rank, *progress});
}

void NodeMonitor::send_spans() {
  const TimePoint now = steady_now();
  NodeBooks books{.ranks = {}};
  int size = 1;
  for (const Slot slot : processes_.members()) {
    const WorkerPlace& place = processes_.place(slot);
    size = std::max(size, place.size);
    RankSpans news = spans_.look(now, place);
    if (news.joined != TimePoint{}) books.ranks.push_back(std::move(news));
    send_trace(now, place);
  }
  if (!books.ranks.empty()) tell_(books);
  spans_timer_.arm(now + spans_interval(size));
}

// One message for each rank: it may be long.
void NodeMonitor::send_trace(TimePoint now, const WorkerPlace& place) {
  RankSpans news = spans_.look_at_trace(now, place);
  if (!news.spans.empty() || !news.texts.empty()) tell_(NodeTrace{.ranks = {std::move(news)}});
}

void NodeMonitor::last_news(Slot slot) {
  if (!news_) return;
  if (processes_.place(slot).rank >= 0) send_progress_of(steady_now(), slot);
  send_trace(steady_now(), processes_.place(slot));
  RankSpans news = spans_.look(steady_now(), processes_.place(slot));
  if (news.joined != TimePoint{}) tell_(NodeBooks{.ranks = {std::move(news)}});
}

TimePoint NodeMonitor::active_at(Slot slot) {
  const pid_t pid = processes_.pid(slot);
  auto& [seen, activity] = activities_[slot];
  if (std::exchange(seen, pid) != pid) activity = {};
  return activity.look(steady_now(), {.cpu = cpu_of_tree(pid), .said = processes_.said_at(slot)});
}

void NodeMonitor::look_at_tracebacks() {
  if (!news_) return;
  std::vector<TracebackNews::Worker> workers;
  for (const Slot slot : processes_.members()) {
    const auto after = processes_.after_traceback(slot);
    const pid_t pid = processes_.program_pid(slot);
    if (!after || is_ending(pid)) continue;
    const auto state = state_of_process(pid);
    workers.push_back({.slot = slot,
                       .pid = pid,
                       .round = processes_.place(slot).round,
                       .waits = processes_.waits(slot) || !state || is_held(*state),
                       .after = *after});
  }
  for (const auto& news : tracebacks_.look(steady_now(), workers)) tell_(news);
  look_for_give_ups();
  traceback_timer_.arm(
      std::min(tracebacks_.deadline().value_or(kNever), give_ups_.deadline().value_or(kNever)));
}

void NodeMonitor::look_for_give_ups() {
  std::vector<GiveUpNews::Worker> workers;
  for (const Slot slot : processes_.members()) {
    const auto last = processes_.traceback(slot);
    if (last) workers.push_back({slot, processes_.place(slot).round, *last});
  }
  for (const auto& news : give_ups_.look(steady_now(), workers)) tell_(news);
}

void NodeMonitor::on(const NodeLook& look) {
  std::map<int, NodeSteps::Record> records;
  for (const Slot slot : processes_.members()) {
    const auto& place = processes_.place(slot);
    const std::string flight = flight_record_of(place);
    records[place.rank] = {read_spans(flight), read_received(flight)};
  }
  if (const auto spans = steps_.look(look.look, std::move(records))) tell_(*spans);
}

void NodeMonitor::on(const NodeCut& cut) {
  if (const auto times = steps_.cut(cut)) tell_(*times);
}

void NodeMonitor::on(const NodeDump& dump) {
  NodeStacks stacks{.request = dump.request, .slot = dump.slot, .pid = 0, .lines = {}};
  if (!processes_.running(dump.slot)) {
    stacks.lines = {"it has no process any more"};
    return tell_(stacks);
  }
  stacks.pid = processes_.program_pid(dump.slot);
  const bool in_haste = dump.limit > Duration::zero();
  const auto [reading, is_new] = dumps_.try_emplace(stacks.pid, Reading{.in_haste = in_haste});
  Reading& now = reading->second;
  // A process has one tracer: what is being read answers this, too.
  if (now.in_haste && !in_haste) return now.later.push_back(dump);
  now.asked.emplace_back(stacks, in_haste ? kMaxLinesInHaste : kMaxLines);
  if (!is_new) return;
  dump_stacks(
      loop_, stacks.pid,
      [this, pid = stacks.pid](const std::vector<std::string>& lines) {
        Reading done = std::move(dumps_.extract(pid).mapped());
        for (auto& [reply, most] : done.asked) {
          reply.lines = bounded(lines, most);
          tell_(reply);
        }
        for (const NodeDump& later : done.later) on(later);
      },
      in_haste ? dump.limit : kStacksLimit);
}

void NodeMonitor::on(const NodeAskRecorder& ask) {
  struct Answer {
    NodeRecorded recorded;
    int open = 2;
  };
  const auto answer = std::make_shared<Answer>();
  answer->recorded.request = ask.request;
  if (!processes_.running(ask.slot)) return tell_(answer->recorded);
  answer->recorded.nccl = read_nccl(nccl_record_of(processes_.place(ask.slot)));
  const auto tell_if_all_there = [this, answer] {
    if (--answer->open == 0) tell_(answer->recorded);
  };
  const pid_t pid = processes_.program_pid(ask.slot);
  const auto take_positions = [answer, tell_if_all_there](std::vector<NodePosition> positions) {
    answer->recorded.positions = std::move(positions);
    tell_if_all_there();
  };
  if (ask.in_haste) {
    --answer->open;
  } else {
    ask_torch_recorder(loop_, pid, processes_.place(ask.slot).rank, take_positions);
  }
  ras_.ask(pid, [answer, tell_if_all_there, pid](const RasReport& report) {
    note_ras(answer->recorded, report, pid);
    tell_if_all_there();
  });
}

// Unless that process has gone already.
void NodeMonitor::on(const NodeHung& hung) {
  if (!processes_.running(hung.slot) || processes_.program_pid(hung.slot) != hung.pid) return;
  processes_.call_hung(hung.slot, hung.why);
  tell_(NodeReplace{hung.slot, FailureKind::hung});
}

void NodeMonitor::on(const NodeInject& inject) {
  if (!processes_.running(inject.slot)) return;
  const pid_t pid = processes_.program_pid(inject.slot);
  log_info("chaos: {} to rank {} (pid {})", describe_signal(inject.signal),
           processes_.place(inject.slot).rank, pid);
  if (inject.signal == SIGKILL) processes_.note_chaos(inject.slot);
  ::kill(pid, inject.signal);
  if (inject.signal != SIGSTOP) return;
  stopped_[inject.slot] = {pid, deadline_after(steady_now(), inject.stands)};
  go_on(steady_now());
}

// Those whose time is up by then.
void NodeMonitor::go_on(TimePoint now) {
  TimePoint next = kNever;
  for (auto it = stopped_.begin(); it != stopped_.end();) {
    const auto [slot, stopped] = *it;
    if (stopped.until > now) {
      next = std::min(next, stopped.until);
      ++it;
      continue;
    }
    if (processes_.running(slot) && processes_.program_pid(slot) == stopped.pid)
      ::kill(stopped.pid, SIGCONT);
    it = stopped_.erase(it);
  }
  go_on_timer_.arm(next);
}

void NodeMonitor::on(const NodeSurvey& survey) {
  NodeWorkers all{.request = survey.request, .workers = {}};
  std::optional<std::vector<GpuFigures>> gpus;
  if (survey.gpus) gpus = gpus_.look();
  for (const Slot slot : processes_.running_slots()) {
    NodeWorker worker = describe(slot);
    if (survey.gpus && processes_.place(slot).rank >= 0) {
      worker.tallies = tallies_of(processes_.place(slot));
    }
    worker.gpus_known = gpus.has_value();
    if (gpus) worker.gpus = gpus_of_worker(slot, *gpus);
    all.workers.push_back(std::move(worker));
  }
  tell_(all);
}

NodeWorker NodeMonitor::describe(Slot slot) const {
  const auto& place = processes_.place(slot);
  const pid_t pid = processes_.program_pid(slot);
  NodeWorker worker{.slot = slot,
                    .pid = pid,
                    .started = processes_.started(slot),
                    .state = state_of_process(pid).value_or(ProcessState::running),
                    .round = place.round};
  if (const auto use = use_of_process(pid)) {
    worker.cpu = use->cpu;
    worker.memory = use->memory;
  }
  worker.has_spoken = processes_.said_at(slot).has_value();
  if (place.rank < 0) return worker;
  const std::string record = flight_record_of(place);
  worker.in_ring = !record.empty();
  auto operations = last_operations_of(place);
  if (!operations.entries.empty()) worker.operations = {std::move(operations.entries.back())};
  worker.rate = read_rate(operations.is_nccl ? nccl_record_of(place) : record, steady_now());
  return worker;
}

std::vector<NodeGpu> NodeMonitor::gpus_of_worker(Slot slot,
                                                 const std::vector<GpuFigures>& all) const {
  std::vector<NodeGpu> used;
  if (all.empty()) return used;
  const pid_t pid = processes_.program_pid(slot);
  auto pids = descendants_of(pid);
  pids.push_back(pid);
  // The GPUs that we gave it: /proc would wait for a process that is stuck in its driver.
  for (const GpuUse& use : gpus_of(all, pids, processes_.gpus(slot))) {
    const GpuFigures& gpu = all[use.gpu];
    NodeGpu& out = used.emplace_back();
    out = {.number = static_cast<std::int32_t>(use.gpu),
           .utilisation = gpu.utilisation,
           .temperature = gpu.temperature,
           .memory_used = gpu.memory_used,
           .memory_total = gpu.memory_total,
           .ecc_errors = gpu.uncorrected};
    if (!use.instance) continue;
    const GpuInstance& instance = gpu.instances[*use.instance];
    out.instance = instance.number;
    out.utilisation = -1;
    out.memory_used = instance.memory_used;
    out.memory_total = instance.memory_total;
  }
  return used;
}

}  // namespace dlaunch
