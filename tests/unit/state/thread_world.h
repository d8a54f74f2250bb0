// Threads as the members of an elastic job. A launcher with one mutex forms the rounds, and
// libdlring connects each round in a folder. Members may die at any message.
#pragma once

#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <dlaunch/elastic.hpp>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/log.h"
#include "elastic/state/handle.h"
#include "elastic/state/ring_rounds.h"
#include "tests/unit/temp_folder.h"

namespace dlaunch {

// What the library says while it lives.
class Warnings {
 public:
  Warnings() {
    set_log_sink([this](LogLevel, std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
    });
  }
  ~Warnings() { set_log_sink({}); }
  int count(const std::string& part) const {
    const std::lock_guard lock(mutex_);
    int n = 0;
    for (const auto& line : lines_) n += line.find(part) != std::string::npos;
    return n;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

struct Killed {};  // what a member dies of

// The launcher. A member is known by its slot, and the ranks are the slots in order. The next round
// is formed when all who live have come for it.
class Launcher {
 public:
  struct Seat {
    std::uint64_t round = 0;
    int rank = 0, size = 0;
  };

  // Blocks. over: becomes true when the round that is being joined is to end.
  Seat join(int slot, std::uint64_t version) {
    std::unique_lock lock(mutex_);
    versions[slot] = std::max(versions[slot], version);
    waiting_.insert(slot);
    form();
    changed_.wait(lock, [&] { return seats_.contains(slot) && !waiting_.contains(slot); });
    return seats_[slot];
  }
  void add(int slot) {
    const std::lock_guard lock(mutex_);
    living_.insert(slot);
    end_round();
  }
  // The members are to come for the next one.
  void end_round() {
    over = true;
    over.notify_all();
  }
  void wait_for_round(std::uint64_t round) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return round_ >= round; });
  }
  void remove(int slot) {
    const std::lock_guard lock(mutex_);
    living_.erase(slot);
    form();
  }
  std::string url(std::uint64_t round) {
    const std::string path = fmt::format("{}/round-{}", folder_.path.string(), round);
    std::filesystem::create_directories(path);
    return "file://" + path;
  }

  std::atomic<bool> over = false;
  std::map<int, std::uint64_t> versions;  // the newest that was told, by slot

 private:
  void form() {
    if (waiting_ != living_ || living_.empty()) return;
    ++round_;
    over = false;
    over.notify_all();
    seats_.clear();
    int rank = 0;
    for (const int slot : living_) {
      seats_[slot] = {round_, rank++, static_cast<int>(living_.size())};
    }
    waiting_.clear();
    changed_.notify_all();
  }

  TempFolder folder_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int> living_, waiting_;
  std::map<int, Seat> seats_;
  std::uint64_t round_ = 0;
};

// Where a member is broken: called before each message that it sends, with its number from 1 in
// this round; may change the bytes or throw Killed.
using OnSend = std::function<void(int number, int peer, std::vector<std::byte>& bytes)>;

class ThreadRounds : public RingRounds {
 public:
  ThreadRounds(Launcher& launcher, int slot)
      : RingRounds(nullptr), launcher_(launcher), slot_(slot) {
    joined = enter(0);
  }
  ~ThreadRounds() override { dl_finalize(comm_); }

  dl_comm* comm() const { return comm_; }
  const Launcher::Seat& seat() const { return seat_; }
  std::uint64_t round() const override { return seat_.round; }
  bool over() const override { return launcher_.over; }
  Result<void> rejoin(std::uint64_t version) override {
    dl_finalize(comm_);
    comm_ = nullptr;
    altered_.clear();
    sent_ = broadcasts_ = 0;
    return enter(version);
  }
  Started send(std::span<const std::byte> bytes, int peer) override {
    if (!on_send) return RingRounds::send(bytes, peer);
    altered_.emplace_back(bytes.begin(), bytes.end());
    on_send(++sent_, peer, altered_.back());
    return RingRounds::send(altered_.back(), peer);
  }
  Result<void> broadcast(Places places, int root) override {
    ++broadcasts_;
    if (before_broadcast) before_broadcast(broadcasts_);
    auto done = RingRounds::broadcast(places, root);
    if (done && after_broadcast) after_broadcast(broadcasts_, places);
    return done;
  }
  bool on_gpu(const std::byte* memory) const override { return on_gpus.contains(memory); }
  bool gpu_to_gpu() const override { return has_nccl; }
  void die() {
    dl_abort(comm_);
    throw Killed();
  }

  OnSend on_send;
  // Memory that passes for a GPU's, and broadcasts of this round, by number from 1.
  std::set<const std::byte*> on_gpus;
  bool has_nccl = true;
  std::function<void(int number)> before_broadcast;
  std::function<void(int number, Places places)> after_broadcast;
  Result<void> joined;

