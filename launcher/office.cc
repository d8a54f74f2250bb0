#include "launcher/office.h"

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace dlaunch {
namespace {

constexpr Duration kEvery = LeaderElection::kTtl / 4;
constexpr Duration kLeaving = std::chrono::seconds(1);

}  // namespace

void tell_agent(int to_agent, const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const auto written = ::write(to_agent, text.data(), text.size());
}

// Shared with the thread, which outlives the office where the back end does not answer.
struct Office::Desk {
  std::unique_ptr<LeaderElection> election;
  int to_agent = -1;
  std::string endpoint;
  std::function<void(const std::string&)> lost;
  std::mutex mutex;
  std::condition_variable changed;
  struct Entry {
    std::string journal;
    std::function<void()> done;
  };
  std::deque<Entry> entries;
  bool taken = false, leaving = false, resigns = false, left = false;

  void run();
  Result<void> announce();
  Result<void> write_entries();
  bool pause();
  bool resigning();
};

Office::Office(std::unique_ptr<LeaderElection> election, int to_agent)
    : desk_(std::make_shared<Desk>()) {
  desk_->election = std::move(election);
  desk_->to_agent = to_agent;
}

Office::~Office() { rest(); }

void Office::take(const std::string& endpoint, std::function<void(const std::string& why)> lost) {
  desk_->endpoint = endpoint;
  desk_->lost = std::move(lost);
  desk_->taken = true;
  std::thread([desk = desk_] { desk->run(); }).detach();
}

Result<std::string> Office::read_journal() {
  return desk_->election->read_journal(steady_now() + LeaderElection::kTtl);
}

void Office::write(std::string journal, std::function<void()> done) {
  const std::unique_lock lock(desk_->mutex);
  if (!desk_->entries.empty()) desk_->entries.back().journal.clear();
  desk_->entries.push_back({std::move(journal), std::move(done)});
  desk_->changed.notify_all();
}

void Office::stop(bool resigns) {
  std::unique_lock lock(desk_->mutex);
  if (std::exchange(desk_->leaving, true)) return;
  desk_->resigns = resigns;
  desk_->changed.notify_all();
  if (desk_->taken) desk_->changed.wait_for(lock, kLeaving, [this] { return desk_->left; });
}

// Until the back end has it, or somebody else leads.
Result<void> Office::Desk::announce() {
  while (true) {
    auto done = election->announce(endpoint, steady_now() + kEvery);
    if (done) {
      const auto leader = election->find(steady_now() + kEvery);
      const auto term = leader && *leader ? (*leader)->term : 0;
      tell_agent(to_agent, fmt::format("leading {} {}", term, endpoint));
    }
    if (done || done.error().code == Errc::aborted) return done;
    if (!pause()) return done;
  }
}

bool Office::Desk::resigning() {
  const std::unique_lock lock(mutex);
  return leaving && resigns;
}

// False: we are to leave.
bool Office::Desk::pause() {
  std::unique_lock lock(mutex);
  return !changed.wait_for(lock, kEvery, [this] { return leaving; });
}

// The first error ends it; what is left is tried again.
Result<void> Office::Desk::write_entries() {
  while (true) {
    std::string newest;
    std::size_t of_entries = 0;
    {
      const std::unique_lock lock(mutex);
      if (entries.empty() || leaving) return {};
      newest = entries.back().journal;
      of_entries = entries.size();
    }
    auto written = election->write_journal(newest, steady_now() + kEvery);
    if (!written) return written;
    const std::unique_lock lock(mutex);
    for (; of_entries > 0; --of_entries) {
      if (!leaving) entries.front().done();
      entries.pop_front();
    }
  }
}

void Office::Desk::run() {
  auto held = announce();
  bool stays = true;
  while (stays && (held || held.error().code != Errc::aborted)) {
    {
      std::unique_lock lock(mutex);
      changed.wait_for(lock, kEvery, [this] { return leaving || !entries.empty(); });
      if (leaving) break;
    }
    const auto written = write_entries();
    held = election->keep(steady_now() + LeaderElection::kTtl);
    if (written) continue;
    if (written.error().code == Errc::aborted) held = written;
    stays = pause();
  }
  const bool over = !held && held.error().code == Errc::aborted;
  if (!over && resigning()) election->resign(steady_now() + kLeaving);
  const std::unique_lock lock(mutex);
  left = true;
  changed.notify_all();
  if (over && !leaving) lost(held.error().what);
}

}  // namespace dlaunch
