#include "ring/plan/host_costs.h"

#include <bit>
#include <cmath>

namespace dlaunch {
namespace {

constexpr double kMessage = 4e-6;  // seconds, measured over the loopback device
constexpr double kFrame = 1e-6;    // seconds, of one more that arrives with another one

// How many times as much as the line of a rack carries, the lines of its hosts carry together:
// usually two to four, and others use it, too.
constexpr double kOversubscribed = 4;

struct Job {
  Job(int ranks, double bytes, const HostLine& line)
      : others(ranks - 1.0),
        data(bytes / line.bytes_per_second),
        at_one(others * data),
        latency(line.latency) {}
  double others;        // ranks
  double data;          // seconds on a link
  double at_one;        // seconds of all ranks' data on the way to one, or back
  double crossing = 1;  // data's factor, between racks
  double latency;       // seconds
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
  const double data = job.data * job.crossing;
  const double spread = once + frames + ((columns - 1) / columns + (rows - 1) / rows) * data;
  return (values ? spread : 0) + (results ? once + job.others / ranks * data : 0);
}

double all_reduce_seconds(Algorithm algorithm, const Job& job) {
  switch (algorithm) {
    case Algorithm::exchange:
      return job.latency + job.others * (2 * kMessage + job.data * job.crossing);
    case Algorithm::doubling:
      return job.rounds() * job.hop() + job.others * job.data * job.crossing;
    case Algorithm::star:
      return 2 * job.latency + 2 * (job.others * kMessage + job.at_one);
    case Algorithm::tree:
      return 2 * job.rounds() * (job.hop() + job.data);
    case Algorithm::grid:
      return grid_seconds(job, true, true);
    case Algorithm::ring:
      return 2 * job.others * job.hop() + job.slices();
    case Algorithm::racks:
      return 4 * job.latency + 4 * job.others * kMessage + job.slices();
    default:
      return 2 * job.latency + 4 * job.others * kMessage + job.slices() * job.crossing;
  }
}

// A reduce_scatter or an all_gather of `data` in all.
double part_seconds(Collective collective, Algorithm algorithm, const Job& job) {
  const double least = job.others / (job.others + 1) * job.data;
  const bool values = collective == Collective::reduce_scatter;
  if (algorithm == Algorithm::grid) return grid_seconds(job, values, !values);
  if (algorithm == Algorithm::ring) return job.others * job.hop() + least;
  const double each = 2 * job.others * kMessage;
  if (algorithm == Algorithm::racks) return 2 * job.latency + each + least;
  return job.latency + each + least * job.crossing;
}

double reduce_seconds(Algorithm algorithm, const Job& job) {
  switch (algorithm) {
    case Algorithm::star:
      return job.latency + job.others * kMessage + job.at_one;
    case Algorithm::tree:
      return job.rounds() * (job.hop() + job.data);
    case Algorithm::ring:
      return (job.others + 1) * job.hop() + job.others * kMessage + job.slices();
    default:
      return 2 * job.latency + 3 * job.others * kMessage + job.slices() * job.crossing;
  }
}

// The line of a rack carries the bytes between its ranks and all others, and may be slower than
// those of the ranks.
void count_crossings(Job& job, const RankGroups& racks, int ranks) {
  const double average = static_cast<double>(ranks) / racks.groups();
  const double far = ranks - average;  // ranks in other racks
  job.crossing = std::max(1.0, kOversubscribed * far / (ranks - 1));
  job.at_one = std::max(job.at_one, kOversubscribed * far / average * job.data);
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
  Job job(ranks, bytes, {to_seconds(*tuning.latency), kSlowBytesPerSecond});
  const auto racks = racks_among(shape, tuning);
  const bool by_racks = takes_racks(shape, ranks, tuning);
  if (by_racks) count_crossings(job, *racks, ranks);
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
  try_it(Algorithm::direct, by_racks && ranks <= tuning.direct_ranks);
  // A few ranks exchange everything directly, if that pays.
  try_it(Algorithm::doubling,
         ranks > tuning.exchange_ranks && job.others * bytes <= kMostExchanged);
  return best;
}

}  // namespace dlaunch
