#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>

#include "base/exit_code.h"
#include "launcher/lead/report/report.h"
#include "launcher/wire/after_traceback.h"
#include "launcher/wire/complaint.h"

namespace dlaunch {
namespace {

// A peer's death and the complaints about it lie this close together.
constexpr Duration kSameTime = std::chrono::seconds(2);

enum class Kind {
  fine,
  stopped,            // by us
  lost_peer,          // libdlring said so
  broken_connection,  // its last words say so
  gave_up_waiting,    // for other ranks, as its last words say
  failed_meanwhile,   // by itself, but after we had sent it a signal
  own,                // by itself
};

// An uncaught exception (SIGABRT) may be a reaction to another rank, and so may a broken pipe.
bool crashed(const WorkerEnd& worker) {
  return worker.signal != 0 && worker.signal != SIGABRT && worker.signal != SIGPIPE;
}

// A signal that dlaunch sends; the worker may have ended by an earlier one than the last.
bool may_be_ours(const WorkerEnd& worker) {
  switch (worker.signal) {
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
    case SIGQUIT:
      return true;
    default:
      return worker.signal == worker.signal_we_sent;
  }
}

// by_traceback: its last traceback is about this failure.
Kind kind_of(const WorkerEnd& worker, bool by_traceback, Complaint complaint) {
  if (!has_failed(worker)) return Kind::fine;
  if (worker.is_to_blame()) return Kind::own;
  if (worker.peer_lost >= 0) return Kind::lost_peer;
  const bool complains = is_about_others(complaint) || worker.signal == SIGPIPE;
  if (worker.signal_we_sent != 0) {
    const bool complained = worker.signal == SIGPIPE || (worker.signal == SIGABRT && complains);
    const bool by_itself = worker.signal != 0 && !may_be_ours(worker) && !complained;
    // It had begun to fail before our signal came: an exception was ending it.
    const bool thrown = by_traceback || !worker.error_file.empty();
    return by_itself || (thrown && !complains) ? Kind::failed_meanwhile : Kind::stopped;
  }
  if (!complains || crashed(worker)) return Kind::own;
  return complaint == Complaint::gave_up_waiting ? Kind::gave_up_waiting : Kind::broken_connection;
}

class Judge {
 public:
  explicit Judge(const JobFacts& facts) : facts_(facts) {
    for (const auto& worker : facts.workers) {
      const bool by_its_traceback = by_traceback(worker);
      complaints_.push_back(has_failed(worker) ? complaint_of(worker, by_its_traceback)
                                               : Complaint::none);
      kinds_.push_back(kind_of(worker, by_its_traceback, complaints_.back()));
    }
  }

  Verdict decide();

 private:
  using Index = std::optional<std::size_t>;

  Index first(Kind kind) const;
  Index first_second_hand() const;
  Index first_meanwhile() const;
  Index with_rank(int rank) const;
  bool by_traceback(const WorkerEnd& worker) const;
  TimePoint failed_at(std::size_t index) const;
  bool close_in_time(std::size_t a, std::size_t b) const;
  Index find_root();
  Index follow_lost_peers(std::size_t start);
  void sort_others();
  void find_doubts();
  void find_other_end();
  bool leaves_cause_open() const;
  void find_likely_cause();
  RankSet waited() const;
  RankSet late_in_nccl() const;
  void find_suspects();
  int exit_code() const;
  int exit_code_of(const WorkerEnd& root) const;
  int spawn_exit_code() const;

