// Ranks that report their progress to a HangJudge, and what it does, in words.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "elastic/hang.h"

namespace dlaunch {

inline constexpr HangConfig kHangConfig{.hang_timeout = std::chrono::seconds(60),
                                        .stop_limit = std::chrono::seconds(30)};

// Ranks in the states that a test sets, sampled every 250 ms of simulated time. The log has each
// action of the judge, with its second.
class HangWorld {
 public:
  explicit HangWorld(HangConfig config = kHangConfig) : judge(config) {}

  // Rank `rank` entered collective `seq` of `group`, and is still in it or not.
  void put(int rank, std::uint64_t seq, bool inside, std::uint64_t group = 0) {
    auto& at = samples[{rank, group}];
    at = {.rank = rank,
          .group = group,
          .seq = seq,
          .inside = inside,
          .what = 0,
          .age = {},
          .state = at.state};
    moved[{rank, group}] = now;
  }
  // The rank sends a heartbeat.
  void beat(int rank) {
    if (!samples.contains({rank, 0})) put(rank, 0, false);
    beats[rank] = now;
  }
  // The rank writes output or uses CPU time.
  void act(int rank) {
    if (!samples.contains({rank, 0})) put(rank, 0, false);
    acts[rank] = now;
  }
  // The ranks from `first` to `last` do so again and again for that time.
  void keep_on(void (HangWorld::*what)(int), int first, int last, Duration every, Duration time) {
    for (Duration passed{}; passed < time; passed += every) {
      for (int rank = first; rank <= last; ++rank) (this->*what)(rank);
      run(every);
    }
  }
  void put_all(int ranks, std::uint64_t seq, bool inside) {
    for (int rank = 0; rank < ranks; ++rank) put(rank, seq, inside);
  }
  void set(int rank, ProcessState state) {
    for (auto& [key, sample] : samples) {
      if (key.first == rank) sample.state = state;
    }
  }
  void forget(int rank) {
    std::erase_if(samples, [&](const auto& entry) { return entry.first.first == rank; });
  }
  void run(Duration time) {
    for (const TimePoint end = now + time; now < end;) {
      now += std::chrono::milliseconds(250);
      if (!silent) sample();
    }
  }
  void sample() {
    HangJudge::Samples batch;
    for (auto& [key, sample] : samples) {
      sample.age = now - moved[key] + age_error;
      const auto beat = beats.find(key.first);
      const auto act = acts.find(key.first);
      if (act != acts.end()) sample.quiet = now - act->second + age_error;
      if (beat != beats.end()) sample.beat = now - beat->second + age_error;
      batch.push_back(sample);
    }
    feed(batch);
  }
  void feed(const HangJudge::Event& event) {
    for (const auto& action : judge.step(now, event)) log.push_back(in_words(action));
  }
  std::vector<std::string> take_log() { return std::exchange(log, {}); }

  HangJudge judge;
  TimePoint now{std::chrono::seconds(1000)};
  bool silent = false;
  Duration age_error{};

 private:
  std::string in_words(const HangJudge::Action& action) const {
    const auto second =
        std::chrono::duration<double>(now - TimePoint(std::chrono::seconds(1000))).count();
    if (const auto* warn = std::get_if<HangJudge::Warn>(&action)) {
      return fmt::format("{} warn {}: {}", second, warn->rank, warn->sentence);
    }
    if (const auto* dump = std::get_if<HangJudge::Dump>(&action)) {
      return fmt::format("{} dump {}", second, format_rank_set(dump->ranks));
    }
    if (const auto* check = std::get_if<HangJudge::Check>(&action)) {
      return fmt::format("{} check {}, busy {}: {}", second, format_rank_set(check->quiet),
                         format_rank_set(check->busy), check->sentence);
    }
    const auto& replace = std::get<HangJudge::Replace>(action);
    return fmt::format("{} replace {}: {}", second, format_rank_set(replace.ranks),
                       replace.sentence);
  }

  std::map<std::pair<int, std::uint64_t>, ProgressSample> samples;
  std::map<std::pair<int, std::uint64_t>, TimePoint> moved;
  std::map<int, TimePoint> beats, acts;
  std::vector<std::string> log;
};

using Log = std::vector<std::string>;

// Ranks 0 to 2 wait in all_reduce #17, rank 3 does not come.
inline HangWorld one_missing() {
  HangWorld world;
  world.put_all(4, 16, false);
  for (const int rank : {0, 1, 2}) world.put(rank, 17, true);
  return world;
}

// No action in all the time to come.
inline void check_quiet(HangWorld& world, Duration time) {
  world.run(time);
  CHECK(world.take_log() == Log{});
}

}  // namespace dlaunch
