// A thousand runs of the same calls on one plane, whose results must not differ by a bit.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "ring/call/plane.h"
#include "tests/unit/sanitized.h"

namespace dlaunch {

// What was wrong; empty: nothing. Under a sanitizer a hundred runs. To be called by all ranks of
// the plane, in their own threads.
inline std::string thousand_runs_differ(Plane& plane, int rank) {
  constexpr int kRuns = kSanitized ? 100 : 1000;
  // One shot, and in blocks or slices.
  constexpr std::size_t kCounts[] = {501, 12'007};
  std::uint64_t seq = 0;
  for (const std::size_t count : kCounts) {
    std::vector<float> in(count), out(count), first;
    for (std::size_t i = 0; i < count; ++i) {
      const bool large = i % 3 == static_cast<std::size_t>(rank) % 3;
      in[i] = (large ? 1e7F : 0.1F) * static_cast<float>(i + 1);
    }
    for (int run = 0; run < kRuns; ++run) {
      std::fill(out.begin(), out.end(), -1.0F);
      const auto done = plane.run({.collective = Collective::all_reduce,
                                   .in = in.data(),
                                   .out = out.data(),
                                   .count = count,
                                   .dtype = DL_FLOAT32,
                                   .op = DL_SUM,
                                   .seq = ++seq,
                                   .deadline = steady_now() + std::chrono::seconds(60)});
      if (!done) return done.error().what;
      if (run == 0) first = out;
      if (std::memcmp(out.data(), first.data(), count * sizeof(float)) != 0) {
        return fmt::format("run {} of {} elements differs from the first", run, count);
      }
    }
  }
  return "";
}

}  // namespace dlaunch
