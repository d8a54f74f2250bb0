#include "elastic/restart_policy.h"

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"

namespace dlaunch {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr double kCommitsPerRestart = 100;
constexpr Duration kSameStep = minutes(1);
constexpr Duration kTransient = seconds(10);
constexpr Duration kGoodRun = minutes(10);
constexpr int kLongestBackoff = 60;  // seconds
constexpr std::size_t kHistory = 64;

bool is_free(FailureKind kind) {
  return kind == FailureKind::evicted || kind == FailureKind::preempted ||
         kind == FailureKind::voluntary;
}

// The kernel sends a process these for its own actions.
bool is_crash(int signal) {
  static constexpr int kCrashes[] = {SIGSEGV, SIGABRT, SIGBUS,  SIGFPE,  SIGILL,
                                     SIGTRAP, SIGSYS,  SIGPIPE, SIGXCPU, SIGXFSZ};
  return std::ranges::find(kCrashes, signal) != std::end(kCrashes);
}

// The program did it, and would do it again: no outside party, host or peer ended it.
bool is_its_own(const Failure& failure) {
  switch (failure.kind) {
    case FailureKind::exit_code:  // a shell reports 128 + N for a command that signal N ended
      return failure.code <= 128 || failure.code > 128 + SIGRTMAX || is_crash(failure.code - 128);
    case FailureKind::signal:
      return is_crash(failure.code);
    case FailureKind::out_of_memory:
    case FailureKind::gave_up:
      return true;
    default:
      return false;
  }
}

// "rounds 1, 2 and 4"
std::string round_words(const std::vector<int>& rounds) {
  if (rounds.size() == 1) return fmt::format("round {}", rounds.front());
  const std::vector<int> first(rounds.begin(), rounds.end() - 1);
  return fmt::format("rounds {} and {}", fmt::join(first, ", "), rounds.back());
}

bool is_sigterm(const Failure& failure) {
  return (failure.kind == FailureKind::signal && failure.code == SIGTERM) ||
         (failure.kind == FailureKind::exit_code && failure.code == 128 + SIGTERM);
}

// "1h", "90s": as on the command line.
std::string short_duration(Duration duration) {
  using std::chrono::hours;
  if (duration % hours(1) == Duration::zero()) return fmt::format("{}h", duration / hours(1));
  if (duration % minutes(1) == Duration::zero()) return fmt::format("{}m", duration / minutes(1));
  return fmt::format("{}s", to_seconds(duration));
}

RestartDecision stop(StopReason reason, std::string why) {
  return {.restart = false, .delay = {}, .reason = reason, .why = std::move(why)};
}

RestartDecision restart(Duration delay, std::string why) {
  return {.restart = true, .delay = delay, .reason = {}, .why = std::move(why)};
}

// The share that one of several nodes or slots may take.
int share_of(int restarts, int part) { return std::min(restarts, std::max(2, restarts / part)); }

}  // namespace

Result<RestartLimit> parse_restart_limit(std::string_view text, std::string_view name) {
  const auto slash = text.find('/');
  const auto restarts = parse_int(text.substr(0, slash), 0, 1'000'000, name);
  if (!restarts) return restarts.error();
  if (slash == std::string_view::npos) return RestartLimit{*restarts, std::nullopt};
  const auto window = parse_duration(text.substr(slash + 1));
  if (!window) {
    return Error{.code = Errc::usage, .what = fmt::format("{}: {}", name, window.error().what)};
  }
  if (*window == Duration::zero()) {
    return Error{.code = Errc::usage,
                 .what = fmt::format("{}: the time in '{}' must not be 0", name, text)};
  }
  return RestartLimit{*restarts, *window};
}

std::string format_restart_limit(const RestartLimit& limit) {
  if (!limit.window) return std::to_string(limit.restarts);
  return fmt::format("{}/{}", limit.restarts, short_duration(*limit.window));
}

Result<int> parse_same_failures(std::string_view text, std::string_view name) {
  if (text == "off") return 0;
  auto limit = parse_int(text, 2, 1'000'000, name);
  if (!limit) return usage_error(limit.error().what + ", or off");
  return limit;
}

std::string_view option_of(StopReason reason) {
  switch (reason) {
    case StopReason::exit_code:
      return "--no-restart-codes";
    case StopReason::same_failure:
      return "--same-failure-limit";
    case StopReason::job_budget:
    case StopReason::node_budget:
    case StopReason::slot_budget:
      break;
  }
  return "--max-restarts";
}

RestartPolicy::RestartPolicy(RestartPolicyConfig config)
    : config_(std::move(config)), random_(config_.seed) {}

