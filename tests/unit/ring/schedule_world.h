// Runs the programs of all ranks of a collective within one thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "ring/plan/schedule.h"

namespace dlaunch {

// All ranks of one collective on arrays instead of sockets. Each directed link holds one frame, the
// least any socket can, so that a schedule that counts on buffers stands still here.
class Exchange {
 public:
  using Values = std::vector<float>;

  Exchange(const Shape& shape, int ranks, const Tuning& tuning, bool in_place)
      : shape_(shape), ranks_(ranks), links_(ranks * ranks), members_(ranks) {
    const std::size_t count = shape.count;
    const bool scatter = shape.collective == Collective::reduce_scatter;
    const bool gather = shape.collective == Collective::all_gather;
    for (int r = 0; r < ranks; ++r) {
      Member& m = members_[r];
      m.program = make_program(shape, r, ranks, tuning);
      m.in = input(r);
      m.out.assign(out_count(shape, r, ranks), -1.0F);
      m.scratch.resize(m.program.scratch_bytes);
      std::byte* in = bytes_of(m.in);
      std::byte* out = bytes_of(m.out);
      if (in_place && scatter) out = in + r * count * sizeof(float);
      if (in_place && gather) {
        std::copy(m.in.begin(), m.in.end(), m.out.begin() + r * count);
        in = out + r * count * sizeof(float);
      }
      if (in_place && !scatter && !gather) out = in;
      m.result = out;
      m.run.begin(m.program, {.in = in, .out = out, .scratch = m.scratch.data()},
                  {.dtype = DL_FLOAT32, .op = DL_AVG, .ranks = ranks});
    }
  }

  // Sums of these depend on the order in which they are taken.
  Values input(int rank) const {
    Values values(in_count(shape_, rank, ranks_));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float big = (rank * 7 + i) % 3 == 0 ? 1e7F : 1.0F;
      values[i] = big * (0.1F * static_cast<float>(rank + 1) + static_cast<float>(i));
    }
    return values;
  }

  // False if the ranks stand still before all are done. The order of events follows the seed, and
  // so do the slow links, a fourth of all: there something happens only when nothing else can.
  bool execute(unsigned seed) {
    std::vector<int> order(ranks_ * ranks_ * 2);
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i-- > 1;) {
      seed = seed * 1664525 + 1013904223;
      std::swap(order[i], order[(seed >> 8) % (i + 1)]);
    }
    const auto happens = [this](int event) {
      const int from = event / 2 / ranks_, to = event / 2 % ranks_;
      return event % 2 == 0 ? send(from, to) : receive(from, to);
    };
    const auto slow = [seed](int event) {
      return (static_cast<unsigned>(event / 2) * 2654435761U + seed) >> 30 == 0;
    };
    bool moved = true;
    while (moved) {
      moved = false;
      for (const int event : order) moved |= !slow(event) && happens(event);
      for (Member& m : members_) moved |= !moved && m.run.copy_own();
      for (const int event : order) moved |= !moved && slow(event) && happens(event);
    }
    return std::all_of(members_.begin(), members_.end(),
                       [](const Member& m) { return m.run.done(); });
  }

  Values result(int rank, std::size_t count) const {
    Values values(count);
    if (count > 0) std::memcpy(values.data(), members_[rank].result, count * sizeof(float));
    return values;
  }

 private:
  struct Member {
    Program program;
    ProgramRun run;
    Values in, out;
    std::vector<std::byte> scratch;
    std::byte* result = nullptr;
  };
  using Frame = std::vector<std::byte>;

  static std::byte* bytes_of(Values& values) { return reinterpret_cast<std::byte*>(values.data()); }

  bool send(int from, int to) {
    auto& link = links_[from * ranks_ + to];
    const Step* steps[2];
    if (!link.empty() || members_[from].run.next_sends(to, steps) == 0) return false;
    const std::byte* data = members_[from].run.at(steps[0]->location);
    link.emplace_back(steps[0]->bytes);
    if (steps[0]->bytes > 0) std::memcpy(link.back().data(), data, steps[0]->bytes);
    members_[from].run.sent(to);
    return true;
  }

  bool receive(int from, int to) {
    auto& link = links_[from * ranks_ + to];
    if (link.empty()) return false;
    const Step* step = members_[to].run.next_recv(from);
    REQUIRE(step != nullptr);
    REQUIRE(step->bytes == link.front().size());
    if (!members_[to].run.may_start(*step)) return false;
    if (step->bytes > 0) {
      std::memcpy(members_[to].run.at(step->location), link.front().data(), step->bytes);
    }
    link.pop_front();
    members_[to].run.received(from);
    return true;
  }

  Shape shape_;
  int ranks_;
  std::vector<std::deque<Frame>> links_;
  std::vector<Member> members_;
};

}  // namespace dlaunch
