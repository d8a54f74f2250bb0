#include "launcher/office.h"

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace dlaunch {
namespace {

constexpr Duration kEvery = LeaderElection::kTtl / 4;
constexpr Duration kLeaving = std::chrono::seconds(1);

}  // namespace

// Shared with the thread, which outlives the office where the back end does not answer.
struct Office::Desk {
  std::unique_ptr<LeaderElection> election;
  UniqueFd to_agent;
  std::string endpoint;
  std::function<void(const std::string&)> lost;
  std::mutex mutex;
  std::condition_variable changed;
  bool taken = false, leaving = false, left = false;

  void run();
  Result<void> announce();
};

Office::Office(std::unique_ptr<LeaderElection> election, UniqueFd to_agent)
    : desk_(std::make_shared<Desk>()) {
  desk_->election = std::move(election);
  desk_->to_agent = std::move(to_agent);
}

Office::~Office() { leave(); }

void Office::take(const std::string& endpoint, std::function<void(const std::string& why)> lost) {
  desk_->endpoint = endpoint;
  desk_->lost = std::move(lost);
  desk_->taken = true;
  std::thread([desk = desk_] { desk->run(); }).detach();
}

void Office::leave() {
  std::unique_lock lock(desk_->mutex);
  if (std::exchange(desk_->leaving, true)) return;
  if (!desk_->taken) return desk_->election->resign(steady_now() + kLeaving);
  desk_->changed.notify_all();
  desk_->changed.wait_for(lock, kLeaving, [this] { return desk_->left; });
}

// Until the back end has it, or somebody else leads.
Result<void> Office::Desk::announce() {
  while (true) {
    auto done = election->announce(endpoint, steady_now() + kEvery);
    if (done) {
      const auto leader = election->find(steady_now() + kEvery);
      const auto term = leader && *leader ? (*leader)->term : 0;
      const std::string line = fmt::format("leading {} {}\n", term, endpoint);
      [[maybe_unused]] const auto written = ::write(to_agent.get(), line.data(), line.size());
    }
    if (done || done.error().code == Errc::aborted) return done;
    std::unique_lock lock(mutex);
    if (changed.wait_for(lock, kEvery, [this] { return leaving; })) return done;
  }
}

void Office::Desk::run() {
  auto held = announce();
  while (held || held.error().code != Errc::aborted) {
    {
      std::unique_lock lock(mutex);
      if (changed.wait_for(lock, kEvery, [this] { return leaving; })) break;
    }
    held = election->keep(steady_now() + LeaderElection::kTtl);
  }
  const bool over = !held && held.error().code == Errc::aborted;
  if (!over) election->resign(steady_now() + kLeaving);
  const std::unique_lock lock(mutex);
  left = true;
  changed.notify_all();
  if (over && !leaving) lost(held.error().what);
}

}  // namespace dlaunch