  const JobFacts& facts_;
  std::vector<Complaint> complaints_;  // by index in facts_.workers, as kinds_
  std::vector<Kind> kinds_;
  Verdict verdict_;
  int unseen_ = -1;  // a lost peer that had not failed
};

// facts_.workers is in the order in which they ended.
Judge::Index Judge::first(Kind kind) const {
  const auto it = std::ranges::find(kinds_, kind);
  if (it == kinds_.end()) return std::nullopt;
  return static_cast<std::size_t>(it - kinds_.begin());
}

// The first whose last words are about other ranks. A rank that gives up waiting closes its
// connections, and JAX then ends all ranks: whichever of them ended first, it was the reason.
Judge::Index Judge::first_second_hand() const {
  const auto broken = first(Kind::broken_connection), gave_up = first(Kind::gave_up_waiting);
  if (!broken || !gave_up) return broken ? broken : gave_up;
  return close_in_time(*broken, *gave_up) ? *gave_up : std::min(*broken, *gave_up);
}

// The first in the order of failing: how long each took to end after our signal says nothing.
Judge::Index Judge::first_meanwhile() const {
  Index found;
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i] != Kind::failed_meanwhile) continue;
    if (!found || failed_at(i) < failed_at(*found)) found = i;
  }
  return found;
}

Judge::Index Judge::with_rank(int rank) const {
  for (std::size_t i = 0; i < facts_.workers.size(); ++i) {
    if (facts_.workers[i].rank == rank) return i;
  }
  return std::nullopt;
}

bool Judge::by_traceback(const WorkerEnd& worker) const {
  if (!has_failed(worker)) return false;
  // Uses the first failure's time: how long it took to end after our signal says nothing.
  const auto first = std::ranges::find_if(facts_.workers, has_failed);
  const WorkerEnd& failure = worker.signal_we_sent != 0 ? *first : worker;
  return tells_of_failure(worker, failure.ended);
}

// Its end may have waited for our SIGKILL: takes the time of failing.
TimePoint Judge::failed_at(std::size_t index) const {
  const WorkerEnd& worker = facts_.workers[index];
  const bool before = kinds_[index] == Kind::failed_meanwhile && by_traceback(worker);
  return before ? worker.traceback->begun : worker.ended;
}

bool Judge::close_in_time(std::size_t a, std::size_t b) const {
  const auto gap = failed_at(a) - failed_at(b);
  return gap <= kSameTime && gap >= -kSameTime;
}

Judge::Index Judge::find_root() {
  const auto own = first(Kind::own);
  const auto broken = first_second_hand();
  if (own) return broken && *broken < *own && !close_in_time(*own, *broken) ? broken : own;
  const auto lost = first(Kind::lost_peer);
  if (const auto found = lost ? follow_lost_peers(*lost) : std::nullopt) return found;
  const auto meanwhile = first_meanwhile();
  if (broken) return meanwhile && close_in_time(*meanwhile, *broken) ? meanwhile : broken;
  if (meanwhile) return meanwhile;
  if (lost) {
    verdict_.lost_unseen = unseen_;
    verdict_.lost_each_other = unseen_ < 0;
    return lost;
  }
  // Failed workers got our signal before we saw them: an exit code says more than a signal.
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i] == Kind::stopped && facts_.workers[i].signal == 0) return i;
  }
  return first(Kind::stopped);
}

// From peer to lost peer, until one whose end explains the loss.
Judge::Index Judge::follow_lost_peers(std::size_t start) {
  std::set<std::size_t> seen;
  for (std::size_t at = start; seen.insert(at).second;) {
    const int peer = facts_.workers[at].peer_lost;
    const auto next = with_rank(peer);
    if (next && kinds_[*next] == Kind::lost_peer) {
      at = *next;
      continue;
    }
    const bool alive =
        !next || (facts_.workers[*next].signal_we_sent != 0 &&
                  kinds_[*next] != Kind::failed_meanwhile && facts_.workers[*next].exit_code == 0);
    if (alive) {
      unseen_ = peer;
      return std::nullopt;
    }
    if (kinds_[*next] != Kind::fine) return next;
    verdict_.left_early = peer;
    return at;
  }
  return std::nullopt;  // in a circle
}

void Judge::sort_others() {
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    if (verdict_.root == i) continue;
    switch (kinds_[i]) {
      case Kind::fine:
        break;
      case Kind::stopped:
        verdict_.stopped.push_back(i);
        break;
      case Kind::lost_peer:
      case Kind::gave_up_waiting:
        verdict_.consequences.push_back(i);
        break;
      case Kind::broken_connection:
        if (verdict_.root && close_in_time(*verdict_.root, i))
          verdict_.consequences.push_back(i);
        else
          verdict_.own_failures.push_back(i);
        break;
      case Kind::failed_meanwhile:
      case Kind::own:
        verdict_.own_failures.push_back(i);
        break;
    }
  }
}

