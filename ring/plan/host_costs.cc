#include "ring/plan/host_costs.h"

#include <bit>

namespace dlaunch {
namespace {

constexpr double kMessage = 4e-6;  // seconds, measured over the loopback device

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
    case Algorithm::ring:
      return 2 * job.others * job.hop() + job.slices();
    default:
      return 2 * job.latency + 4 * job.others * kMessage + job.slices();
  }
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
  const auto bytes = static_cast<double>(shape.count * shape.element_bytes);
  const Job job(ranks, bytes, {to_seconds(*tuning.latency), kSlowBytesPerSecond});
  const bool all = shape.collective == Collective::all_reduce;
  const auto seconds = [&](Algorithm algorithm) {
    return all ? all_reduce_seconds(algorithm, job) : reduce_seconds(algorithm, job);
  };
  Algorithm best = ranks <= tuning.direct_ranks ? Algorithm::direct : Algorithm::ring;
  if (seconds(Algorithm::star) < seconds(best)) best = Algorithm::star;
  const bool many = ranks > tuning.tree_above && !shape.in_order;
  if (many && seconds(Algorithm::tree) < seconds(best)) best = Algorithm::tree;
  // A few ranks exchange everything directly, if that pays.
  const bool room = ranks > tuning.exchange_ranks && job.others * bytes <= kMostExchanged;
  return all && room && seconds(Algorithm::doubling) < seconds(best) ? Algorithm::doubling : best;
}

}  // namespace dlaunch
