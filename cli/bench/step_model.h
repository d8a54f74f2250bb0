// The time of a data-parallel training step, by a model over one worker's step and the link between
// hosts.
//
// Workers add up their gradients in buckets while backward still computes: bucket i of n is ready
// at forward + backward * i/n, and the exchanges follow each other on the link. So
//
//   end(i) = max(end(i-1), ready(i)) + exchange(bytes of bucket i)        step = end(n)
//
// exchange() has libdlring's own choice of the algorithm (ring/plan/schedule.h) and its costs
// (ring/plan/host_costs.h, after Hockney): latencies, messages, and bytes over the link. What
// layered_plane.h sends in blocks (wire codecs, several workers on a host) costs the latencies of
// each block. Shared memory within a host costs nothing in the model. Pure.
#pragma once

#include <string>
#include <vector>

#include "ring/plan/host_costs.h"

namespace bench {

// The forms of float32 on the wire; outer: the 4 bits and a shared scale of local training.
enum class Form { none, bf16, int8, outer };
inline constexpr const char* kFormNames[] = {"none", "bf16", "int8", "4bit"};

struct Training {
  double parameters = 0;
  double element_bytes = 4;   // of a gradient's element
  double step_s = 0;          // of one worker that exchanges nothing
  double backward = 2.0 / 3;  // the share of it
  double batch = 1;           // samples of that step
  bool split_batch = false;   // the workers share this batch; else each has one
  int per_host = 1;           // workers on a host
  int inner_steps = 50;       // of local training, between two exchanges
  double bytes() const { return parameters * element_bytes; }
};

// How gradients are exchanged.
struct Choice {
  Form form = Form::none;
  double bucket_bytes = 0;
};

struct Prediction {
  int workers = 1;
  Choice choice;
  double exchange_s = 0;  // of all buckets
  double step_s = 0;
  double efficiency = 1;  // computing / step
  double samples_per_s = 0;
  // Local training (LocalSGD, DiLoCo), per inner step.
  double local_step_s = 0, local_efficiency = 1, local_samples_per_s = 0;
};

// Seconds of an all_reduce of float32 gradients of so many bytes between the hosts.
double exchange_seconds(const dlaunch::HostLine& line, int hosts, int per_host, double bytes,
                        Form form);

// With that choice.
Prediction predict(const Training& training, const dlaunch::HostLine& line, int workers,
                   const Choice& choice);
// With the best of these forms and bucket sizes. A form that loses precision has to save a
// twentieth of the step.
Prediction predict_best(const Training& training, const dlaunch::HostLine& line, int workers,
                        const std::vector<Form>& forms, const std::vector<double>& buckets);
// For gradients of so many bytes: from 1 MiB on, and all in one.
std::vector<double> bucket_sizes(double bytes);

// One all_reduce of that size took so long.
struct Measured {
  double bytes = 0, seconds = 0;
};
// The line that explains the measured times of so many hosts best: least squares of the relative
// errors. At least two sizes.
dlaunch::HostLine fit_line(const std::vector<Measured>& measured, int hosts);

}  // namespace bench
