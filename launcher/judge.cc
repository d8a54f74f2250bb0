// Which worker failed first by itself. Certain evidence first: a worker that ended by a signal of
// ours did not fail by itself, nor did one to which libdlring had reported a lost peer. A worker
// whose last words are of a broken connection is a consequence only if some other worker failed by
// itself at about the same time; alone, it is the cause.

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/exit_code.h"
#include "launcher/report.h"

namespace dlaunch {
namespace {

// A peer's death and the complaints about it lie this close together.
constexpr Duration kSameTime = std::chrono::seconds(2);

enum class Kind { fine, stopped, lost_peer, broken_connection, own };

bool failed(const WorkerEnd& worker) { return worker.signal != 0 || worker.exit_code != 0; }

// Ended as one does who is told to: by that signal, or with a code for it (128 + the signal, or 143
// and the like from a shell; Python's SystemExit after SIGINT gives 130 or 1).
bool ended_by_us(const WorkerEnd& worker) { return worker.signal_we_sent != 0; }

bool complains_of_connection(const WorkerEnd& worker) {
  static constexpr const char* kWords[] = {"Connection reset by peer",
                                           "Connection closed by peer",
                                           "Broken pipe",
                                           "Socket closed",
                                           "connection was closed",
                                           "ECONNRESET"};
  // The cause of an exit stands in its last lines.
  const auto& tail = worker.stderr_tail;
  const std::size_t from = tail.size() > 8 ? tail.size() - 8 : 0;
  for (std::size_t i = from; i < tail.size(); ++i) {
    for (const char* word : kWords) {
      if (tail[i].find(word) != std::string::npos) return true;
    }
  }
  return false;
}

Kind kind_of(const WorkerEnd& worker) {
  if (!failed(worker)) return Kind::fine;
  if (ended_by_us(worker)) return Kind::stopped;
  if (worker.peer_lost >= 0 && worker.signal == 0) return Kind::lost_peer;
  if (worker.signal == 0 && complains_of_connection(worker)) return Kind::broken_connection;
  return Kind::own;
}

int code_of(const WorkerEnd& worker) {
  return worker.signal != 0 ? 128 + worker.signal : worker.exit_code;
}

int spawn_exit_code(const JobFacts& facts) {
  if (facts.failed_stage != Stage::exec) return kExitSystem;
  return facts.failed_errno == ENOENT || facts.failed_errno == ENOTDIR ? kExitNotFound
                                                                       : kExitCannotExec;
}

// The earliest of a kind; workers stand in the order in which they ended.
std::optional<std::size_t> first(const std::vector<Kind>& kinds, Kind kind) {
  const auto it = std::find(kinds.begin(), kinds.end(), kind);
  if (it == kinds.end()) return std::nullopt;
  return static_cast<std::size_t>(it - kinds.begin());
}

std::optional<std::size_t> find_root(const JobFacts& facts, const std::vector<Kind>& kinds) {
  const auto own = first(kinds, Kind::own);
  const auto broken = first(kinds, Kind::broken_connection);
  if (own && broken) {
    const auto gap = facts.workers[*own].ended - facts.workers[*broken].ended;
    return gap > kSameTime ? broken : own;
  }
  if (own) return own;
  if (broken) return broken;
  // Everybody lost a peer that did not fail: it left early. The first to complain speaks for all.
  if (const auto lost = first(kinds, Kind::lost_peer)) return lost;
  return std::nullopt;
}

int exit_code(const JobFacts& facts, const std::optional<std::size_t>& root) {
  switch (facts.end) {
    case JobEnd::succeeded:
      return kExitOk;
    case JobEnd::worker_failed:
      return root ? code_of(facts.workers[*root]) : kExitInternal;
    case JobEnd::spawn_failed:
      return spawn_exit_code(facts);
    case JobEnd::interrupted:
      return 128 + facts.signal_received;
    case JobEnd::timed_out:
      return kExitTimeout;
    case JobEnd::setup_failed:
      return kExitCannotCreate;
  }
  return kExitInternal;
}

}  // namespace

Verdict judge(const JobFacts& facts) {
  Verdict verdict;
  std::vector<Kind> kinds;
  for (const auto& worker : facts.workers) kinds.push_back(kind_of(worker));
  if (facts.end == JobEnd::worker_failed) {
    verdict.root = find_root(facts, kinds);
    // Everybody that failed was stopped by us only after somebody else had: so one there must be.
    if (!verdict.root) verdict.root = first(kinds, Kind::stopped);
  }
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (verdict.root == i || kinds[i] == Kind::fine) continue;
    if (kinds[i] == Kind::stopped)
      verdict.stopped.push_back(i);
    else if (kinds[i] == Kind::own)
      verdict.own_failures.push_back(i);
    else
      verdict.consequences.push_back(i);
  }
  verdict.exit_code = exit_code(facts, verdict.root);
  return verdict;
}

}  // namespace dlaunch
