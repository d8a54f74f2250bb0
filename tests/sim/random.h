// The only source of chance in a run: a seed gives the same run on every machine (splitmix64 by
// Vigna; the standard library's distributions differ from one implementation to the next).
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace dlaunch::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  int between(int least, int most) { return least + below(most - least + 1); }
  bool chance(int percent) { return below(100) < percent; }
  Duration up_to(Duration most) {
    return Duration(next() % static_cast<std::uint64_t>(most.count() + 1));
  }
  template <class T, std::size_t N>
  T one_of(const T (&all)[N]) {
    return all[below(N)];
  }

 private:
  std::uint64_t state_;
};

}  // namespace dlaunch::sim