// The difference of two clocks measured against a third has the errors of both.
void Judge::find_doubts() {
  if (!verdict_.root) return;
  const WorkerEnd& root = facts_.workers[*verdict_.root];
  for (const std::size_t i : verdict_.own_failures) {
    const WorkerEnd& other = facts_.workers[i];
    if (kinds_[i] != Kind::own || kinds_[*verdict_.root] != Kind::own) continue;
    const Duration error = root.clock_error + other.clock_error;
    if (other.host != root.host && other.ended - root.ended <= error) {
      verdict_.maybe_first.push_back(i);
    }
  }
}

void Judge::find_other_end() {
  const auto root = verdict_.root;
  if (!root || kinds_[*root] != Kind::broken_connection || !verdict_.own_failures.empty()) return;
  // JAX had ended it, and stacks say why.
  const bool ended_by_service = complaints_[*root] == Complaint::lost_service;
  if (ended_by_service && !verdict_.suspects.ranks.empty()) return;
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    const bool told = facts_.workers[i].signal_we_sent != 0;
    if (kinds_[i] == Kind::stopped || (kinds_[i] == Kind::fine && told)) {
      verdict_.maybe_cause.push_back(i);
    } else if (kinds_[i] == Kind::fine && i < *root && close_in_time(i, *root)) {
      verdict_.left_before.push_back(i);
    }
  }
}

// The job's end was no failure, or that of a rank that waited for others.
bool Judge::leaves_cause_open() const {
  if (facts_.end == JobEnding::timed_out || facts_.end == JobEnding::interrupted) return true;
  if (!verdict_.root) return facts_.end == JobEnding::given_up;
  const WorkerEnd& root = facts_.workers[*verdict_.root];
  return !root.hung.empty() || may_follow(complaints_[*verdict_.root]);
}

// The ranks that say so, also those that our signal kept from ending by themselves.
RankSet Judge::waited() const {
  RankSet ranks;
  for (std::size_t i = 0; i < facts_.workers.size(); ++i) {
    const Complaint said = complaints_[i];
    const bool says = has_failed(facts_.workers[i]) &&
                      (said == Complaint::gave_up_waiting || said == Complaint::lost_connection ||
                       (said == Complaint::timeout && said == complaints_[*verdict_.root]));
    if (says) ranks.insert(facts_.workers[i].rank);
  }
  // JAX ends all ranks if one gave up, also a rank that had not waited.
  const std::size_t root = *verdict_.root;
  const bool ended_by_others = complaints_[root] == Complaint::lost_service && !ranks.empty();
  if (!ended_by_others) ranks.insert(facts_.workers[root].rank);
  return ranks;
}

// None if one of them gave up waiting, too.
RankSet Judge::late_in_nccl() const {
  const RankSet gave_up = waited();
  const bool any =
      std::ranges::any_of(facts_.late_in_nccl, [&](int rank) { return gave_up.contains(rank); });
  return any ? RankSet() : facts_.late_in_nccl;
}

void Judge::find_suspects() {
  if (facts_.end != JobEnding::worker_failed || !verdict_.root) return;
  if (!may_follow(complaints_[*verdict_.root])) return;
  verdict_.groups = group_stacks(facts_.stacks);
  verdict_.suspects = dlaunch::find_suspects(verdict_.groups, waited(), facts_.nproc);
  if (verdict_.suspects.ranks.empty()) verdict_.suspects.ranks = late_in_nccl();
  // That a connection broke does not show that the root had waited.
  if (complaints_[*verdict_.root] == Complaint::lost_connection) verdict_.suspects.only_one = false;
}

