// LeaderLease: the journals that are written if they come faster than a write takes.
#include "launcher/lead/election/leader_lease.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// What the lease's thread and the test share.
struct Log {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;  // the disk answers
  std::vector<std::string> written;
  std::vector<int> done;
  bool kept = true;         // since the last write
  bool always_kept = true;  // between any two writes

  template <class Condition>
  bool await(Condition holds) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 20s, holds);
  }
};

// A disk that does not answer for a while, and once with an error.
class SlowElection final : public LeaderElection {
 public:
  explicit SlowElection(Log& log) : log_(log) {}
  Result<std::optional<Leader>> find(TimePoint) override { return std::optional<Leader>(); }
  void wait_change(TimePoint) override {}
  Result<bool> campaign(TimePoint) override { return true; }
  Result<void> announce(const std::string&, TimePoint) override { return {}; }
  Result<void> keep(TimePoint) override {
    const std::unique_lock lock(log_.mutex);
    log_.kept = true;
    return {};
  }
  Result<void> write_journal(const std::string& journal, TimePoint) override {
    std::unique_lock lock(log_.mutex);
    log_.changed.wait_for(lock, 20s, [this] { return log_.open; });
    log_.written.push_back(journal);
    log_.always_kept = std::exchange(log_.kept, false) && log_.always_kept;
    log_.changed.notify_all();
    if (log_.written.size() == 2) return Error{.what = "no answer"};
    return {};
  }
  Result<std::string> read_journal(TimePoint) override { return std::string(); }
  void resign(TimePoint) override {}

 private:
  Log& log_;
};

}  // namespace

TEST_CASE("only the newest of the waiting journals is written") {
  Log log;
  {
    LeaderLease lease(std::make_unique<SlowElection>(log), -1);
    lease.take("here:1", [](const std::string&) {});
    constexpr int kJournals = 100;
    for (int number = 1; number <= kJournals; ++number) {
      lease.write("journal " + std::to_string(number), [&log, number] {
        const std::unique_lock lock(log.mutex);
        log.done.push_back(number);
        log.changed.notify_all();
      });
    }
    {
      const std::unique_lock lock(log.mutex);
      log.open = true;
      log.changed.notify_all();
    }
    CHECK(log.await([&] { return log.done.size() == kJournals; }));
  }
  const std::unique_lock lock(log.mutex);
  // One that was being written, and the newest of the others, twice.
  CHECK(log.written.size() <= 3);
  CHECK(log.always_kept);
  CHECK(log.written.back() == "journal 100");
  for (std::size_t i = 0; i < log.done.size(); ++i) CHECK(log.done[i] == static_cast<int>(i) + 1);
}
