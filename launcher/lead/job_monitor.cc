#include "launcher/lead/job_monitor.h"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "base/units.h"
#include "launcher/lead/report/report.h"

namespace dlaunch {
namespace {

constexpr Duration kWorthTelling = std::chrono::seconds(10);  // at the end of the job

ProgressWatch::Options watch_options(const Plan& plan) {
  ProgressWatch::Options options{
      .hang_timeout = plan.hang_timeout, .hang_warning = plan.hang_warning, .stragglers = {}};
  options.stragglers.mode = plan.straggler;
  options.stragglers.detection.ratio = plan.straggler_ratio;
  options.stragglers.detection.window_time = plan.straggler_window;
  options.stragglers.detection.line_kind = StepDigest::kBetweenHosts;
  return options;
}

void add_recorded(HangEvidence& evidence, int rank, const NodeRecorded& recorded) {
  if (!recorded.positions.empty()) evidence.recorded[rank] = recorded.positions;
  if (!recorded.nccl.empty()) evidence.nccl[rank] = recorded.nccl;
  if (!recorded.ras.empty()) evidence.ras[rank] = recorded.ras;
  if (recorded.ras_silent) evidence.ras_silent.insert(rank);
}

}  // namespace

JobMonitor::JobMonitor(const Plan& plan, NodeMembership& membership, const JobCore& job,
                       Effects& effects)
    : plan_(plan),
      membership_(membership),
      job_(job),
      effects_(effects),
      watch_(watch_options(plan), *this),
      requests_([this](int node) { return membership_.is_here(node); },
                [this](int node, const NodeMessage& question) { ask(node, question); }),
      tails_([this](Slot slot, Duration lasts, bool again) { ask_tail(slot, lasts, again); },
             [this](int rank) { return slot_of(rank); }) {
  if (plan.chaos) chaos_.emplace(now(), *plan.chaos);
  arm();
}

void JobMonitor::arm() {
  const TimePoint chaos = chaos_ && !chaos_looks_ ? chaos_->deadline() : kNever;
  effects_.wake_monitor_at(
      std::min({watch_.deadline().value_or(kNever), requests_.deadline().value_or(kNever),
                hold_.deadline().value_or(kNever), tails_.deadline().value_or(kNever), chaos}));
}

void JobMonitor::on_clock() {
  watch_.on_clock();
  requests_.on_clock(now());
  tails_.on_clock(now());
  act(hold_.step(now(), StackHold::Clock{}));
  if (chaos_ && !chaos_looks_ && now() >= chaos_->deadline()) on_chaos();
  arm();
}

void JobMonitor::begin_round(int round, int ranks, std::optional<TimePoint> fenced) {
  hold_ = {};
  if (chaos_) chaos_->new_round(now());
  std::optional<Duration> recovered;
  if (fenced) recovered = now() - *fenced;
  watch_.new_round(round,
                   {.ranks = ranks,
                    .nodes = static_cast<int>(nodes().size()),
                    .min_ranks = plan_.min_nproc,
                    .spares = plan_.spares},
                   recovered);
  ranks_.clear();
  for (const Slot slot : members()) ranks_.emplace(slot, job_.rank_of(slot));
  tails_.look(now());
  arm();
}

void JobMonitor::stop() {
  watch_.stop();
  tails_.end(now());
  after_dumps_.clear();
  chaos_.reset();
  arm();
}

void JobMonitor::lost_host(int node) {
  requests_.lost(node);
  watch_.lost(node);
  for (Slot slot = 0; slot < job_.slots(); ++slot) {
    if (job_.node_of(slot) == node) tails_.lost(slot);
  }
}

void JobMonitor::take(int node, const NodeMessage& message) {
  std::visit(
      [&](const auto& what) {
        if constexpr (kIsFromMonitor<std::remove_cvref_t<decltype(what)>>) on(node, what);
      },
      message);
}

// -- The ranks' output

void JobMonitor::tail(int rank, std::optional<std::uint64_t> after, const RankTails::Reply& reply) {
  tails_.ask(now(), rank, after, reply);
  arm();
}

void JobMonitor::ask_tail(Slot slot, Duration lasts, bool again) {
  const auto& home = membership_.home_of(slot);
  ask(home.node, NodeTail{home.slot, lasts, again});
}

void JobMonitor::on(int node, const NodeOutput& output) {
  const Slot slot = membership_.job_slot(node, output.slot);
  if (slot < 0) return;
  tails_.take(now(), slot, fmt::format("{}/{}", membership_.host_of(slot), output.slot), output);
  arm();
}

// -- Evidence

// The other members, if they may wait for each other without our knowledge. Programs with
// libdlring get to know the loss of a rank from it, and must recover soon. Tasks wait for nobody.
std::vector<Slot> JobMonitor::others_that_wait(Slot slot) const {
  const bool goes_on = job_.state() == JobState::forming || job_.state() == JobState::active;
  std::vector<Slot> others = members();
  const bool linked = std::ranges::any_of(others, [this](Slot s) { return job_.linked(s); });
  if (!goes_on || linked || job_.are_tasks() || job_.rank_of(slot) < 0) return {};
  std::erase(others, slot);
  return others;
}

void JobMonitor::ended(Slot slot, const WorkerEnd& end) {
  // No rank waits for a spare, nor for a worker that had left its rank to another. The job may have
  // numbered the ranks of the next round already.
  const auto in_round = ranks_.find(slot);
  const bool had_rank = in_round != ranks_.end() && in_round->second == end.rank;
  if (end.rank >= 0 && (had_rank || job_.rank_of(slot) == end.rank)) watch_.gone(end.rank);
  act(hold_.step(now(),
                 StackHold::Ended{slot, end, may_follow_from_wait(end), others_that_wait(slot)}));
}

void JobMonitor::on(int node, const NodeGaveUp& gave_up) {
  const Slot slot = membership_.job_slot(node, gave_up.slot);
  if (slot < 0) return;
  act(hold_.step(now(), StackHold::GaveUp{slot, others_that_wait(slot)}));
}

void JobMonitor::act(const std::vector<StackHold::Action>& actions) {
  for (const auto& action : actions) {
    std::visit([this](const auto& what) { on(what); }, action);
  }
  if (!actions.empty()) arm();
}

void JobMonitor::on(const StackHold::TakeStacks& take) {
  struct Counts {
    HangEvidence evidence;
    RankSet ranks;  // that run
    std::size_t open = 0;
  };
  const auto counts = std::make_shared<Counts>();
  counts->open = take.slots.size();
  for (const Slot slot : members()) counts->ranks.insert(job_.rank_of(slot));
  for (const Slot slot : take.slots) {
    const auto& home = membership_.home_of(slot);
    const int rank = job_.rank_of(slot);
    const auto answered = [this, slot, open = std::make_shared<int>(2)] {
      if (--*open == 0) act(hold_.step(now(), StackHold::Answered{slot}));
    };
    // Nothing waits for the stacks before an end is held.
    const Duration limit = hold_.deadline() ? kStackHold * 4 / 5 : Duration::zero();
    requests_.dump(
        home.node, home.slot,
        [this, rank, answered](int, const auto& lines) {
          effects_.note_stacks(rank, lines);
          answered();
        },
        limit);
    const auto add_counts = [this, rank, counts, answered,
                             round = job_.round()](const NodeRecorded& recorded) {
      add_recorded(counts->evidence, rank, recorded);
      if (--counts->open == 0 && job_.round() == round) {
        const auto late = late_in_nccl(counts->evidence, counts->ranks);
        if (late) effects_.note_late_in_nccl(*late);
      }
      answered();
    };
    requests_.ask_recorder(home.node, home.slot, add_counts, true);
  }
}

// -- Which rank is where

// The members on connected hosts.
std::vector<Slot> JobMonitor::members() const {
  std::vector<Slot> found;
  for (Slot slot = 0; slot < job_.slots(); ++slot) {
    const bool member = job_.rank_of(slot) >= 0 && job_.runs(slot);
    if (member && membership_.is_here(job_.node_of(slot))) found.push_back(slot);
  }
  return found;
}

// -1: none.
Slot JobMonitor::slot_of(int rank) const {
  const auto found = slots_of({rank});
  return found.empty() ? -1 : found.front();
}

std::vector<Slot> JobMonitor::slots_of(const RankSet& ranks) const {
  auto found = members();
  std::erase_if(found, [&](Slot slot) { return !ranks.contains(job_.rank_of(slot)); });
  return found;
}

std::set<int> JobMonitor::nodes() {
  std::set<int> found;
  for (const Slot slot : members()) found.insert(job_.node_of(slot));
  return found;
}

// "rank 3 takes …; rank 3 is on host b"
std::string JobMonitor::with_hosts(const std::string& sentence, const RankSet& ranks) const {
  if (!plan_.nodes.several()) return sentence;
  std::map<std::string, RankSet> hosts;
  for (Slot slot = 0; slot < job_.slots(); ++slot) {
    const int rank = job_.rank_of(slot);
    if (ranks.contains(rank)) hosts[membership_.host_of(slot)].insert(rank);
  }
  std::string text = sentence;
  for (const auto& [host, there] : hosts) {
    text += fmt::format("; {} {} on host {}", in_words(there), is(there), host);
  }
  return text;
}

void JobMonitor::survey(bool gpus, std::function<void(const std::map<Slot, NodeWorker>&)> done) {
  std::set<int> all;
  for (Slot slot = 0; slot < job_.slots(); ++slot) {
    if (membership_.is_here(job_.node_of(slot))) all.insert(job_.node_of(slot));
  }
  requests_.survey(now(), all, gpus, [this, done = std::move(done)](const auto& by_node) {
    std::map<Slot, NodeWorker> workers;
    for (const auto& [node, answer] : by_node) {
      for (const NodeWorker& worker : answer.workers) {
        const Slot slot = membership_.job_slot(node, worker.slot);
        if (slot >= 0) workers[slot] = worker;
      }
    }
    done(workers);
  });
  arm();
}

void JobMonitor::dump(Slot slot, MonitorRequests::Stacks done) {
  const auto& home = membership_.home_of(slot);
  requests_.dump(home.node, home.slot, std::move(done));
}

std::vector<std::string> JobMonitor::waits() const {
  std::vector<std::string> told;
  for (const Hang& wait : watch_.waits(kWorthTelling)) told.push_back(wait_in_words(wait));
  return told;
}

std::vector<LateRanks> JobMonitor::late() const {
  std::vector<LateRanks> found;
  std::set<Hang::Key> known;  // a circle is there once for each of its groups
  for (const Hang& wait : watch_.waits(kLongWait)) {
    if (wait.waiting.empty() || !known.insert(wait.key).second) continue;
    found.push_back({wait.key.culprits, wait.waiting, wait.waited, wait_in_words(wait)});
  }
  std::ranges::stable_sort(found, [](const auto& a, const auto& b) { return a.waited > b.waited; });
  return found;
}

std::string JobMonitor::wait_in_words(const Hang& wait) const {
  const auto sentence = fmt::format("{}, for {}", wait.sentence, format_duration(wait.waited));
  return with_hosts(sentence, wait.key.culprits);
}

// -- The consequences

void JobMonitor::on(int node, const NodeThrew& threw) {
  const Slot slot = membership_.job_slot(node, threw.slot);
  const int rank = slot >= 0 ? job_.rank_of(slot) : -1;
  if (rank < 0 || !job_.runs(slot)) return;
  if (threw.over) return warn({rank}, fmt::format("rank {} continues after its traceback", rank));
  std::vector<std::string> waiting;
  for (const int other : watch_.waiting_for(rank)) waiting.push_back(std::to_string(other));
  const std::string who =
      waiting.empty() ? ""
                      : fmt::format("; {} {} wait{}", waiting.size() == 1 ? "rank" : "ranks",
                                    fmt::join(waiting, ", "), waiting.size() == 1 ? "s" : "");
  warn({rank}, fmt::format("rank {} printed a traceback {} ago and still runs{}; 'dlaunchctl "
                           "stacks {}' shows what it does",
                           rank, format_duration(now() - threw.threw), who, rank));
}

// A person who debugs stops workers, and others wait for them.
void JobMonitor::warn(const RankSet& ranks, const std::string& sentence) {
  if (plan_.debugging.active() || job_.state() == JobState::ending) return;
  effects_.warn(with_hosts(sentence, ranks));
}

// Calls `each` for the stacks of those that still run, and `done` once everything about them is
// there.
void JobMonitor::collect(const RankSet& ranks, const EachStack& each,
                         const std::function<void(const HangEvidence&)>& done) {
  struct Collected {
    HangEvidence evidence;
    std::size_t open = 0;
  };
  const auto slots = slots_of(ranks);
  const auto all = std::make_shared<Collected>();
  all->open = 2 * slots.size();
  if (slots.empty()) return done({});
  for (const Slot slot : slots) {
    const int rank = job_.rank_of(slot);
    dump(slot, [all, each, done, slot, rank](int pid, const auto& lines) {
      if (each) each(slot, pid, lines);
      all->evidence.stacks[rank] = lines;
      if (--all->open == 0) done(all->evidence);
    });
    const auto& home = membership_.home_of(slot);
    requests_.ask_recorder(home.node, home.slot, [all, done, rank](const auto& recorded) {
      add_recorded(all->evidence, rank, recorded);
      if (--all->open == 0) done(all->evidence);
    });
  }
}

void JobMonitor::show_stack(Slot slot, int pid, const std::vector<std::string>& lines) {
  const std::string where =
      plan_.nodes.several() ? fmt::format(" on host {}", membership_.host_of(slot)) : "";
  effects_.show(
      fmt::format("dlaunch: stacks of rank {} (pid {}{}):", job_.rank_of(slot), pid, where));
  for (const auto& line : lines) effects_.show("dlaunch:   " + line);
}

void JobMonitor::dump(const RankSet& ranks) {
  ++dumps_;
  const auto show = [this](Slot slot, int pid, const auto& lines) { show_stack(slot, pid, lines); };
  collect(ranks, show, [this](const HangEvidence& evidence) {
    evidence_ = evidence;
    if (--dumps_ > 0) return;
    for (const auto& replace : std::exchange(after_dumps_, {})) replace();
  });
}

void JobMonitor::call_hung(const RankSet& ranks, const std::string& why, TimePoint since) {
  effects_.happened(
      job_event::HangFinding{job_event::HangFinding::Action::replace, ranks, why, now() - since});
  for (const Slot slot : slots_of(ranks)) {
    const auto& home = membership_.home_of(slot);
    membership_.order(home.node, NodeHung{home.slot, watch_.pid_of(job_.rank_of(slot)), why});
  }
}

// Several that hang together may all wait for one of them.
void JobMonitor::replace_hung(const HangJudge::Replace& hang) {
  const auto replace = [this, hang, since = now() - hang.hung, round = job_.round()] {
    if (job_.round() != round) return;
    const RankSet& ranks = hang.ranks;
    const bool all = !job_.are_tasks() && ranks.size() == members().size() &&
                     evidence_.stacks.size() == ranks.size();
    const auto culprits =
        all ? culprits_of(evidence_, ranks) : HangCulprits{.ranks = ranks, .note = ""};
    call_hung(culprits.ranks, hang.sentence + culprits.note, since);
  };
  // Its end would cut short the dump of its stacks, and the job's end that of another worker's.
  dumps_ > 0 ? after_dumps_.push_back(replace) : replace();
}

// Stacks that are still being read would answer two looks.
void JobMonitor::replace_if_others_wait(const HangJudge::Check& check) {
  if (std::exchange(looks_at_stacks_, true)) return;
  RankSet all = check.quiet;
  all.insert(check.busy.begin(), check.busy.end());
  collect(all, nullptr,
          [this, all, check, since = now() - check.hung,
           round = job_.round()](const HangEvidence& evidence) {
            looks_at_stacks_ = false;
            const auto waits = waits_of(evidence, check.busy);
            const auto before = std::exchange(last_look_, std::nullopt);
            if (!waits || job_.round() != round) return;
            last_look_ = QuietLook{check.quiet, *waits};
            if (before != last_look_) return;
            for (const Slot slot : slots_of(all)) {
              const auto found = evidence.stacks.find(job_.rank_of(slot));
              if (found == evidence.stacks.end()) continue;
              show_stack(slot, watch_.pid_of(found->first), found->second);
            }
            const auto culprits = culprits_of(evidence, all);
            call_hung(culprits.note.empty() ? check.quiet : culprits.ranks,
                      check.sentence + culprits.note, since);
          });
}

void JobMonitor::replace_slow(int rank, const std::string& why, bool leaves) {
  for (const Slot slot : slots_of({rank})) {
    const char* then = leaves ? "it leaves its host if it can" : "starting it again";
    effects_.warn(fmt::format("{}; {}", with_hosts(why, {rank}), then));
    effects_.feed(JobCore::Replace{slot, FailureKind::evicted, leaves});
  }
}

// -- Chaos

// Asks for the workers' state first only if another worker may be hit.
void JobMonitor::on_chaos() {
  if (!chaos_->looks(now())) return do_chaos({});
  chaos_looks_ = true;
  survey(false, [this](const std::map<Slot, NodeWorker>& figures) {
    chaos_looks_ = false;
    if (chaos_) do_chaos(figures);
    arm();
  });
}

void JobMonitor::do_chaos(const std::map<Slot, NodeWorker>& figures) {
  std::vector<Chaos::Member> all;
  for (const Slot slot : members()) {
    Chaos::Member& member = all.emplace_back();
    member = {.slot = slot, .joined = job_.joined(slot)};
    const auto found = figures.find(slot);
    if (found == figures.end()) continue;
    member.joined = member.joined || found->second.in_ring;
    member.has_spoken = found->second.has_spoken;
    member.ran = now() - found->second.started;
  }
  for (const auto& deed : chaos_->step(now(), all)) {
    const auto& home = membership_.home_of(deed.victim);
    membership_.order(home.node, NodeInject{home.slot, deed.signal, deed.stands});
  }
}

}  // namespace dlaunch
