#include "ring/plan/host_costs.h"

#include <bit>
#include <cmath>

namespace dlaunch {
namespace {

constexpr double kMessage = 4e-6;  // seconds, measured over the loopback device
constexpr double kFrame = 1e-6;    // seconds, of one more that arrives with another one

struct Job {
  Job(int ranks, double bytes, const HostLine& line)
      : others(ranks - 1.0), data(bytes / line.bytes_per_second), latency(line.latency) {}
  double others;                                         // ranks
  double data;                                           // seconds on a link
  double latency;                                        // seconds
  double hop() const { return latency + 2 * kMessage; }  // one message sent, one received
  double rounds() const { return std::bit_width(static_cast<unsigned>(others)); }
  double slices() const { return 2 * others / (others + 1) * data; }
};

// Values go to a rank of each column and then within the columns, results the same way back. The
// values for one rank of a column are several frames, and a system call takes a batch of them.
double grid_seconds(const Job& job, bool values, bool results) {
  const double ranks = job.others + 1, columns = grid_columns(static_cast<int>(ranks));
  const double rows = ranks / columns;
  const double once = 2 * job.latency + 2 * (rows + columns - 2) * kMessage;
  const double calls = std::ceil(columns / kMostAtOnce) - 1;
  const double frames = (rows - 1) * ((columns - 1) * kFrame + calls * (kMessage - kFrame));
  const double spread = once + frames + ((columns - 1) / columns + (rows - 1) / rows) * job.data;
  return (values ? spread : 0) + (results ? once + job.others / ranks * job.data : 0);
}

double all_reduce_seconds(Algorithm algorithm, const Job& job) {
  switch (algorithm) {
    case Algorithm::exchange:
      return job.latency + job.others * (2 * kMessage + job.data);
    case Algorithm::doubling:
      return job.rounds() * job.hop() + job.others * job.data;
    case Algorithm::star:
      return 2 * job.latency + 2 * job.others * (kMessage + job.data);
    case Algorithm::tree:
      return 2 * job.rounds() * (job.hop() + job.data);
    case Algorithm::grid:
      return grid_seconds(job, true, true);
    case Algorithm::ring:
      return 2 * job.others * job.hop() + job.slices();
    default:
      return 2 * job.latency + 4 * job.others * kMessage + job.slices();
  }
}

// A reduce_scatter or an all_gather of `data` in all.
double part_seconds(Collective collective, Algorithm algorithm, const Job& job) {
  const double least = job.others / (job.others + 1) * job.data;
  const bool values = collective == Collective::reduce_scatter;
  if (algorithm == Algorithm::grid) return grid_seconds(job, values, !values);
  if (algorithm == Algorithm::ring) return job.others * job.hop() + least;
  return job.latency + 2 * job.others * kMessage + least;
}

double reduce_seconds(Algorithm algorithm, const Job& job) {
  switch (algorithm) {
    case Algorithm::star:
      return job.latency + job.others * (kMessage + job.data);
    case Algorithm::tree:
      return job.rounds() * (job.hop() + job.data);
    case Algorithm::ring:
      return (job.others + 1) * job.hop() + job.others * kMessage + job.slices();
    default:
      return 2 * job.latency + 3 * job.others * kMessage + job.slices();
  }
}

}  // namespace

double all_reduce_seconds(Algorithm algorithm, int ranks, double bytes, const HostLine& line) {
  return all_reduce_seconds(algorithm, Job(ranks, bytes, line));
}

Algorithm cheapest_between_hosts(const Shape& shape, int ranks, const Tuning& tuning) {
  const bool in_parts =
      shape.collective == Collective::reduce_scatter || shape.collective == Collective::all_gather;
  // Of parts that differ, the longest one decides how long a rank sends.
  const std::size_t elements =
      in_parts ? longest_part(shape) * static_cast<std::size_t>(ranks) : shape.count;
  const auto bytes = static_cast<double>(elements * shape.element_bytes);
  const Job job(ranks, bytes, {to_seconds(*tuning.latency), kSlowBytesPerSecond});
  const auto seconds = [&](Algorithm algorithm) {
    if (in_parts) return part_seconds(shape.collective, algorithm, job);
    return shape.collective == Collective::all_reduce ? all_reduce_seconds(algorithm, job)
                                                      : reduce_seconds(algorithm, job);
  };
  Algorithm best = for_large_data(shape, ranks, tuning);
  const auto try_it = [&](Algorithm algorithm, bool allowed) {
    const bool has = allowed && has_algorithm(shape.collective, algorithm);
    if (has && seconds(algorithm) < seconds(best)) best = algorithm;
  };
  try_it(Algorithm::star, true);
  try_it(Algorithm::tree, takes_tree(shape, ranks, tuning));
  // Up to direct_ranks ranks nothing that they give passes through others: with --verify the rank
  // that gave wrong bytes has a name.
  const bool may_pass_on =
      shape.collective != Collective::all_gather || ranks > tuning.direct_ranks;
  try_it(Algorithm::grid, may_pass_on && bytes <= kMostByGrid);
  // A few ranks exchange everything directly, if that pays.
  try_it(Algorithm::doubling,
         ranks > tuning.exchange_ranks && job.others * bytes <= kMostExchanged);
  return best;
}

}  // namespace dlaunch
