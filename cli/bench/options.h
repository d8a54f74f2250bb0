// The command line of dlaunch-bench, and the cases to measure, checked as far as one rank can.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/bench/bench_case.h"

namespace CLI {
class App;
}

namespace bench {

// Of --model.
struct ModelOptions {
  std::string model;  // "": not wanted
  std::string step, link, bucket;
  std::string workers = "2,4,8,16,32,64", codec = "auto";
  int batch = 1, per_host = 0, inner_steps = 50;
  double backward = 2.0 / 3, target = 50;
  bool split_batch = false;
};

struct Options {
  std::string collective;  // "": only --calibrate, or --model
  std::string min_bytes = "32M", max_bytes, step_bytes;
  double factor = 2;
  int iterations = 0, warmup = 5, check = 1, root = 0;
  std::string dtype = "float", op = "sum";
  std::string device = "host";
  int rotate = 1, queue = 1;
  std::string skew;  // "": none
  bool plan = false, alloc = false, calibrate = false, overlap = false, cpu = false,
       compare = false;
  ModelOptions model;
  std::string csv, json;  // "": not wanted; "-": standard output, in place of the table
};

// A rank's error: the program prints it in one line and ends the job through its exit code.
struct Failure {
  int exit_code;
  std::string what;
};

struct Cases {
  const KindInfo* kind;
  std::vector<std::size_t> sizes;
  std::vector<int> dtypes, ops;
  double skew_us = 0;
};

void declare(CLI::App& app, Options& options);
// Throws a Failure.
void check_outputs(const Options& options);
// Throws a Failure. Without a collective, `app` must not have options that need one.
void check_without_collective(const CLI::App& app, const Options& options);
Cases make_cases(const CLI::App& app, const Options& options);

}  // namespace bench
