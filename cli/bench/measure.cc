#include "cli/bench/measure.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cli/bench/calibrate.h"

namespace bench {
namespace {

constexpr double kBudgetSeconds = 0.25;  // of timed operations per size and place, without -n

}  // namespace

void require(dl_result result, dl_comm* comm) {
  if (result != DL_OK) throw Failure{1, dl_last_error(comm)};
}

Bench::Bench(dl_comm* comm, const Options& options, std::size_t max_bytes)
    : comm_(comm), options_(options), buffers_(dl_rank(comm), dl_size(comm), max_bytes) {}

Timing Bench::measure(const Case& c, bool in_place) {
  Timing timing;
  if (options_.check != 0) timing.wrong = checked_run(c, in_place);
  for (int i = 0; i < options_.warmup; ++i) timed_run(c, in_place);
  std::vector<double> times(static_cast<std::size_t>(iterations(c, in_place)));
  for (double& t : times) t = timed_run(c, in_place);
  // An operation takes as long as its slowest rank.
  require(dl_all_reduce(comm_, times.data(), times.data(), times.size(), DL_FLOAT64, DL_MAX),
          comm_);
  std::sort(times.begin(), times.end());
  timing.median_us = times[times.size() / 2];
  timing.p99_us = times[(times.size() * 99 + 99) / 100 - 1];
  return timing;
}

std::size_t Bench::checked_run(const Case& c, bool in_place) {
  buffers_.fill(c, in_place);
  require(buffers_.run(comm_, c, in_place), comm_);
  std::uint64_t wrong = buffers_.wrong(c, in_place);
  require(dl_all_reduce(comm_, &wrong, &wrong, 1, DL_UINT64, DL_SUM), comm_);
  return static_cast<std::size_t>(wrong);
}

double Bench::timed_run(const Case& c, bool in_place) {
  require(dl_barrier(comm_), comm_);
  const double started = now_us();
  require(buffers_.run(comm_, c, in_place), comm_);
  return now_us() - started;
}

// As many as fit the budget, agreed on by all ranks.
int Bench::iterations(const Case& c, bool in_place) {
  if (options_.iterations > 0) return options_.iterations;
  double estimate = 0;
  for (int i = 0; i < 3; ++i) estimate = std::max(estimate, timed_run(c, in_place));
  require(dl_all_reduce(comm_, &estimate, &estimate, 1, DL_FLOAT64, DL_MAX), comm_);
  return std::clamp(static_cast<int>(kBudgetSeconds * 1e6 / std::max(estimate, 0.1)), 5, 2000);
}

}  // namespace bench
