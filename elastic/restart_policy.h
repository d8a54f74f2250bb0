// RestartPolicy decides whether a failure leads to a restart, and after what delay, or ends the
// job. Pure: failures in, decisions out.
//
// It gets only causes, never a worker that failed because another one was lost. A restart that
// dlaunch or the scheduler chose itself (evicted, preempted, voluntary) is free: it is immediate,
// whatever the budget, and says nothing about the program. For all other failures, in this order:
// - An exit code in `final_exit_codes` means "do not restart me".
// - `same_failures` rounds that failed in the same way end the job, because the next one would fail
//   like them. The test is by cause and time. The cause must lie in the program: an exit code, a
//   crash, its use of memory, or the words with which all members gave up a round. A signal from
//   outside (SIGKILL, SIGTERM …), a hang, corrupt data and a lost host never count. The
//   signature and the committed version must be equal, and each failure must come within a minute
//   after its round began, or after the last commit, so that it was at the same step. Before any
//   commit the signatures must be equal to the last digit, and 10 s must lie between the first
//   failure and the last: a job that reports no progress has version 0 for ever, and a transient
//   problem had that time to pass. Words about a lost peer count only while no other failure of
//   their round is known, because that peer's failure may be reported later.
// - Failures of one round are one incident: the first is charged, later ones share its decision.
// - The budget. N: so many restarts in all, as torchrun counts. N/WINDOW: a bucket of N that
//   refills evenly by N in each WINDOW (so one WINDOW may see up to 2N) and by one for each 100
//   commits. A node may use half of it (2 at least) and a slot a quarter (2 at least), in buckets
//   that refill at the same share, unless it is the job's only one. These shares decide only if the
//   job can go on without the node or slot (`dispensable`): they never end a job.
//
// If the members give up a round though no rank was lost, the next one begins at once. Only the job
// is charged for it.
//
// The first restart is immediate; those of a crash loop wait a random part ("full jitter", Brooker,
// AWS Architecture Blog, 2015) of 1, 2, 4 … 60 s. A commit ends a crash loop, and so does a run of
// 10 minutes.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace dlaunch {

struct RestartLimit {
  int restarts = 0;
  std::optional<Duration> window;  // none: the whole job
};
// "N" or "N/WINDOW", as in "3" and "10/1h". `name` is what the error calls it.
Result<RestartLimit> parse_restart_limit(std::string_view text, std::string_view name);
// The same form: "3", "10/1h".
std::string format_restart_limit(const RestartLimit& limit);
// "N", at least 2, or "off", which is 0.
Result<int> parse_same_failures(std::string_view text, std::string_view name);

struct RestartPolicyConfig {
  RestartLimit limit;
  int nodes = 1;
  int slots = 1;
  int same_failures = 2;  // so many end the job; 0: no number does
  std::set<int> final_exit_codes;
  std::uint64_t seed = 0;  // of the jitter
};

enum class FailureKind {
  exit_code,
  signal,
  out_of_memory,
  gave_up,  // the members gave up the round, though no rank was lost
  lost,
  hung,
  evicted,
  preempted,
  voluntary,
  corrupt  // the ranks had different results, and perhaps its own were wrong (--verify)
};

struct Failure {
  int round = 0;
  int slot = -1;  // -1: a whole node
  int node = 0;
  FailureKind kind = FailureKind::exit_code;
  int code = 0;  // exit code or signal
  // Hash of the failure's appearance: status and the place in the program (message, innermost
  // frames), without rank, slot, addresses or times. 0: unknown; the status alone is not enough.
  std::uint64_t signature = 0;
  std::uint64_t exact = 0;    // the same, including all numbers
  bool second_hand = false;   // it names a lost peer, and may only follow from that peer's failure
  std::uint64_t version = 0;  // committed steps known when it failed; 0: none
  // Since the worker's start, the round's beginning or the last commit: the shortest.
  Duration after{};
  bool dispensable = false;  // the job can go on without the slot or node
};

enum class StopReason { exit_code, same_failure, job_budget, node_budget, slot_budget };

// The option that changes this limit.
std::string_view option_of(StopReason reason);

struct RestartDecision {
  bool restart = false;
  Duration delay{};     // restart: how long to wait
  StopReason reason{};  // if not restart
  std::string why;      // in words, in both cases
};

class RestartPolicy {
 public:
  explicit RestartPolicy(RestartPolicyConfig config);

  RestartDecision failed(TimePoint now, const Failure& failure);
  // For a worker that ended by itself while it was to be stopped because of another failure: the
  // refusal if it forbids a restart, by its exit code or because it would fail again. Free.
  std::optional<RestartDecision> failed_too(TimePoint now, const Failure& failure);
  // The members gave up that round, or had different results: only round, kind, signature, exact,
  // version and after are read.
  RestartDecision given_up(TimePoint now, const Failure& failure);
  // Continues an earlier policy, before any failure: `used` restarts were used, and `left` remain
  // for the job; nodes and slots begin with full buckets.
  void go_on(TimePoint now, int used, int left, std::uint64_t version);

  // The restarts that the job's budget allows at once.
  int left(TimePoint now) const;
  // Restarts granted and charged.
  int used() const { return used_; }
  // 1 if the latest of those was for a worker that SIGTERM had ended, else 0: a user who ends a
  // whole job may end one worker first.
  int used_for_sigterm() const { return for_sigterm_ ? 1 : 0; }

 private:
  struct Bucket {
    double tokens = 0;
    TimePoint at{};             // of this fill
    std::uint64_t version = 0;  // commits credited so far
  };
  // A bucket that a failure is charged to, and its capacity.
  struct Account {
    std::map<int, Bucket>* buckets;
    int key;
    int capacity;
    StopReason reason;
  };

  void note_progress(TimePoint now, std::uint64_t version);
  std::optional<RestartDecision> forbidden(TimePoint now, const Failure& failure) const;
  void remember(TimePoint now, const Failure& failure);
  std::vector<int> rounds_like(TimePoint now, const Failure& failure) const;
  Account account_of_job() { return {&job_, 0, config_.limit.restarts, StopReason::job_budget}; }
  std::vector<Account> accounts(const Failure& failure);
  void charge(TimePoint now, const std::vector<Account>& accounts);
  RestartDecision granted(Duration delay) const;
  std::optional<RestartDecision> overdrawn(TimePoint now, const std::vector<Account>& accounts);
  Bucket refilled(const std::map<int, Bucket>& buckets, int key, int capacity, TimePoint now) const;
  RestartDecision grant(TimePoint now, const Failure& failure);
  Duration backoff();

  const RestartPolicyConfig config_;
  std::mt19937_64 random_;
  std::map<int, Bucket> job_, nodes_, slots_;  // by 0, node, slot; absent: full
  struct Seen {
    Failure failure;
    TimePoint at;
  };
  std::deque<Seen> history_;   // the latest with a signature, one for each round and signature
  std::uint64_t version_ = 0;  // the highest committed
  int streak_ = 0;             // charged since progress
  int used_ = 0;
  bool for_sigterm_ = false;  // for the latest
  // About the latest judged round.
  std::optional<int> round_;
  RestartDecision decision_;
  TimePoint restart_at_{};
};

}  // namespace dlaunch
