#include "launcher/node/watch/give_up_news.h"

#include "launcher/wire/complaint.h"

namespace dlaunch {
namespace {

constexpr Duration kPrinting = std::chrono::seconds(1), kInterval = std::chrono::milliseconds(50);

}  // namespace

std::vector<NodeGaveUp> GiveUpNews::look(TimePoint now, const std::vector<Worker>& workers) {
  std::vector<NodeGaveUp> news;
  deadline_.reset();
  for (const Worker& worker : workers) {
    if (const auto told = told_.find(worker.slot);
        told != told_.end() && told->second == worker.round) {
      continue;
    }
    if (gave_up_in(worker.last)) {
      told_[worker.slot] = worker.round;
      news.push_back({worker.slot});
    } else if (now < worker.last.begun + kPrinting) {
      deadline_ = now + kInterval;
    }
  }
  return news;
}

}  // namespace dlaunch
