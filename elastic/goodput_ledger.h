// GoodputLedger: where the time of each rank of a job goes. Pure: events in, a Goodput out.
//
// Each rank has a book. From its opening to its closing the rank is always in exactly one state
// (starting, recovering, working, done), and each change of state books the time since the last
// change. So the accounts of a rank always sum up to its time; no account is a rest that nobody
// measured. Within `working`, libdlring's span file says how long the rank's own thread was blocked
// in libdlring, WaitFinder which part of that was waiting for another rank to come, and LinkCosts
// which part of the rest was waiting for a slow link of a rank:
//   compute  = working - blocked        (with input, checkpoints and all else of the program)
//   transfer = blocked - waiting
// A program without libdlring only has compute.
//
// A failure turns the work since the last commit into lost work, for all ranks that the failure
// takes along: the whole attempt if the program makes no commits that the launcher sees. The state
// with which a member asks for the next round is a commit, too. From the failure until a rank has
// joined its next round it recovers. A rank that has ended well waits for the rank that ends last.
//
// The job's own end by the user (a signal, --timeout) loses nothing: a program may have saved its
// state as it was asked to end.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/flight_spans.h"
#include "base/rank_set.h"
#include "elastic/wait_finder.h"

namespace dlaunch {

// These ranks are in a collective that the culprit has not entered for so long.
struct OpenWait {
  RankSet ranks;
  int culprit = -1;
  Duration time{};
};

// What a rank's host reports about it, about once a second and at its end.
struct RankSpans {
  std::int32_t rank = 0, round = 0;
  TimePoint until{};                    // the time of the report
  TimePoint joined{};                   // when it had joined this round; the epoch: not yet
  Duration blocked{};                   // in libdlring, in this round until then
  Duration least{};                     // shorter waits were not reported
  std::uint64_t dropped = 0;            // spans that were overwritten before they were read
  std::vector<Span> spans;              // since the last report
  std::vector<std::string> texts = {};  // new ones of the trace, see flight_spans.h
};

// The sums over all ranks at one moment.
struct GoodputTotals {
  Duration wall{};   // of the job, up to now
  Duration total{};  // all ranks' walls
  Duration compute{}, transfer{}, waiting{}, recovery{}, lost{}, start{};
  double share(Duration part) const;  // of total
  double goodput() const { return share(compute + transfer); }
  // All of them by name, which sum up to the total.
  std::array<std::pair<std::string_view, Duration>, 6> accounts() const;
  // The same for JSON, in seconds and with the share: "goodput", "wall_s", "rank_seconds",
  // "compute_s" …
  std::vector<std::pair<std::string, double>> figures() const;
};

// The sums, and what cost most: a rank or a busy host.
struct GoodputSummary {
  GoodputTotals totals;
  int culprit = -1;  // the rank; -1: the host cost most, or nothing has cost anything
  Duration cost{};
  std::string host = {};        // the busy host, or that of the rank; "": the job has only one
  std::string_view cause = {};  // as Goodput::Cost
};

// The accounts at one moment. Plain values, for reports, metrics and events.
struct Goodput : GoodputTotals {
  struct Waits {
    int culprit = -1;  // -1: not known
    WaitCause cause = WaitCause::compute;
    Duration time{};
  };
  struct Due {  // to the failure of a rank; -1: to none
    int culprit = -1;
    Duration time{};
  };
  struct Rank {
    int rank = 0;
    Duration wall{};
    Duration compute{}, transfer{}, start{};
    std::vector<Waits> waits;
    std::vector<Due> recovery, lost;
    Duration sum() const;  // of all accounts: equals wall
  };
  // What one rank, or all ranks of a busy host together, cost all others and themselves.
  struct Cost {
    int rank = -1;          // -1: all ranks of the host
    std::string host = {};  // of the rank; "": the job has only one
    std::map<WaitCause, Duration> waits;
    Duration recovery{}, lost{};
    Duration sum() const;
    std::string_view cause() const;  // that cost most: of kWaitCauseWords, "recovery", "lost_work"
  };
  std::vector<Rank> ranks;
  std::vector<Cost> costs;  // of each rank, the largest first
  bool sees_waits = false;  // some rank has used libdlring
  Duration least{};         // shorter waits count as transfer
  std::uint64_t dropped = 0;
  // The costs, the largest first, where one sum stands for all ranks of each busy host. A host is
  // busy if its ranks together cost most by coming late together.
  std::vector<Cost> culprits() const;
  GoodputSummary summary() const;
};

class GoodputLedger {
 public:
  explicit GoodputLedger(TimePoint begun) : begun_(begun) {}

