// For tests of dl_all_reduce_some() between processes.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include <dlaunch/ring.h>
#include <doctest/doctest.h>

#include "tests/unit/ring/process_world.h"

namespace dlaunch {

// Memory that the ranks share, zeroed.
template <class T>
class SharedByRanks {
 public:
  SharedByRanks()
      : at_(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(at_ != MAP_FAILED);
  }
  ~SharedByRanks() { ::munmap(at_, sizeof(T)); }
  SharedByRanks(const SharedByRanks&) = delete;
  SharedByRanks& operator=(const SharedByRanks&) = delete;
  T* operator->() const { return static_cast<T*>(at_); }

 private:
  void* at_;
};

// A rank that waits for another one, which may have failed.
template <class Ready>
bool becomes(Ready ready) {
  for (int ms = 0; ms < 20'000; ++ms) {
    if (ready()) return true;
    ::usleep(1000);
  }
  return false;
}

inline dl_some_options some_of(int need, dl_late late = DL_LATE_DROP, int max_behind = 16) {
  dl_some_options options;
  dl_some_options_init(&options);
  options.need = need;
  options.late = late;
  options.max_behind = max_behind;
  return options;
}

// What a rank gets from a call.
struct SomeOutcome {
  dl_result result = DL_OK;
  std::vector<double> out;
  std::vector<int> given;
  dl_fate fate = DL_FATE_NONE;
};

inline SomeOutcome sum_some(dl_comm* comm, const dl_some_options& options,
                            const std::vector<double>* in, std::size_t count, dl_op op = DL_SUM) {
  SomeOutcome got;
  got.out.assign(count, -1);
  got.given.assign(static_cast<std::size_t>(dl_size(comm)), -1);
  static const double none = 0;
  const double* const from = in == nullptr ? nullptr : in->empty() ? &none : in->data();
  got.result = dl_all_reduce_some(comm, from, got.out.data(), count, DL_FLOAT64, op, &options,
                                  got.given.data(), &got.fate);
  return got;
}

inline std::vector<double> all_of(std::size_t count, double value) {
  return std::vector<double>(count, value);
}

using Counts = std::vector<int>;

}  // namespace dlaunch
