#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "base/rank_set.h"
#include "base/signal_name.h"
#include "base/text.h"
#include "base/units.h"
#include "launcher/lead/report/goodput_report.h"
#include "launcher/lead/report/last_words.h"
#include "launcher/lead/report/report.h"
#include "launcher/wire/complaint.h"

namespace dlaunch {
namespace {

// With all other lines, the report stays within a small screen (25 lines).
constexpr std::size_t kShownFailures = 3;

// The report on a shorter job says nothing of its goodput.
constexpr Duration kWorthAccounts = std::chrono::seconds(60);

using Lines = std::vector<std::string>;

bool by_our_signal(const WorkerEnd& worker) {
  return worker.signal != 0 && (worker.signal == worker.signal_we_sent ||
                                (worker.signal_we_sent != 0 && worker.signal == SIGTERM));
}

std::string how_it_ended(const WorkerEnd& worker) {
  if (!worker.hung.empty()) return "it hung, and dlaunch killed it";
  if (worker.by_chaos) return fmt::format("--chaos sent it {}", describe_signal(SIGKILL));
  if (worker.oom_evidence) return "killed by SIGKILL (out of memory)";
  if (worker.signal != 0) {
    return fmt::format("killed by {}{}", describe_signal(worker.signal),
                       worker.core_dumped ? ", core dumped" : "");
  }
  const int signal = worker.exit_code - 128;
  if (signal > 0 && ::sigabbrev_np(signal) != nullptr) {
    return fmt::format("exit code {} (what a shell says of a command killed by {})",
                       worker.exit_code, signal_name(signal));
  }
  return fmt::format("exit code {}", worker.exit_code);
}

std::string who(const JobFacts& facts, const WorkerEnd& worker) {
  std::string program = program_of(facts, worker.rank);
  if (!program.empty()) program = escaped(program) + ", ";
  return fmt::format("rank {} ({}pid {} on host {})", worker.rank, program, worker.pid,
                     worker.host.empty() ? facts.host : worker.host);
}

// -- The cause

// Its last operation, from libdlring's flight record or NCCL's.
void add_last_operation(Lines& out, const WorkerEnd& worker) {
  if (worker.flight.empty()) return;
  const auto& last = worker.flight.back();
  const auto since = [&](TimePoint then) {
    return format_duration(std::max(Duration::zero(), worker.ended - then));
  };
  if (last.state == FlightState::running) {
    out.push_back(fmt::format("  it was in {} for {}", escaped(last.what), since(last.started)));
  } else if (last.state == FlightState::enqueued) {
    out.push_back(
        fmt::format("  it last enqueued {}, {} before", escaped(last.what), since(last.started)));
  } else {
    out.push_back(fmt::format("  its last operation, {}, {} {} before", escaped(last.what),
                              last.state == FlightState::done ? "was done" : "failed",
                              since(last.ended)));
  }
}

void add_evidence(Lines& out, const WorkerEnd& root) {
  if (!root.hung.empty()) out.push_back("  " + escaped(root.hung));
  add_last_operation(out, root);
  if (root.oom_evidence) {
    out.push_back("  out of memory: " + escaped(root.oom_text) +
                  "; give the job more memory or start fewer workers");
  } else if (root.signal == SIGKILL && root.signal_we_sent != SIGKILL && !root.by_chaos) {
    out.push_back(
        "  nothing here sent this SIGKILL: a person, a supervisor, or the kernel for lack of "
        "memory (see dmesg)");
  } else if (by_our_signal(root) && root.hung.empty()) {
    out.push_back(fmt::format("  it was failing already when dlaunch sent it {}",
                              signal_name(root.signal_we_sent)));
  }
}

std::string rank_words(const RankSet& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + format_rank_set(ranks);
}

RankSet ranks_of(const JobFacts& facts, const std::vector<std::size_t>& workers) {
  RankSet ranks;
  for (const auto i : workers) ranks.insert(facts.workers[i].rank);
  return ranks;
}

// About the other end of the connection that the root lost.
void add_other_end(Lines& out, const JobFacts& facts, const Verdict& verdict) {
  const bool left = !verdict.left_before.empty();
  const RankSet ranks = ranks_of(facts, left ? verdict.left_before : verdict.maybe_cause);
  if (ranks.empty()) return;
  std::string who = rank_words(ranks);
  if (left) {
    const auto& last = facts.workers[verdict.left_before.back()];
    who += fmt::format(" had ended with exit code 0, {}{} before",
                       ranks.size() == 1 ? "" : "the last of them ",
                       format_duration(facts.workers[*verdict.root].ended - last.ended));
  } else {
    who = fmt::format("{}{}, still running then, may be the cause",
                      ranks.size() == 1 ? "" : "one of ", who);
  }
  out.push_back("  its error is about a lost connection: " + who);
}

// The innermost frames of a suspect, and where the others were.
void add_stacks(Lines& out, const JobFacts& facts, const Verdict& verdict) {
  constexpr std::size_t kShownFrames = 6, kMaxPlaces = 4;
  std::size_t places = 0;
  for (const StackGroup& group : verdict.groups) {
    const bool suspected = std::ranges::any_of(
        group.ranks, [&](int rank) { return verdict.suspects.ranks.contains(rank); });
    // One that gave up as the root did was on its way out.
    const bool told = std::ranges::any_of(verdict.consequences, [&](std::size_t i) {
      return group.ranks.contains(facts.workers[i].rank);
    });
    if (!group.known || (told && !suspected)) continue;
    if (!suspected && ++places > kMaxPlaces) continue;
    out.push_back("  before any signal: " + escaped(in_words(group)));
    if (!suspected) continue;
    const auto shown = std::min(group.frames.size(), kShownFrames);
    for (std::size_t i = 0; i < shown; ++i) out.push_back("    " + escaped(group.frames[i]));
    if (shown < group.frames.size()) {
      out.push_back(fmt::format("    … {} more", group.frames.size() - shown));
    }
  }
  if (places > kMaxPlaces) {
    out.push_back(
        fmt::format("  before any signal: others, in {} more places", places - kMaxPlaces));
  }
}

void add_suspects(Lines& out, const JobFacts& facts, const Verdict& verdict) {
  const RankSet& ranks = verdict.suspects.ranks;
  if (verdict.suspects.only_one) {
    out.push_back(fmt::format("  suspect: {}, the only one that did not wait for the others",
                              rank_words(ranks)));
  } else if (!ranks.empty()) {
    out.push_back(fmt::format("  perhaps {} kept the others waiting", rank_words(ranks)));
  }
  if (!ranks.empty() && ranks == facts.late_in_nccl) out.push_back("  " + facts.nccl_says);
  add_stacks(out, facts, verdict);
}

// For a job whose end was no failure.
void add_likely_cause(Lines& out, const JobFacts& facts, const Verdict& verdict) {
  if (verdict.likely_cause.empty()) return;
  const auto& worker = facts.workers[verdict.likely_cause.front()];
  const bool is_root = verdict.root == verdict.likely_cause.front();
  out.push_back(fmt::format("  likely cause: {} had printed a traceback {} before and still ran",
                            is_root ? "it" : who(facts, worker),
                            format_duration(worker.silent_since_traceback)));
  if (worker.traceback && !is_root) add_traceback(out, *worker.traceback);
  const std::vector<std::size_t> others(verdict.likely_cause.begin() + 1,
                                        verdict.likely_cause.end());
  if (others.empty()) return;
  out.push_back(fmt::format("  {} had done so, too", rank_words(ranks_of(facts, others))));
}

std::string first_failure(const JobFacts& facts, const Verdict& verdict, const WorkerEnd& root) {
  const std::string ended =
      fmt::format("{} after {}", how_it_ended(root), format_duration(root.ended - root.started));
  if (verdict.left_early >= 0) {
    return fmt::format("rank {} left early with exit code 0; {} still needed it: {}",
                       verdict.left_early, who(facts, root), ended);
  }
  if (verdict.lost_unseen >= 0) {
    return fmt::format("{} lost rank {}, which had not failed here: {}", who(facts, root),
                       verdict.lost_unseen, ended);
  }
  if (verdict.lost_each_other) {
    return fmt::format("{} and rank {} lost each other, though none of them had failed: {}",
                       who(facts, root), root.peer_lost, ended);
  }
  if (root.is_corrupt()) {
    return fmt::format("{} had corrupt data ({}): {}", who(facts, root), escaped(root.corrupt),
                       ended);
  }
  if (!root.corrupt.empty()) {
    return fmt::format("the ranks had different results ({}); {}: {}", escaped(root.corrupt),
                       who(facts, root), ended);
  }
  if (!verdict.gave_up_waiting) return fmt::format("{} failed first: {}", who(facts, root), ended);
  const RankSet& suspects = verdict.suspects.ranks;
  const std::string whom = suspects.empty()            ? "other ranks"
                           : verdict.suspects.only_one ? rank_words(suspects)
                                                       : "others, perhaps " + rank_words(suspects);
  return fmt::format("{} was the first to give up waiting for {}: {}", who(facts, root), whom,
                     ended);
}

std::string lost_host(const JobFacts& facts) {
  const RankSet ranks(facts.lost_ranks.begin(), facts.lost_ranks.end());
  return fmt::format("host {} was lost with {} after {}", facts.lost_host, rank_words(ranks),
                     format_duration(facts.ended - facts.started));
}

std::string headline(const JobFacts& facts, const Verdict& verdict, const WorkerEnd* root) {
  const std::string after = format_duration(facts.ended - facts.started);
  switch (facts.end) {
    case JobEnding::worker_failed:
      if (verdict.lost_host) return lost_host(facts);
      return root != nullptr ? first_failure(facts, verdict, *root) : "a worker failed";
    case JobEnding::given_up:
      if (facts.corrupt) return "the ranks had different results: " + escaped(facts.given_up);
      return fmt::format("the workers gave up a round, though none was lost: {}",
                         escaped(facts.given_up));
    case JobEnding::spawn_failed:
      return fmt::format("rank {} could not be started: {}", facts.failed_rank,
                         escaped(facts.failed_what));
    case JobEnding::setup_failed:
      return escaped(facts.failed_what);
    case JobEnding::interrupted:
      return fmt::format("ended by {} after {}", describe_signal(facts.signal_received), after);
    case JobEnding::timed_out:
      return fmt::format("the job's --timeout passed: stopped after {}", after);
    case JobEnding::succeeded:
      break;
  }
  return "";
}

void add_waits(Lines& out, const JobFacts& facts) {
  for (const auto& wait : facts.waits.value_or(Lines())) {
    out.push_back(fmt::format("  as it stood: {}", wait));
  }
}

// -- The consequences for the others

std::string on_other_host(const WorkerEnd& worker, const WorkerEnd* root) {
  if (root == nullptr || worker.host == root->host || worker.host.empty()) return "";
  return " on host " + worker.host;
}

// How certain "later" is for a worker on another host than the root.
std::string clocks(const Verdict& verdict, std::size_t index, const WorkerEnd& worker,
                   const WorkerEnd* root) {
  if (root == nullptr || worker.host == root->host) return "";
  const Duration error = worker.clock_error + root->clock_error;
  const auto& doubts = verdict.maybe_first;
  const bool doubt = std::ranges::find(doubts, index) != doubts.end();
  return fmt::format("; the clocks of these hosts were compared to within {}{}",
                     format_duration(error), doubt ? ", so this may have been the first" : "");
}

std::string runs(const JobFacts& facts, int rank) {
  const std::string program = program_of(facts, rank);
  return program.empty() ? "" : ", " + escaped(program);
}

void add_later_failures(Lines& out, const JobFacts& facts, const Verdict& verdict,
                        const WorkerEnd* root) {
  const auto& failures = verdict.own_failures;
  for (std::size_t i = 0; i < std::min(failures.size(), kShownFailures); ++i) {
    const auto& worker = facts.workers[failures[i]];
    const auto since = root != nullptr ? root->ended : facts.started;
    const auto gap = worker.ended - since;
    out.push_back(fmt::format(
        "  {} {}: rank {} (pid {}{}): {}{}", format_duration(gap < Duration::zero() ? -gap : gap),
        gap < Duration::zero() ? "before that"
        : root != nullptr      ? "later"
                               : "after the start",
        worker.rank, worker.pid, on_other_host(worker, root) + runs(facts, worker.rank),
        how_it_ended(worker), clocks(verdict, failures[i], worker, root)));
  }
  if (failures.size() > kShownFailures) {
    const std::vector<std::size_t> rest(failures.begin() + kShownFailures, failures.end());
    out.push_back(fmt::format("  {} failed, too", rank_words(ranks_of(facts, rest))));
  }
}

void add_consequences(Lines& out, const JobFacts& facts, const Verdict& verdict) {
  constexpr std::size_t kMaxGroups = 4;
  std::map<int, RankSet> lost;  // by the peer
  RankSet broken, gave_up;
  for (const auto i : verdict.consequences) {
    const auto& worker = facts.workers[i];
    const auto complaint = complaint_of(worker, tells_of_failure(worker, worker.ended));
    auto& others = complaint == Complaint::gave_up_waiting ? gave_up : broken;
    (worker.peer_lost >= 0 ? lost[worker.peer_lost] : others).insert(worker.rank);
  }
  Lines parts;
  for (const auto& [peer, ranks] : lost) {
    if (parts.size() < kMaxGroups) {
      parts.push_back(fmt::format("{} lost rank {} (libdlring)", rank_words(ranks), peer));
    }
  }
  if (lost.size() > kMaxGroups) parts.push_back("further ranks lost other ranks");
  if (!broken.empty()) {
    parts.push_back(rank_words(broken) + " lost a connection (so " +
                    (broken.size() == 1 ? "its" : "their") + " stderr says)");
  }
  if (!gave_up.empty()) {
    parts.push_back(rank_words(gave_up) + " gave up waiting, too (so " +
                    (gave_up.size() == 1 ? "its" : "their") + " stderr says)");
  }
  if (!parts.empty()) out.push_back(fmt::format("  consequences: {}", fmt::join(parts, "; ")));
}

std::string counted_workers(std::size_t count, bool all, bool others) {
  if (count == 1)
    return all ? (others ? "the other worker was" : "the worker was") : "1 worker was";
  const char* which = all ? (others ? "the other " : "all ") : "";
  return fmt::format("{}{} workers were", which, count);
}

// "the other 3 workers were sent SIGTERM; 1 had to be killed after the grace of 10 s"
void add_what_was_done(Lines& out, const JobFacts& facts, const WorkerEnd* root) {
  std::size_t sent = 0, killed = 0;
  bool after_grace = root != nullptr;
  for (const auto& worker : facts.workers) {
    if (worker.signal_we_sent == 0 || &worker == root) continue;
    ++sent;
    if (worker.signal_we_sent != SIGKILL || worker.signal != SIGKILL) continue;
    ++killed;
    after_grace = after_grace && worker.ended - root->ended >= facts.grace;
  }
  sent += facts.still_running.size();
  if (sent == 0) return;
  const int first = facts.end == JobEnding::interrupted ? facts.signal_received : SIGTERM;
  const bool all = sent + (root != nullptr ? 1 : 0) == static_cast<std::size_t>(facts.nproc);
  std::string line =
      fmt::format("  {} sent {}", counted_workers(sent, all, root != nullptr), signal_name(first));
  if (killed > 0) {
    line += fmt::format("; {} had to be killed", killed);
    if (after_grace) line += " after the grace of " + format_duration(facts.grace);
  }
  out.push_back(line);
}

Lines goodput_of(const JobFacts& facts) {
  return facts.goodput ? goodput_lines(*facts.goodput) : Lines();
}

Lines after_success(const JobFacts& facts) {
  if (facts.shows_goodput) return goodput_of(facts);
  const std::string worst =
      facts.goodput && facts.tells_cost ? worst_cost_line(*facts.goodput) : "";
  return worst.empty() ? Lines() : Lines{worst};
}

}  // namespace

std::string program_of(const JobFacts& facts, int rank) {
  const auto at = static_cast<std::size_t>(rank);
  return rank < 0 || at >= facts.programs.size() ? "" : facts.programs[at];
}

std::vector<std::string> render_text(const JobFacts& facts, const Verdict& verdict, bool color,
                                     const ShownLast& shown_last) {
  if (facts.end == JobEnding::succeeded) return after_success(facts);
  const WorkerEnd* root = verdict.root ? &facts.workers[*verdict.root] : nullptr;
  Lines out = {headline(facts, verdict, root)};
  if (color) out[0] = "\x1b[1;31m" + out[0] + "\x1b[0m";
  if (root != nullptr) {
    add_evidence(out, *root);
    const bool by_traceback =
        verdict.by_traceback || root->silent_since_traceback > Duration::zero();
    add_last_words(out, *root, by_traceback, shown_last);
  }
  add_likely_cause(out, facts, verdict);
  if (facts.end == JobEnding::interrupted || facts.end == JobEnding::timed_out)
    add_waits(out, facts);
  add_suspects(out, facts, verdict);
  add_other_end(out, facts, verdict);
  add_later_failures(out, facts, verdict, root);
  add_consequences(out, facts, verdict);
  add_what_was_done(out, facts, root);
  if (!facts.still_running.empty()) {
    const RankSet ranks(facts.still_running.begin(), facts.still_running.end());
    out.push_back(fmt::format("  {} did not die of SIGKILL (an uninterruptible sleep); left behind",
                              rank_words(ranks)));
  }
  const bool judged = facts.end == JobEnding::worker_failed || facts.end == JobEnding::given_up;
  if (judged && !facts.why_no_restart.empty()) {
    out.push_back(fmt::format("  no restart: {}", facts.why_no_restart));
  }
  if (facts.shows_goodput || facts.ended - facts.started >= kWorthAccounts) {
    for (auto& line : goodput_of(facts)) out.push_back(std::move(line));
  }
  return out;
}

}  // namespace dlaunch
