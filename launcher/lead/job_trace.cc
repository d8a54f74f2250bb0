#include "launcher/lead/job_trace.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/signal_name.h"
#include "base/unique_fd.h"
#include "base/write_all.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMostOperations = 2'000'000, kMostMarks = 100'000;
constexpr std::size_t kWriteAtOnce = 1 << 20;

}  // namespace

JobTrace::JobTrace(std::string path, std::string job_id, TimePoint begun) : path_(std::move(path)) {
  trace_.job_id = std::move(job_id);
  trace_.begun = begun;
}

void JobTrace::begin_round(TimePoint now, int round, int size) {
  const auto& rounds = trace_.rounds;
  if (path_.empty() || (!rounds.empty() && rounds.back().number == round)) return;
  if (rounds.size() < kMostMarks) trace_.rounds.push_back({round, size, now});
  slow_links(now, {});
}

void JobTrace::slow_links(TimePoint now, const std::map<int, double>& shares) {
  auto& known = trace_.slow_links;
  if (path_.empty() || shares == (known.empty() ? std::map<int, double>() : known.back().shares)) {
    return;
  }
  known.push_back({now, shares});
  if (known.size() > kMostMarks) known.pop_front();
}

void JobTrace::see(TimePoint now, const JobCore::Event& event, const JobCore& job) {
  if (path_.empty() || trace_.marks.size() >= kMostMarks) return;
  if (const auto* progress = std::get_if<JobCore::Progress>(&event)) {
    trace_.marks.push_back(
        {now, fmt::format("commit {}", progress->version), job.rank_of(progress->slot)});
  } else if (const auto* lost = std::get_if<JobCore::NodeLost>(&event)) {
    trace_.marks.push_back({now, fmt::format("node {} lost", lost->node), -1});
  }
}

void JobTrace::ended(const WorkerEnd& end) {
  if (path_.empty() || end.rank < 0 || trace_.marks.size() >= kMostMarks) return;
  const std::string how = end.signal != 0 ? "killed by " + describe_signal(end.signal)
                                          : fmt::format("exit code {}", end.exit_code);
  trace_.marks.push_back({end.ended, how, end.rank});
}

void JobTrace::take(int node, const std::string& host, Duration clock_error,
                    const NodeMessage& message) {
  const auto* news = std::get_if<NodeTrace>(&message);
  if (news == nullptr || path_.empty()) return;
  for (const RankSpans& report : news->ranks) {
    if (report.rank < 0) continue;
    Trace::Rank& rank = trace_.ranks[report.rank];
    rank.node = node;
    rank.host = host;
    rank.clock_error = std::max(rank.clock_error, clock_error);
    rank.dropped += report.dropped;
    for (const Span& span : report.spans) rank.operations.push_back({report.round, span});
    auto& texts = rank.texts[report.round];
    texts.insert(texts.end(), report.texts.begin(), report.texts.end());
    while (rank.operations.size() > most_of_a_rank()) {
      rank.operations.pop_front();
      ++rank.dropped;
    }
    if (!rank.operations.empty()) {
      rank.texts.erase(rank.texts.begin(), rank.texts.lower_bound(rank.operations.front().round));
    }
  }
}

std::size_t JobTrace::most_of_a_rank() const {
  return kMostOperations / std::max<std::size_t>(trace_.ranks.size(), 1);
}

void JobTrace::write() {
  if (path_.empty()) return;
  const std::string path = std::exchange(path_, "");
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  int err = file ? 0 : errno;
  std::string text;
  const auto flush = [&] {
    if (err == 0) err = write_all(file.get(), text).os_errno;
    text.clear();
  };
  write_trace(trace_, [&](std::string_view piece) {
    text += piece;
    if (text.size() >= kWriteAtOnce) flush();
  });
  flush();
  if (err != 0) log_warn("{}", errno_error("write --trace " + path, err).what);
}

}  // namespace dlaunch