void Judge::find_likely_cause() {
  if (!leaves_cause_open()) return;
  const auto threw = [this](std::size_t i) {
    const WorkerEnd& worker = facts_.workers[i];
    return worker.traceback ? worker.traceback->begun : worker.ended;
  };
  // A user who ends a job a moment after a traceback may have any reason.
  const bool from_outside =
      facts_.end == JobEnding::timed_out || facts_.end == JobEnding::interrupted;
  const Duration least = from_outside ? kSuspicious : Duration(1);
  for (std::size_t i = 0; i < facts_.workers.size(); ++i) {
    const WorkerEnd& worker = facts_.workers[i];
    const bool waited = worker.traceback && gave_up_in(*worker.traceback);
    if (worker.silent_since_traceback >= least && !waited) {
      verdict_.likely_cause.push_back(i);
    }
  }
  std::ranges::stable_sort(verdict_.likely_cause,
                           [&](std::size_t a, std::size_t b) { return threw(a) < threw(b); });
}

int Judge::spawn_exit_code() const {
  return start_exit_code(facts_.failed_stage, facts_.failed_errno);
}

int Judge::exit_code_of(const WorkerEnd& root) const {
  if (!root.corrupt.empty()) return kExitCorrupt;
  if (root.signal == 0) return root.exit_code;
  if (!root.hung.empty()) return 128 + SIGKILL;  // whichever of our signals came first
  if (root.signal_we_sent != 0 && may_be_ours(root)) {
    // Our signal hid the root's own code: uses that of the first that failed because of it.
    for (const auto& worker : facts_.workers) {
      if (worker.signal_we_sent == 0 && worker.exit_code != 0) return worker.exit_code;
    }
  }
  return 128 + root.signal;
}

int Judge::exit_code() const {
  switch (facts_.end) {
    case JobEnding::succeeded:
      return kExitOk;
    case JobEnding::worker_failed:
      if (verdict_.lost_host) return kExitRendezvous;
      return verdict_.root ? exit_code_of(facts_.workers[*verdict_.root]) : kExitInternal;
    case JobEnding::given_up:
      return facts_.corrupt ? kExitCorrupt : kExitRendezvous;
    case JobEnding::spawn_failed:
      return spawn_exit_code();
    case JobEnding::interrupted:
      return 128 + facts_.signal_received;
    case JobEnding::timed_out:
      return kExitTimeout;
    case JobEnding::setup_failed:
      return kExitCannotCreate;
  }
  return kExitInternal;
}

Verdict Judge::decide() {
  if (facts_.end == JobEnding::worker_failed) {
    const auto own = first(Kind::own);
    verdict_.lost_host = !facts_.lost_host.empty() && (!own || *own >= facts_.ended_before_loss);
    if (!verdict_.lost_host) verdict_.root = find_root();
    if (verdict_.root) verdict_.by_traceback = by_traceback(facts_.workers[*verdict_.root]);
    verdict_.gave_up_waiting = verdict_.root && kinds_[*verdict_.root] == Kind::gave_up_waiting;
  }
  sort_others();
  find_doubts();
  find_suspects();
  find_other_end();
  find_likely_cause();
  verdict_.exit_code = exit_code();
  return verdict_;
}

}  // namespace

bool tells_of_failure(const WorkerEnd& end, TimePoint failed) {
  return end.traceback && end.traceback->begun >= failed - kSameTime;
}

static Complaint complaint_of_end(const WorkerEnd& end) {
  return complaint_of(end, tells_of_failure(end, end.ended));
}

bool speaks_of_others(const WorkerEnd& end) { return is_about_others(complaint_of_end(end)); }

bool may_follow_from_wait(const WorkerEnd& end) {
  return has_failed(end) && !crashed(end) && end.signal_we_sent == 0 && end.peer_lost < 0 &&
         may_follow(complaint_of_end(end));
}

Verdict judge(const JobFacts& facts) { return Judge(facts).decide(); }

int start_exit_code(Stage stage, int os_errno) {
  if (stage != Stage::exec) return kExitSystem;
  return os_errno == ENOENT || os_errno == ENOTDIR ? kExitNotFound : kExitCannotExec;
}

}  // namespace dlaunch
