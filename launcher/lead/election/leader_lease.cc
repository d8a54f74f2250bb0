#include "launcher/lead/election/leader_lease.h"

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "base/quiet_thread.h"

namespace dlaunch {
namespace {

constexpr Duration kEvery = LeaderElection::kTtl / 4;
// A slow server may take its time. The lease, renewed just before, outlasts this and a renewal.
constexpr Duration kForJournal = LeaderElection::kTtl / 2;
constexpr Duration kLeaving = std::chrono::seconds(1);

}  // namespace

void tell_agent(int to_agent, const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const auto written = ::write(to_agent, text.data(), text.size());
}

// Shared with the thread, which outlives the lease if the back end does not answer.
struct LeaderLease::State {
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

LeaderLease::LeaderLease(std::unique_ptr<LeaderElection> election, int to_agent)
    : state_(std::make_shared<State>()) {
  state_->election = std::move(election);
  state_->to_agent = to_agent;
}

LeaderLease::~LeaderLease() { rest(); }

void LeaderLease::take(const std::string& endpoint,
                       std::function<void(const std::string& why)> lost) {
  state_->endpoint = endpoint;
  state_->lost = std::move(lost);
  auto thread = start_quiet_thread([state = state_] { state->run(); });
  if (!thread) return state_->lost(thread.error().what);
  state_->taken = true;
  thread->detach();
}

Result<std::string> LeaderLease::read_journal() {
  return state_->election->read_journal(steady_now() + LeaderElection::kTtl);
}

void LeaderLease::write(std::string journal, std::function<void()> done) {
  const std::unique_lock lock(state_->mutex);
  if (!state_->entries.empty()) state_->entries.back().journal.clear();
  state_->entries.push_back({std::move(journal), std::move(done)});
  state_->changed.notify_all();
}

void LeaderLease::stop(bool resigns) {
  std::unique_lock lock(state_->mutex);
  if (std::exchange(state_->leaving, true)) return;
  state_->resigns = resigns;
  state_->changed.notify_all();
  if (state_->taken) state_->changed.wait_for(lock, kLeaving, [this] { return state_->left; });
}

// Tries until the back end has it, or another dlaunch leads.
Result<void> LeaderLease::State::announce() {
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

bool LeaderLease::State::resigning() {
  const std::unique_lock lock(mutex);
  return leaving && resigns;
}

// False: the lease should end.
bool LeaderLease::State::pause() {
  std::unique_lock lock(mutex);
  return !changed.wait_for(lock, kEvery, [this] { return leaving; });
}

// Writes once: entries that come meanwhile wait until the lease has been renewed.
Result<void> LeaderLease::State::write_entries() {
  std::string newest;
  std::size_t of_entries = 0;
  {
    const std::unique_lock lock(mutex);
    if (entries.empty() || leaving) return {};
    newest = entries.back().journal;
    of_entries = entries.size();
  }
  auto written = election->write_journal(newest, steady_now() + kForJournal);
  if (!written) return written;
  const std::unique_lock lock(mutex);
  for (; of_entries > 0; --of_entries) {
    if (!leaving) entries.front().done();
    entries.pop_front();
  }
  return {};
}

void LeaderLease::State::run() {
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
