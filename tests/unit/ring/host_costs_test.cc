// The costs of ring/plan/host_costs.h against the programs themselves, in a simulated network.
#include "ring/plan/host_costs.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace dlaunch {
namespace {

constexpr double kMessage = 4e-6, kFrame = 1e-6;  // seconds of a rank's processor

// Ranks with a processor and a line each. A rank spends kMessage on each message that it sends or
// takes, and kFrame on each further frame of one. Its line sends and takes in one frame at a time.
class Network {
 public:
  Network(const Shape& shape, int ranks, const Tuning& tuning, const HostLine& line)
      : line_(line), n_(ranks), arrived_(ranks * ranks), ranks_(ranks) {
    const std::size_t bytes = shape.count * shape.element_bytes;
    for (int r = 0; r < ranks; ++r) {
      Rank& rank = ranks_[r];
      rank.program = make_program(shape, r, ranks, tuning);
      rank.in.resize(bytes);
      rank.out.resize(bytes);
      rank.scratch.resize(rank.program.scratch_bytes);
      rank.run.begin(rank.program, {rank.in.data(), rank.out.data(), rank.scratch.data()},
                     {.dtype = DL_FLOAT32, .op = DL_SUM, .ranks = ranks});
    }
  }

  // Seconds until the last rank is done.
  double run() {
    for (int r = 0; r < n_; ++r) turn(r);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      Rank& to = ranks_[event.to];
      if (!event.is_in) {
        to.takes_at = std::max(to.takes_at, event.time) + event.wire;
        events_.push({to.takes_at, number_++, event.from, event.to, event.wire, event.work, true});
        continue;
      }
      arrived_[event.to * n_ + event.from].push_back(event.work);
      to.clock = std::max(to.clock, event.time);
      turn(event.to);
    }
    double last = 0;
    for (const Rank& rank : ranks_) {
      REQUIRE(rank.run.done());
      last = std::max(last, rank.clock);
    }
    return last;
  }

 private:
  struct Rank {
    Program program;
    ProgramRun run;
    std::vector<std::byte> in, out, scratch;
    double clock = 0;                   // of its processor
    double sends_at = 0, takes_at = 0;  // its line is free in each direction
  };
  // A frame begins to come in at a rank's line, or is in.
  struct Event {
    double time;
    int number, from, to;
    double wire, work;  // seconds of the line, and of the receiver's processor
    bool is_in;
    bool operator>(const Event& other) const {
      return std::pair(time, number) > std::pair(other.time, other.number);
    }
  };

  void turn(int r) {
    Rank& rank = ranks_[r];
    for (bool moved = true; moved;) {
      moved = false;
      for (const int peer : rank.program.peers) {
        moved |= send(r, peer);
        moved |= take(r, peer);
      }
      if (!moved) moved = rank.run.copy_own();
    }
  }

  bool send(int from, int to) {
    Rank& rank = ranks_[from];
    const Step* steps[kMostAtOnce];
    const std::size_t count = rank.run.next_sends(to, steps);
    for (std::size_t i = 0; i < count; ++i) {
      const double wire = static_cast<double>(steps[i]->bytes) / line_.bytes_per_second;
      const double work = i == 0 ? kMessage : kFrame;
      rank.clock += work;
      rank.sends_at = std::max(rank.sends_at, rank.clock) + wire;
      events_.push({rank.sends_at - wire + line_.latency, number_++, from, to, wire, work, false});
      rank.run.sent(to);
    }
    return count > 0;
  }

  bool take(int to, int from) {
    Rank& rank = ranks_[to];
    auto& waiting = arrived_[to * n_ + from];
    bool moved = false;
    while (!waiting.empty()) {
      const Step* step = rank.run.next_recv(from);
      REQUIRE(step != nullptr);
      if (!rank.run.may_start(*step)) break;
      rank.clock += waiting.front();
      waiting.pop_front();
      rank.run.received(from);
      moved = true;
    }
    return moved;
  }

  const HostLine line_;
  const int n_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::deque<double>> arrived_;  // by receiver and sender: the work of frames
  std::vector<Rank> ranks_;
  int number_ = 0;
};

double simulated(Algorithm algorithm, int ranks, std::size_t bytes, Duration round_trip) {
  Tuning tuning = tuning_between_hosts(round_trip);
  tuning.forced = algorithm;
  const Shape shape{Collective::all_reduce, bytes / 4, 4};
  return Network(shape, ranks, tuning, {to_seconds(round_trip) / 2, kSlowBytesPerSecond}).run();
}

// The algorithms that such a call may take.
std::vector<Algorithm> candidates(int ranks, std::size_t bytes) {
  std::vector<Algorithm> all{Algorithm::star, Algorithm::grid,
                             ranks <= Tuning().direct_ranks ? Algorithm::direct : Algorithm::ring};
  if (ranks > Tuning().tree_above) all.push_back(Algorithm::tree);
  if (bytes * static_cast<std::size_t>(ranks) <= kMostExchanged) all.push_back(Algorithm::doubling);
  return all;
}

void check_costs(int ranks, std::size_t bytes, Duration round_trip) {
  const HostLine line{to_seconds(round_trip) / 2, kSlowBytesPerSecond};
  const Shape shape{Collective::all_reduce, bytes / 4, 4};
  const Algorithm chosen = algorithm_of(shape, ranks, tuning_between_hosts(round_trip));
  const double took = simulated(chosen, ranks, bytes, round_trip);
  for (const Algorithm algorithm : candidates(ranks, bytes)) {
    const double model = all_reduce_seconds(algorithm, ranks, static_cast<double>(bytes), line);
    const double found = simulated(algorithm, ranks, bytes, round_trip);
    INFO(
        fmt::format("{} ranks, {} bytes, {:.0f} us apart: {} {:.0f} us, by the model {:.0f} us; "
                    "chosen {} {:.0f} us",
                    ranks, bytes, line.latency * 1e6, algorithm_name(algorithm), found * 1e6,
                    model * 1e6, algorithm_name(chosen), took * 1e6));
    CHECK(found < 1.5 * model);
    CHECK(found > 0.6 * model);
    CHECK(took < 1.3 * found);
  }
}

TEST_CASE(
    "host costs: the model tells what programs cost in a simulated network, and the choice is "
    "good") {
  using std::chrono::microseconds;
  for (const int ranks : {5, 15, 16, 35, 63, 128}) {
    for (const microseconds round_trip : {microseconds(20), microseconds(200)}) {
      for (const std::size_t bytes : {8, 4 << 10}) check_costs(ranks, bytes, round_trip);
    }
    if (ranks < 50) check_costs(ranks, 64 << 10, microseconds(200));
  }
}

}  // namespace
}  // namespace dlaunch
