#include "cli/bench/step_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

#include "ring/plan/schedule.h"

namespace bench {
namespace {

using dlaunch::Algorithm;
using dlaunch::HostLine;

constexpr double kMiB = 1 << 20;
constexpr double kFirstBucket = kMiB;  // BucketOptions::first_bucket_bytes, and PyTorch's
constexpr double kBlock = 4 * kMiB;    // kLayeredBlock in ring/hosts/layered_plane.cc
constexpr double kEncodedBits[] = {32, 16, 8.125, 4.25};  // for each float
// The float32 that a core encodes, adds up and decodes in a second, in blocks of 4 MiB. A core of
// an AMD EPYC with AVX2 did 15 to 19 GB/s, with either codec and 2 to 16 hosts.
constexpr double kCodecBytesPerSecond = 15e9;
constexpr double kNoticed = 1.05;

Algorithm algorithm_for(double bytes, int hosts, double latency,
                        dlaunch::Collective collective = dlaunch::Collective::all_reduce) {
  const dlaunch::Shape shape{.collective = collective,
                             .count = static_cast<std::size_t>(std::ceil(bytes / 4)),
                             .element_bytes = 4};
  const auto round_trip = std::chrono::duration<double>(2 * latency);
  return dlaunch::algorithm_of(
      shape, hosts,
      dlaunch::tuning_between_hosts(std::chrono::duration_cast<dlaunch::Duration>(round_trip)));
}

double plain_seconds(const HostLine& line, int hosts, double bytes) {
  return dlaunch::all_reduce_seconds(algorithm_for(bytes, hosts, line.latency), hosts, bytes, line);
}

// Latencies of an all_gather of `bytes` in all.
double gather_hops(double bytes, int hosts, double latency) {
  switch (algorithm_for(bytes / hosts, hosts, latency, dlaunch::Collective::all_gather)) {
    case Algorithm::grid:
      return 2;
    case Algorithm::ring:
      return hosts - 1;
    default:
      return 1;
  }
}

// An all_to_all, then an all_gather: for each block of a wire codec, and once for all in local
// training.
double encoded_seconds(const HostLine& line, int hosts, double bytes, Form form) {
  const double blocks = form == Form::outer ? 1 : std::ceil(bytes / kBlock);
  const double encoded = bytes * kEncodedBits[static_cast<int>(form)] / 32;
  const double wire = 2.0 * (hosts - 1) / hosts * encoded / line.bytes_per_second;
  const double hops = 1 + gather_hops(encoded / blocks, hosts, line.latency);
  const double codec = bytes / kCodecBytesPerSecond;
  // The codec works on one block while another one crosses.
  const double overlapped = std::max(wire, codec) + std::min(wire, codec) / blocks;
  return blocks * hops * line.latency + overlapped;
}

double layered_seconds(const HostLine& line, int hosts, int per_host, double bytes) {
  const double blocks = std::ceil(bytes / kBlock);
  const HostLine share{line.latency, line.bytes_per_second / per_host};
  return blocks * plain_seconds(share, hosts, bytes / blocks / per_host);
}

double compute_seconds(const Training& training, int workers) {
  return training.split_batch ? training.step_s / workers : training.step_s;
}

int hosts_of(const Training& training, int workers) {
  return (workers + training.per_host - 1) / training.per_host;
}

void add_local_training(Prediction& p, const Training& training, const HostLine& line,
                        double samples) {
  const double compute = compute_seconds(training, p.workers);
  const double outer = exchange_seconds(line, hosts_of(training, p.workers), training.per_host,
                                        4 * training.parameters, Form::outer);
  p.local_step_s = compute + outer / training.inner_steps;
  p.local_efficiency = compute / p.local_step_s;
  p.local_samples_per_s = samples / p.local_step_s;
}

}  // namespace

double exchange_seconds(const HostLine& line, int hosts, int per_host, double bytes, Form form) {
  if (hosts <= 1 || bytes <= 0) return 0;
  if (form != Form::none) return encoded_seconds(line, hosts, bytes, form);
  return per_host > 1 ? layered_seconds(line, hosts, per_host, bytes)
                      : plain_seconds(line, hosts, bytes);
}

Prediction predict(const Training& training, const HostLine& line, int workers,
                   const Choice& choice) {
  const int hosts = hosts_of(training, workers);
  const double bytes = training.bytes(), compute = compute_seconds(training, workers);
  const double backward = compute * training.backward, forward = compute - backward;
  Prediction p{.workers = workers, .choice = choice};
  double end = compute;
  for (double done = 0, free = 0; done < bytes;) {
    const double limit =
        done == 0 ? std::min(kFirstBucket, choice.bucket_bytes) : choice.bucket_bytes;
    const double size = std::min(limit, bytes - done);
    done += size;
    const double took = exchange_seconds(line, hosts, training.per_host, size, choice.form);
    free = std::max(free, forward + backward * done / bytes) + took;
    p.exchange_s += took;
    end = std::max(end, free);
  }
  const double samples = training.batch * (training.split_batch ? 1 : workers);
  p.step_s = end;
  p.efficiency = compute / end;
  p.samples_per_s = samples / end;
  add_local_training(p, training, line, samples);
  return p;
}

Prediction predict_best(const Training& training, const HostLine& line, int workers,
                        const std::vector<Form>& forms, const std::vector<double>& buckets) {
  std::vector<Prediction> of_form;
  double least = std::numeric_limits<double>::infinity();
  for (const Form form : forms) {
    std::optional<Prediction> best;
    for (const double bucket : buckets) {
      const Prediction p = predict(training, line, workers, {form, bucket});
      if (!best || p.step_s < best->step_s) best = p;
    }
    least = std::min(least, best->step_s);
    of_form.push_back(*best);
  }
  return *std::find_if(of_form.begin(), of_form.end(),
                       [&](const Prediction& p) { return p.step_s <= kNoticed * least; });
}

std::vector<double> bucket_sizes(double bytes) {
  std::vector<double> sizes;
  for (double size = kMiB; size < std::min(bytes, 512 * kMiB); size *= 2) sizes.push_back(size);
  sizes.push_back(bytes);
  return sizes;
}

namespace {

// seconds = messages + hops * latency + passes * (1 / rate): the algorithm's costs are linear.
struct Costs {
  double messages, hops, passes;
};
Costs costs(const Measured& m, int hosts, double latency) {
  constexpr double kFast = std::numeric_limits<double>::infinity();
  const Algorithm algorithm = algorithm_for(m.bytes, hosts, latency);
  const auto seconds = [&](const HostLine& line) {
    return dlaunch::all_reduce_seconds(algorithm, hosts, m.bytes, line);
  };
  const double messages = seconds({0, kFast});
  return {messages, seconds({1, kFast}) - messages, seconds({0, 1}) - messages};
}

HostLine fit_once(const std::vector<Measured>& measured, int hosts, double latency) {
  double hh = 0, hp = 0, pp = 0, ht = 0, pt = 0;
  for (const auto& m : measured) {
    const Costs c = costs(m, hosts, latency);
    const double h = c.hops / m.seconds, p = c.passes / m.seconds;
    const double t = 1 - c.messages / m.seconds;
    hh += h * h;
    hp += h * p;
    pp += p * p;
    ht += h * t;
    pt += p * t;
  }
  const double determinant = hh * pp - hp * hp;
  const double fitted = (ht * pp - pt * hp) / determinant;
  const double per_byte = (pt * hh - ht * hp) / determinant;
  constexpr double kLeastPerByte = 1e-12;  // 1 TB/s: the bytes cost nothing that could be measured
  return {std::max(fitted, 0.0), 1 / std::max(per_byte, kLeastPerByte)};
}

}  // namespace

HostLine fit_line(const std::vector<Measured>& measured, int hosts) {
  HostLine line{measured.front().seconds, 0};
  // The latency decides which algorithms were measured.
  for (int i = 0; i < 4; ++i) line = fit_once(measured, hosts, line.latency);
  return line;
}

}  // namespace bench
