// RestartPolicy decides whether a failure is answered by a restart, and after what delay, or ends
// the job. Pure: it is told of failures and answers.
//
// Only causes are fed in, never a worker that failed because another one was lost. What dlaunch or
// the scheduler chose to do itself (evicted, preempted, voluntary) is free: it is restarted at
// once, whatever the budget says, and proves nothing. Of all else, in this order:
// - An exit code in `final_exit_codes` means "do not restart me".
// - `same_failures` rounds that failed in the same way end the job: the next one would fail like
//   them. That is judged by cause and time. The cause has to lie in the program: an exit code, a
//   crash, its use of memory, or words with which all members gave up a round. A signal from
//   outside (SIGKILL, SIGTERM …), a hang and a lost host never count. The signature and the
//   committed version have to be equal, and each failure came within a minute after its round
//   began, or after the last commit, so that it was at the same step. Before any commit the
//   signatures are equal to the last digit, and 10 s lie between the first failure and the last: a
//   job that reports no progress has version 0 for ever, and what is transient had that time to
//   pass. Words about a lost peer count only while no other failure of their round is known, for
//   that peer may be heard of later.
// - Failures of one round are one incident: the first is charged, later ones share its decision.
// - The budget. N: so many restarts in all, as torchrun counts. N/WINDOW: a bucket of N that
//   refills evenly by N in each WINDOW (so one WINDOW may see up to 2N) and by one for each 100
//   commits. A node may use half of it (2 at least) and a slot a quarter (2 at least), in buckets
//   that refill at the same share, unless it is the job's only one. These shares decide only where
//   the job can go on without the node or slot (`dispensable`): they never end a job.
//
// After a round that its members gave up, though nobody was lost, the next one begins at once. It
// is charged to the job alone.
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
  std::optional<Duration> window;  // none: of the whole job
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
  int same_failures = 2;  // that end the job; 0: any number of them is answered
  std::set<int> final_exit_codes;
  std::uint64_t seed = 0;  // of the jitter
};

enum class FailureKind {
  exit_code,
  signal,
  out_of_memory,
  gave_up,  // the round, though nobody was lost
  lost,
  hung,
  evicted,
  preempted,
  voluntary
};

struct Failure {
  int round = 0;
  int slot = -1;  // -1: a whole node
  int node = 0;
  FailureKind kind = FailureKind::exit_code;
  int code = 0;  // exit code or signal
  // Hash of what the failure looked like: status and the place in the program (message, innermost
  // frames), without rank, slot, addresses or times. 0: unknown; the status alone is not enough.
  std::uint64_t signature = 0;
  std::uint64_t exact = 0;    // the same with all numbers in it
  bool second_hand = false;   // it is of a lost peer, and perhaps only follows from that one's
  std::uint64_t version = 0;  // committed steps known when it failed; 0: none
  // Since the worker was started, since its round began or since the last commit: the shortest.
  Duration after{};
  bool dispensable = false;  // the job can go on without the slot, or the node
};

enum class StopReason { exit_code, same_failure, job_budget, node_budget, slot_budget };

// The option with which the user changes that.
std::string_view option_of(StopReason reason);

struct RestartDecision {
  bool restart = false;
  Duration delay{};     // restart: how long to wait
  StopReason reason{};  // not restart
  std::string why;      // in words, for both
};

class RestartPolicy {
 public:
  explicit RestartPolicy(RestartPolicyConfig config);

  RestartDecision failed(TimePoint now, const Failure& failure);
  // Of what ended by itself while it was to be stopped because of another failure: the refusal
  // where it forbids a restart, by its exit code or because it would come again. Free of charge.
  std::optional<RestartDecision> failed_too(TimePoint now, const Failure& failure);
  // Its members gave up that round: only round, signature, exact, version and after are read.
  RestartDecision given_up(TimePoint now, Failure failure);
  // Goes on for one of an earlier time, before any failure: so many were used, and were left to the
  // job; nodes and slots begin anew.
  void go_on(TimePoint now, int used, int left, std::uint64_t version);

  // Restarts the job's budget would allow at once.
  int left(TimePoint now) const;
  // Restarts granted and charged.
  int used() const { return used_; }
  // Of those the latest, where it was for a worker that SIGTERM had ended, else none: whoever ends
  // a whole job may begin with one of them.
  int used_for_sigterm() const { return for_sigterm_ ? 1 : 0; }

 private:
  struct Bucket {
    double tokens = 0;
    TimePoint at{};             // when it was as full
    std::uint64_t version = 0;  // up to which commits are credited
  };
  // What a failure is charged to: a bucket and how much fits in.
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
  std::map<int, Bucket> job_, nodes_, slots_;  // by 0, node, slot; none: full
  struct Seen {
    Failure failure;
    TimePoint at;
  };
  std::deque<Seen> history_;   // the latest with a signature, one a round of each
  std::uint64_t version_ = 0;  // the highest committed
  int streak_ = 0;             // charged since progress
  int used_ = 0;
  bool for_sigterm_ = false;  // the latest
  // Of the latest round that was judged.
  std::optional<int> round_;
  RestartDecision decision_;
  TimePoint restart_at_{};
};

}  // namespace dlaunch
