#include "cli/bench/measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cli/bench/calibrate.h"
#include "cli/bench/gpu_memory.h"
#include "cli/bench/overlap.h"

namespace bench {
namespace {

constexpr double kBudgetSeconds = 0.25;  // of timed operations per size and place, without -n

// The CPU time of all threads of this process.
double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Spins because a sleep would end late by the timer's resolution.
void spin_until(double us) {
  while (now_us() < us) {
  }
}

}  // namespace

void require(dl_result result, dl_comm* comm) {
  if (result != DL_OK) throw Failure{1, dl_last_error(comm)};
}

Bench::Bench(dl_comm* comm, const Options& options, const Cases& cases)
    : comm_(comm), options_(options), skew_us_(cases.skew_us) {
  if (in_stream()) require(dl_set_stream_ordered(comm_, 1), comm_);
  for (int i = 0; i < options.rotate; ++i) {
    buffers_.emplace_back(dl_rank(comm), dl_size(comm), cases.sizes.back(),
                          options.alloc ? comm : nullptr, options.device == "cuda");
  }
}

void Bench::prepare_compare() {
  nccl_ = NcclDirect::start(comm_, nccl_text_);
  if (dl_size(comm_) == 1) return;  // the host's memory is not used
  require(dl_split(comm_, 0, 0, &host_), comm_);
  require(dl_set_backend(host_, "cpu"), host_);
}

Bench::~Bench() { dl_finalize(host_); }

Timing Bench::measure(const Case& c, bool in_place, const std::function<void()>& before_part) {
  Timing timing;
  if (options_.check != 0) timing.wrong = checked_run(Way::ours, c, in_place);
  const std::size_t parts = before_part ? kParts : 1;
  std::size_t count = 0;
  double cpu = 0;
  std::vector<double> times;
  for (std::size_t part = 1; part <= parts; ++part) {
    if (before_part) before_part();
    for (int i = 0; i < options_.warmup; ++i) timed_run(Way::ours, c, in_place);
    if (part == 1) count = static_cast<std::size_t>(iterations(c, in_place));
    const double cpu_before = cpu_seconds();
    while (times.size() < count * part / parts) {
      times.push_back(timed_run(Way::ours, c, in_place));
    }
    cpu += cpu_seconds() - cpu_before;
  }
  times = of_slowest(std::move(times));
  timing.median_us = times[count / 2];
  timing.p99_us = times[(count * 99 + 99) / 100 - 1];
  // The delay of rank 0 is ours, not the collective's.
  if (dl_rank(comm_) == 0) cpu -= static_cast<double>(count) * skew_us_ / 1e6;
  require(dl_all_reduce(comm_, &cpu, &cpu, 1, DL_FLOAT64, DL_SUM), comm_);
  const double bytes = static_cast<double>(count) * options_.queue * static_cast<double>(c.bytes);
  if (bytes > 0) timing.cpu_s_per_gb = std::max(0.0, cpu) / (bytes / 1e9);
  if (options_.compare) compare(c, in_place, count, timing);
  if (options_.overlap) timing.overlap = overlap(c, in_place, count, timing.median_us);
  return timing;
}

// The same case, by the other implementations.
void Bench::compare(const Case& c, bool in_place, std::size_t count, Timing& timing) {
  const auto median_of = [&](Way way) {
    // NCCL may round a division.
    const bool exact = way == Way::host || c.op != DL_AVG;
    if (options_.check != 0 && exact) timing.wrong += checked_run(way, c, in_place);
    for (int i = 0; i < options_.warmup; ++i) timed_run(way, c, in_place);
    std::vector<double> times(count);
    for (double& t : times) t = timed_run(way, c, in_place);
    return of_slowest(std::move(times))[count / 2];
  };
  if (nccl_ && nccl_->serves(c)) timing.nccl_us = median_of(Way::nccl);
  if (host_ != nullptr) timing.host_us = median_of(Way::host);
}

void Bench::run(Way way, Buffers& buffers, const Case& c, bool in_place) {
  start(way, buffers, c, in_place);
  await(way);
}

// With --queue NCCL's calls and ours may still be in the stream.
void Bench::start(Way way, Buffers& buffers, const Case& c, bool in_place) {
  if (way == Way::nccl) {
    const auto [in, out] = buffers.given(c, in_place);
    return nccl_->put(c, in, out);
  }
  dl_comm* const comm = way == Way::host ? host_ : comm_;
  require(buffers.run(comm, c, in_place), comm);
}

void Bench::await(Way way) {
  if (way == Way::nccl) return await_gpu();
  if (way == Way::ours && in_stream()) require(dl_sync(comm_), comm_);
}

// Replaces each time by that of the slowest rank. Sorted.
std::vector<double> Bench::of_slowest(std::vector<double> times) {
  require(dl_all_reduce(comm_, times.data(), times.data(), times.size(), DL_FLOAT64, DL_MAX),
          comm_);
  std::sort(times.begin(), times.end());
  return times;
}

Buffers& Bench::next_buffers() { return buffers_[turn_++ % buffers_.size()]; }

std::size_t Bench::checked_run(Way way, const Case& c, bool in_place) {
  Buffers& buffers = next_buffers();
  buffers.fill(c, in_place);
  run(way, buffers, c, in_place);
  std::uint64_t wrong = buffers.wrong(c, in_place);
  require(dl_all_reduce(comm_, &wrong, &wrong, 1, DL_UINT64, DL_SUM), comm_);
  return static_cast<std::size_t>(wrong);
}

// With --skew each rank counts from rank 0's arrival, which it knows because all ranks leave the
// barrier together. A rank that is done before it has a negative time.
double Bench::timed_run(Way way, const Case& c, bool in_place) {
  Buffers& buffers = next_buffers();
  require(dl_barrier(comm_), comm_);
  const double last_arrival = now_us() + skew_us_;
  if (skew_us_ > 0 && dl_rank(comm_) == 0) spin_until(last_arrival);
  for (int i = 0; i < options_.queue; ++i) start(way, buffers, c, in_place);
  await(way);
  return (now_us() - last_arrival) / options_.queue;
}

// The number that fits the budget; all ranks agree on it.
int Bench::iterations(const Case& c, bool in_place) {
  if (options_.iterations > 0) return options_.iterations;
  double estimate = 0;
  for (int i = 0; i < 3; ++i) estimate = std::max(estimate, timed_run(Way::ours, c, in_place));
  estimate = std::max(estimate, 0.1) + skew_us_;
  require(dl_all_reduce(comm_, &estimate, &estimate, 1, DL_FLOAT64, DL_MAX), comm_);
  return std::clamp(static_cast<int>(kBudgetSeconds * 1e6 / estimate) / options_.queue, 5, 2000);
}

Overlap Bench::overlap(const Case& c, bool in_place, std::size_t count, double alone_us) {
  require(dl_barrier(comm_), comm_);
  const long steps = std::max(1L, static_cast<long>(alone_us / compute_step_us()));
  std::vector<double> computed(count), both(count);
  for (std::size_t i = 0; i < count; ++i) {
    require(dl_barrier(comm_), comm_);
    double started = now_us();
    compute(steps);
    computed[i] = now_us() - started;

    Buffers& buffers = next_buffers();
    dl_request* request = nullptr;
    require(dl_barrier(comm_), comm_);
    started = now_us();
    require(buffers.start(comm_, c, in_place, &request), comm_);
    compute(steps);
    require(dl_wait(&request), comm_);
    both[i] = now_us() - started;
  }
  Overlap result;
  result.compute_us = of_slowest(std::move(computed))[count / 2];
  result.both_us = of_slowest(both)[count / 2];
  result.hidden_pct = hidden_percent(alone_us, result.compute_us, result.both_us);
  const bool for_bucketer = c.dtype == DL_FLOAT32 && c.op == DL_SUM && options_.device != "cuda";
  if (!in_place || !for_bucketer || c.count < kTensors) return result;
  for (double& t : both) {
    auto* const gradients = static_cast<float*>(next_buffers().given(c, in_place).out);
    t = bucketed_us(comm_, gradients, c.count, steps);
  }
  result.bucketed_us = of_slowest(std::move(both))[count / 2];
  result.bucketed_pct = hidden_percent(alone_us, result.compute_us, *result.bucketed_us);
  return result;
}

}  // namespace bench