RestartDecision RestartPolicy::failed(TimePoint now, const Failure& failure) {
  note_progress(now, failure.version);
  if (is_free(failure.kind)) return restart({}, "not charged: it was stopped from outside");
  if (const auto refusal = forbidden(now, failure)) return *refusal;
  remember(now, failure);
  const bool by_share = !decision_.restart && (decision_.reason == StopReason::node_budget ||
                                               decision_.reason == StopReason::slot_budget);
  if (round_ == failure.round && (failure.dispensable || !by_share)) {
    decision_.delay = std::max(Duration::zero(), restart_at_ - now);
    return decision_;
  }
  round_ = failure.round;
  decision_ = grant(now, failure);
  restart_at_ = now + decision_.delay;
  return decision_;
}

std::optional<RestartDecision> RestartPolicy::failed_too(TimePoint now, const Failure& failure) {
  if (is_free(failure.kind)) return std::nullopt;
  auto refusal = forbidden(now, failure);
  if (!refusal) remember(now, failure);
  return refusal;
}

std::optional<RestartDecision> RestartPolicy::forbidden(TimePoint now,
                                                        const Failure& failure) const {
  if (failure.kind == FailureKind::exit_code && config_.final_exit_codes.contains(failure.code)) {
    return stop(StopReason::exit_code,
                fmt::format("exit code {} is one of --no-restart-codes", failure.code));
  }
  std::vector<int> earlier = rounds_like(now, failure);
  const auto enough = static_cast<std::size_t>(std::max(config_.same_failures, 1) - 1);
  if (enough == 0 || earlier.size() < enough) return std::nullopt;
  earlier.resize(enough);
  const std::string place = failure.version == 0
                                ? "within a minute of the start"
                                : fmt::format("within a minute after commit {}", failure.version);
  return stop(StopReason::same_failure,
              fmt::format("the same failure as in {}, also {}: it would come again "
                          "(--same-failure-limit {}; with off the job goes on)",
                          round_words(earlier), place, config_.same_failures));
}

void RestartPolicy::note_progress(TimePoint now, std::uint64_t version) {
  const bool long_run = round_ && now - restart_at_ >= kGoodRun;
  if (version > version_ || long_run) streak_ = 0;
  version_ = std::max(version_, version);
}

// A first-hand failure explains second-hand ones: a worker's failure those of its round, a host's
// those of the last judged round.
void RestartPolicy::remember(TimePoint now, const Failure& failure) {
  const auto explained = failure.slot < 0 ? round_ : failure.round;
  std::erase_if(history_, [&](const Seen& seen) {
    return !failure.second_hand && seen.failure.second_hand && seen.failure.round == explained;
  });
  if (failure.signature == 0 || !is_its_own(failure) || failure.after >= kSameStep) return;
  const bool known = std::ranges::any_of(history_, [&](const Seen& seen) {
    return seen.failure.round == failure.round && seen.failure.exact == failure.exact &&
           seen.failure.signature == failure.signature;
  });
  if (known) return;  // of another rank
  history_.push_back({failure, now});
  if (history_.size() > kHistory) history_.pop_front();
}

// The earlier rounds that failed in the same way; none if it is too early to judge.
std::vector<int> RestartPolicy::rounds_like(TimePoint now, const Failure& failure) const {
  std::vector<int> rounds;
  if (failure.signature == 0 || !is_its_own(failure) || failure.after >= kSameStep) return rounds;
  TimePoint first = now;
  for (const auto& [earlier, at] : history_) {
    if (earlier.signature != failure.signature || earlier.version != failure.version) continue;
    if (earlier.round == failure.round) continue;
    if (failure.version == 0 && earlier.exact != failure.exact) continue;
    if (std::ranges::find(rounds, earlier.round) != rounds.end()) continue;
    rounds.push_back(earlier.round);
    first = std::min(first, at);
  }
  if (failure.version == 0 && now - first < kTransient) rounds.clear();
  return rounds;
}

RestartDecision RestartPolicy::grant(TimePoint now, const Failure& failure) {
  const auto charged = accounts(failure);
  const auto asked = failure.dispensable ? charged : std::vector<Account>{account_of_job()};
  if (auto refusal = overdrawn(now, asked)) return *refusal;
  charge(now, charged);
  for_sigterm_ = is_sigterm(failure);
  ++streak_;
  return granted(backoff());
}

