// The measuring loop of the peers' programs: the same buffers, clock and iterations as
// dlaunch-bench, whichever library does the all_reduce. Prints "bytes median_us" for each size, on
// rank 0.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace peers {

inline double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

// Ops: rank(), barrier(), all_reduce(float*, count) in place, max(double*, count).
template <class Ops>
int run(Ops& ops, int argc, char** argv) {
  for (int a = 1; a < argc; ++a) {
    const std::size_t bytes = std::strtoull(argv[a], nullptr, 10);
    std::vector<float> x(std::max<std::size_t>(1, bytes / 4));
    auto timed = [&] {
      ops.barrier();
      const double started = now_us();
      ops.all_reduce(x.data(), x.size());
      return now_us() - started;
    };
    for (int i = 0; i < 5; ++i) timed();
    double estimate = timed();
    ops.max(&estimate, 1);
    std::vector<double> times(
        static_cast<std::size_t>(std::clamp(static_cast<int>(0.25e6 / estimate), 5, 2000)));
    for (double& t : times) t = timed();
    ops.max(times.data(), times.size());
    std::sort(times.begin(), times.end());
    if (ops.rank() == 0) std::printf("%zu %.3f\n", x.size() * 4, times[times.size() / 2]);
  }
  return 0;
}

}  // namespace peers