 private:
  Result<void> enter(std::uint64_t version) {
    seat_ = launcher_.join(slot_, version);
    dl_options options;
    dl_options_init(&options);
    options.rank = seat_.rank;
    options.size = seat_.size;
    options.init_timeout_s = options.op_timeout_s = 60;
    return result(dl_init(launcher_.url(seat_.round).c_str(), &options, &comm_));
  }

  Launcher& launcher_;
  const int slot_;
  Launcher::Seat seat_;
  std::vector<std::vector<std::byte>> altered_;  // until the round is over
  int sent_ = 0, broadcasts_ = 0;
};

// What a member of a test has at hand.
struct Member {
  int slot;
  ThreadRounds& rounds;
  dl::State& state;

  dl_comm* comm() const { return rounds.comm(); }
  int rank() const { return rounds.rank(); }
  int size() const { return rounds.size(); }
  template <class T>
  void all_reduce(std::vector<T>& x) const {
    const auto code =
        dl_all_reduce(comm(), x.data(), x.data(), x.size(), dl::dtype_of<T>::value, DL_SUM);
    if (code != DL_OK) dl::detail::fail(code, comm());
  }
  // Others may be lost meanwhile.
  void sync_until_done() const {
    try {
      state.sync();
    } catch (const dl::PeerLost&) {
      state.recover();
    }
  }
};
using Body = std::function<void(Member&)>;

// A job of threads. wait() joins them all; errors() has the final error of each.
class Job {
 public:
  explicit Job(StateConfig config = {}) : config_(config) {}
  ~Job() { wait(); }

  // Members of the first round must be added by one call.
  void start(std::vector<int> slots, const Body& body) {
    for (const int slot : slots) launcher.add(slot);
    for (const int slot : slots) {
      const std::lock_guard lock(mutex_);
      threads_.emplace_back([=, this] { run(slot, body); });
    }
  }
  // From within a member that is about to die: a new one takes its slot.
  void replace(int slot, const Body& body) {
    const std::lock_guard lock(mutex_);
    replacements_[slot] = body;
  }
  void wait() {
    for (;;) {
      std::vector<std::thread> threads;
      {
        const std::lock_guard lock(mutex_);
        threads.swap(threads_);
      }
      if (threads.empty()) return;
      for (auto& thread : threads) thread.join();
    }
  }
  // What the members of this slot ended with: "" well, "killed", or the text of an error.
  std::vector<std::string> ends(int slot) {
    wait();
    return ends_[slot];
  }

  Launcher launcher;

 private:
  // An error may be that of all members. A fast one must not abort the call from which a slow one
  // still learns it.
  void wait_for_errors_of_others(const Launcher::Seat& seat) {
    std::unique_lock lock(mutex_);
    ++failed_[seat.round];
    one_failed_.notify_all();
    one_failed_.wait_for(lock, std::chrono::seconds(10),
                         [&] { return failed_[seat.round] >= seat.size; });
  }

  void run(int slot, const Body& body) {
    std::string end;
    {
      auto owned = std::make_unique<ThreadRounds>(launcher, slot);
      auto& rounds = *owned;
      // The state goes first: it holds the rounds.
      dl::State state = dl::State::adopt(new dl_state(std::move(owned), config_));
      Member member{slot, rounds, state};
      try {
        if (!rounds.joined) throw std::runtime_error(rounds.joined.error().what);
        body(member);
      } catch (const Killed&) {
        end = "killed";
      } catch (const std::exception& e) {
        end = e.what();
        wait_for_errors_of_others(rounds.seat());
      }
      if (!end.empty()) dl_abort(rounds.comm());
    }
    const std::lock_guard lock(mutex_);
    ends_[slot].push_back(end);
    if (const auto it = replacements_.find(slot); it != replacements_.end()) {
      threads_.emplace_back([this, slot, next = it->second] { run(slot, next); });
      replacements_.erase(it);
    } else {
      launcher.remove(slot);
    }
  }

  const StateConfig config_;
  std::mutex mutex_;
  std::condition_variable one_failed_;
  std::map<std::uint64_t, int> failed_;  // members that have ended with an error, by round
  std::vector<std::thread> threads_;
  std::map<int, Body> replacements_;
  std::map<int, std::vector<std::string>> ends_;
};

// Holds threads until `n` have come.
class Meeting {
 public:
  explicit Meeting(int n) : left_(n) {}
  void come() {
    std::unique_lock lock(mutex_);
    if (--left_ == 0) changed_.notify_all();
    changed_.wait(lock, [this] { return left_ <= 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_;
};

}  // namespace dlaunch