// Its members have waited, or could not: they can meet in the next round at once.
RestartDecision RestartPolicy::given_up(TimePoint now, const Failure& failure) {
  note_progress(now, failure.version);
  if (round_ == failure.round) return decision_;
  round_ = failure.round;
  restart_at_ = now;
  if (const auto refusal = forbidden(now, failure)) return decision_ = *refusal;
  remember(now, failure);
  const std::vector<Account> charged = {account_of_job()};
  if (auto refusal = overdrawn(now, charged)) return decision_ = *refusal;
  charge(now, charged);
  for_sigterm_ = false;
  return decision_ = granted(Duration::zero());
}

void RestartPolicy::charge(TimePoint now, const std::vector<Account>& accounts) {
  for (const Account& account : accounts) {
    Bucket bucket = refilled(*account.buckets, account.key, account.capacity, now);
    bucket.tokens = std::max(0.0, bucket.tokens - 1);
    (*account.buckets)[account.key] = bucket;
  }
  ++used_;
}

RestartDecision RestartPolicy::granted(Duration delay) const {
  const std::string when = delay == Duration::zero() ? "at once" : "in " + format_duration(delay);
  return restart(delay, fmt::format("restart {} (--max-restarts {}) {}", used_,
                                    format_restart_limit(config_.limit), when));
}

std::vector<RestartPolicy::Account> RestartPolicy::accounts(const Failure& failure) {
  const int restarts = config_.limit.restarts;
  std::vector<Account> all = {account_of_job()};
  if (!config_.limit.window) return all;
  if (config_.nodes > 1) {
    all.push_back({&nodes_, failure.node, share_of(restarts, 2), StopReason::node_budget});
  }
  if (config_.slots > 1 && failure.slot >= 0) {
    all.push_back({&slots_, failure.slot, share_of(restarts, 4), StopReason::slot_budget});
  }
  return all;
}

std::optional<RestartDecision> RestartPolicy::overdrawn(TimePoint now,
                                                        const std::vector<Account>& accounts) {
  const RestartLimit& limit = config_.limit;
  for (const Account& account : accounts) {
    const double tokens = refilled(*account.buckets, account.key, account.capacity, now).tokens;
    if (tokens >= 1 - 1e-9) continue;
    if (limit.restarts == 0)
      return stop(account.reason, "no restarts are allowed (--max-restarts)");
    if (!limit.window) {
      return stop(account.reason,
                  limit.restarts == 1
                      ? "the only restart (--max-restarts 1) is used"
                      : fmt::format("all {} restarts (--max-restarts) are used", limit.restarts));
    }
    const auto wait = Duration(static_cast<std::int64_t>(
        std::ceil((1 - tokens) / account.capacity * static_cast<double>(limit.window->count()))));
    const std::string whose = account.reason == StopReason::job_budget ? "the budget"
                              : account.reason == StopReason::node_budget
                                  ? fmt::format("node {}'s share", account.key)
                                  : fmt::format("slot {}'s share", account.key);
    return stop(account.reason,
                fmt::format("{} of {} restarts within {} (--max-restarts {}) is used up; the next "
                            "comes in {}",
                            whose, account.capacity, short_duration(*limit.window),
                            format_restart_limit(limit), format_duration(wait)));
  }
  return std::nullopt;
}

RestartPolicy::Bucket RestartPolicy::refilled(const std::map<int, Bucket>& buckets, int key,
                                              int capacity, TimePoint now) const {
  const auto it = buckets.find(key);
  if (it == buckets.end()) return {static_cast<double>(capacity), now, version_};
  Bucket bucket = it->second;
  if (!config_.limit.window) return bucket;
  const double windows = to_seconds(now - bucket.at) / to_seconds(*config_.limit.window);
  const double commits = static_cast<double>(version_ - bucket.version);
  bucket.tokens =
      std::min<double>(capacity, bucket.tokens + windows * capacity + commits / kCommitsPerRestart);
  bucket.at = now;
  bucket.version = version_;
  return bucket;
}

// Whole milliseconds, from 0 to the bound of the streak_-th failure.
Duration RestartPolicy::backoff() {
  if (streak_ <= 1) return {};
  const int bound =
      streak_ - 2 < 6 ? std::min(1 << (streak_ - 2), kLongestBackoff) : kLongestBackoff;
  return std::chrono::milliseconds(random_() % (static_cast<std::uint64_t>(bound) * 1000 + 1));
}

void RestartPolicy::go_on(TimePoint now, int used, int left, std::uint64_t version) {
  used_ = used;
  version_ = version;
  job_[0] = {static_cast<double>(std::min(left, config_.limit.restarts)), now, version};
}

int RestartPolicy::left(TimePoint now) const {
  const double tokens = refilled(job_, 0, config_.limit.restarts, now).tokens;
  return static_cast<int>(std::floor(tokens + 1e-9));
}

}  // namespace dlaunch
