// The measuring loop of the peers' programs: the same buffers, clock and iterations as
// dlaunch-bench, whichever library does the collective. Prints "bytes median_us" for each size, on
// rank 0. usage: PEER COLLECTIVE BYTES[xQUEUE]...; QUEUE: so many follow each other, as with
// dlaunch-bench --queue.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace peers {

inline double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

// Ops: rank(), barrier(), max(double*, count), and collective(name, x, other, count): what does it
// once, in place in x, which has `count` floats, or from x to `other` where in place is not usual
// (all_to_all); no function if the library has none. Sizes are those of dlaunch-bench: the larger
// one of what a rank gives and gets.
template <class Ops>
int run(Ops& ops, int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  for (int a = 2; a < argc; ++a) {
    char* rest = nullptr;
    const std::size_t bytes = std::strtoull(argv[a], &rest, 10);
    const int queue = *rest == 'x' ? std::max(1, std::atoi(rest + 1)) : 1;
    std::vector<float> x(std::max<std::size_t>(1, bytes / 4));
    std::vector<float> other(name == "all_to_all" ? x.size() : 0);
    const std::function<void()> collective = ops.collective(name, x.data(), other.data(), x.size());
    if (!collective) {
      std::fprintf(stderr, "no such collective here: %s\n", name.c_str());
      return 64;
    }
    auto timed = [&] {
      ops.barrier();
      const double started = now_us();
      for (int i = 0; i < queue; ++i) collective();
      return (now_us() - started) / queue;
    };
    for (int i = 0; i < 5; ++i) timed();
    double estimate = timed();
    ops.max(&estimate, 1);
    std::vector<double> times(static_cast<std::size_t>(
        std::clamp(static_cast<int>(0.25e6 / (estimate * queue)), 5, 2000)));
    for (double& t : times) t = timed();
    ops.max(times.data(), times.size());
    std::sort(times.begin(), times.end());
    if (ops.rank() == 0) std::printf("%zu %.3f\n", bytes, times[times.size() / 2]);
  }
  return 0;
}

}  // namespace peers
