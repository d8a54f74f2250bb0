#include "launcher/node/watch/traceback_news.h"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

constexpr Duration kLookAgain = std::chrono::seconds(1);

}  // namespace

std::vector<NodeThrew> TracebackNews::look(TimePoint now, const std::vector<Worker>& workers) {
  std::vector<NodeThrew> news;
  deadline_.reset();
  auto before = std::exchange(known_, {});
  for (const Worker& worker : workers) {
    Known& known = known_[worker.slot];
    const auto it = before.find(worker.slot);
    const bool same = it != before.end() && it->second.pid == worker.pid &&
                      it->second.threw == worker.after.threw;
    known = same ? it->second
                 : Known{.pid = worker.pid, .round = worker.round, .threw = worker.after.threw};
    if (!known.over) judge(now, worker, known, news);
  }
  return news;
}

void TracebackNews::judge(TimePoint now, const Worker& worker, Known& known,
                          std::vector<NodeThrew>& news) {
  NodeThrew told{.slot = worker.slot, .pid = worker.pid, .threw = known.threw};
  if (worker.after.has_gone_on() || worker.round != known.round) {
    known.over = true;
    told.over = true;
    if (known.told) news.push_back(told);
    return;
  }
  const TimePoint due = known.threw + kSuspicious;
  if (now < due) return wake_at(due);
  wake_at(now + kLookAgain);
  if (known.told || worker.waits || !worker.after.stands(now)) return;
  known.told = true;
  news.push_back(told);
}

void TracebackNews::wake_at(TimePoint time) {
  deadline_ = std::min(deadline_.value_or(kNever), time);
}

}  // namespace dlaunch