  // A round of that size begins: its ranks have books from now on, the first ones since the job's
  // beginning.
  void begin_round(TimePoint now, int round, int size);
  // The rank's process runs its program.
  void started(TimePoint now, int rank);
  // The rank has ended with success.
  void done(TimePoint when, int rank);
  // The culprit has failed. It takes all ranks along, or it alone. hung: it had hung for so long
  // before, in which no work was done that a state could hold.
  void failed(TimePoint when, int culprit, bool alone, Duration hung = Duration::zero());
  // Some ranks have written down their state: what was done until now is not lost any more.
  void committed(TimePoint now) { committed_ = now; }
  // After a failure: members hold the state of all work before it.
  void kept() { committed_ = std::max(committed_, worked_until_); }
  void take(int node, const RankSpans& report);
  // After the reports of a host: books the waits about which all hosts have reported.
  void find_waits();
  // The rank was stopped meanwhile.
  void stood(int rank, TimePoint from, TimePoint to) { finder_.stood(rank, from, to); }
  // Data moves slowly on links of these ranks, which costs these shares of each step from now on.
  void slow_links(std::map<int, double> shares) { slow_links_ = std::move(shares); }
  void finish(TimePoint now);

  // The ledger books a wait when it is over. open: those under way, which otherwise count as
  // transfer and compute until then.
  Goodput at(TimePoint now, const std::vector<OpenWait>& open = {}) const;

 private:
  enum class State { starting, recovering, working, done, closed };
  using WaitKey = std::pair<int, WaitCause>;
  struct Book {
    TimePoint opened{}, since{};  // since: in this state; working: since the last commit
    State state = State::starting;
    State before = State::starting;  // working: what it did before
    int culprit = -1;                // of the recovery
    bool joined = false;             // the beginning of its work is exact
    int round = 0;
    TimePoint told{};         // the last report
    Duration told_blocked{};  // of this round until then
    Duration blocked{};       // of that, since `since`
    TimePoint waited{};       // waits until then are booked
    Duration start{}, worked{}, worked_blocked{};
    std::map<WaitKey, Duration> fresh, waits;  // fresh: since `since`
    std::map<int, Duration> idle;              // since its end, by the rank that ended last
    std::map<int, Duration> recovery, lost;
    // The work before the last failure, while it may still turn out that members hold its state:
    // from `since` then to the failure.
    struct Doubtful {
      TimePoint from{}, to{};
      Duration blocked{}, told{};  // told: from `from` to the last report
      std::map<WaitKey, Duration> waits;
      int culprit = -1;
    };
    std::optional<Doubtful> doubtful;
    TimePoint lost_from{}, lost_to{};  // the last loss
    Duration earlier{};                // between earlier openings and closings
  };

  static void bank(Book& book, TimePoint when);
  static void leave(Book& book, TimePoint when, State next);
  static void not_yet(Book& book, TimePoint when);
  static void doubt(Book& book, TimePoint when);
  void settle(Book& book) const;
  void join(Book& book, TimePoint when);
  void add_blocked(Book& book, const RankSpans& report);
  void note(const Wait& wait);
  static void fit_waits(Book& book);
  Goodput::Rank rank_at(int rank, Book book, TimePoint now) const;

  const TimePoint begun_;
  TimePoint committed_{};
  TimePoint worked_until_{};  // the last failure, or the beginning of the hang before it
  std::map<int, Book> books_;
  WaitFinder finder_;
  std::map<int, double> slow_links_;  // by rank
  int round_ = 0;
  Duration least_{};
  std::uint64_t dropped_ = 0;
  bool sees_waits_ = false;
  int last_done_ = -1;
  std::optional<TimePoint> finished_;
};

}  // namespace dlaunch
