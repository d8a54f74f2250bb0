// Failpoints for libdlring_flips.so, a libdlring that LD_PRELOAD puts in the place of the other
// one. FLIP="RANK POINT TIME" flips a bit at that failpoint of data (base/failpoint.h), at that
// time of large data, in the process that dlaunch started as that rank in round 1. "TIME+": from
// then on, at each time, as a broken processor does; also in later rounds.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/failpoint.h"

namespace {

constexpr std::size_t kLeastData = 1000;  // not hashes

struct Flip {
  char point[64] = "";
  long time = 0;  // 0: none
  bool goes_on = false;
};

Flip planned() {
  Flip flip;
  const char* const text = std::getenv("FLIP");
  const char* const rank = std::getenv("RANK");
  const char* const round = std::getenv("DLAUNCH_ROUND");
  int of_rank = 0;
  char more[2] = "";
  if (text == nullptr || rank == nullptr || round == nullptr) return {};
  if (std::sscanf(text, "%d %63s %ld%1[+]", &of_rank, flip.point, &flip.time, more) < 3)
    std::abort();
  flip.goes_on = more[0] == '+';
  const bool meant = std::atoi(rank) == of_rank && (flip.goes_on || std::atoi(round) == 1);
  return meant ? flip : Flip{};
}

}  // namespace

namespace dlaunch {

void failpoint(const char*) {}
std::size_t failpoint_write(const char*, std::size_t bytes) { return bytes; }

void failpoint_data(const char* name, void* data, std::size_t bytes) {
  static const Flip flip = planned();
  static std::atomic<long> times{0};
  if (flip.time == 0 || bytes < kLeastData || std::strcmp(flip.point, name) != 0) return;
  const long time = ++times;
  if (time != flip.time && !(flip.goes_on && time > flip.time)) return;
  // The upper bit of a double's exponent: no later sum rounds it away, also where it was zero.
  static_cast<unsigned char*>(data)[bytes / 2 / sizeof(double) * sizeof(double) + 7] ^= 0x40;
}

}  // namespace dlaunch
