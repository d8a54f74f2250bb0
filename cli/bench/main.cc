// dlaunch-bench: times the collectives of libdlring with nccl-tests' flags and columns. Runs as the
// workers of a job; through the public API only.

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/contract.h"
#include "base/exit_code.h"
#include "cli/bench/adviser.h"
#include "cli/bench/bench_case.h"
#include "cli/bench/bench_output.h"
#include "cli/bench/bounds.h"
#include "cli/bench/calibrate.h"
#include "cli/bench/gpu_memory.h"
#include "cli/bench/machine_limits.h"
#include "cli/bench/measure.h"
#include "cli/bench/options.h"

namespace bench {
namespace {

// The place of every rank, for the table's head.
std::vector<std::string> places(dl_comm* comm) {
  constexpr std::size_t kWidth = 96;
  char host[64] = "?";
  ::gethostname(host, sizeof host - 1);
  char own[kWidth] = "";
  std::snprintf(own, sizeof own, "pid %6d on %s", ::getpid(), host);
  std::vector<char> all(kWidth * static_cast<std::size_t>(dl_size(comm)));
  require(dl_all_gather(comm, own, all.data(), kWidth, DL_UINT8), comm);
  std::vector<std::string> out;
  out.reserve(static_cast<std::size_t>(dl_size(comm)));
  for (int r = 0; r < dl_size(comm); ++r)
    out.emplace_back(&all[static_cast<std::size_t>(r) * kWidth]);
  return out;
}

// An error that all ranks have alike. The others wait until rank 0 has printed it: the launcher
// ends a job as soon as its first worker has failed.
int refuse(dl_comm* comm, const Failure& failure) {
  if (dl_rank(comm) == 0) std::fprintf(stderr, "dlaunch-bench: %s\n", failure.what.c_str());
  dl_barrier(comm);
  return failure.exit_code;
}
int refuse(const Failure& failure) {
  dl_comm* comm = nullptr;
  if (dl_init(nullptr, nullptr, &comm) != DL_OK) {
    std::fprintf(stderr, "dlaunch-bench: %s\n", failure.what.c_str());
    return failure.exit_code;
  }
  const int exit_code = refuse(comm, failure);
  dl_finalize(comm);
  return exit_code;
}

File open_output(const std::string& path) {
  if (path.empty()) return nullptr;
  if (path == "-") return File(stdout);
  File file(std::fopen(path.c_str(), "we"));
  if (!file) {
    throw Failure{dlaunch::kExitCannotCreate, "cannot write " + path + ": " + std::strerror(errno)};
  }
  return file;
}

Outputs open_outputs(const Options& options) {
  Outputs outputs;
  outputs.csv = open_output(options.csv);
  outputs.json = open_output(options.json);
  if (options.csv != "-" && options.json != "-") outputs.table = File(stdout);
  return outputs;
}

// The cores that any rank may use: where the launcher binds ranks, each has only its own.
std::vector<int> cores_of_all(dl_comm* comm) {
  std::vector<std::uint8_t> usable(kMaxCores);
  for (const int core : usable_cores()) {
    if (core >= 0) usable[static_cast<std::size_t>(core)] = 1;
  }
  require(dl_all_reduce(comm, usable.data(), usable.data(), usable.size(), DL_UINT8, DL_MAX), comm);
  std::vector<int> cores;
  for (std::size_t i = 0; i < usable.size(); ++i) {
    if (usable[i] != 0) cores.push_back(static_cast<int>(i));
  }
  return cores.empty() ? usable_cores() : cores;
}

// For --calibrate. Collective: rank 0 measures while the others sleep.
class Calibration {
 public:
  explicit Calibration(dl_comm* comm) : comm_(comm), cores_(cores_of_all(comm)) {
    if (dl_rank(comm_) == 0) limits_ = calibrate(cores_, dl_size(comm_));
    require(dl_barrier(comm_), comm_);
  }
  // From the present limits. Rank 0 has both.
  std::optional<Bounds> bounds_now(const Case& c, bool in_place, int buffer_pairs) {
    const int ranks = dl_size(comm_);
    if (limits_) measure_again(*limits_, cores_, working_set(c, in_place, ranks, buffer_pairs));
    require(dl_barrier(comm_), comm_);
    return limits_ ? bounds(*limits_, c, in_place, ranks, buffer_pairs) : std::nullopt;
  }
  const std::optional<Limits>& limits() const { return limits_; }

 private:
  dl_comm* comm_;
  std::vector<int> cores_;
  std::optional<Limits> limits_;
};

// The median of each of the two.
Bounds medians(const std::vector<Bounds>& all) {
  const auto of = [&](double Bounds::*bound) {
    std::vector<double> values;
    values.reserve(all.size());
    for (const Bounds& b : all) values.push_back(b.*bound);
    return median(std::move(values));
  };
  return {of(&Bounds::absolute_us), of(&Bounds::private_us)};
}

// Collective: rank 0 opens its files, and tells all ranks whether it could.
int start_printer(dl_comm* comm, const Options& options, const Cases& cases, const Bench& bench,
                  const std::optional<Limits>& limits, std::optional<Printer>& printer) {
  const std::string where = options.device == "cuda" ? ", buffers on GPUs" : "";
  const Header header{.transport = dl_transport(comm) + where,
                      .ranks = dl_size(comm),
                      .places = places(comm),
                      .checked = options.check != 0,
                      .limits = limits,
                      .rotate = options.rotate,
                      .skew_us = cases.skew_us,
                      .overlap = options.overlap,
                      .cpu = options.cpu,
                      .compare = options.compare,
                      .nccl = bench.nccl()};
  Failure failure{0, ""};
  if (dl_rank(comm) == 0) {
    try {
      printer.emplace(open_outputs(options), *cases.kind, header);
    } catch (const Failure& e) {
      failure = e;
    }
  }
  std::int32_t exit_code = failure.exit_code;
  require(dl_broadcast(comm, &exit_code, 1, DL_INT32, 0), comm);
  failure.exit_code = exit_code;
  return exit_code == 0 ? 0 : refuse(comm, failure);
}

// visit(dtype, op, size) for each line of the table.
template <class Visit>
void each_case(const Cases& cases, Visit visit) {
  for (const std::size_t size : cases.sizes) {
    for (const int d : cases.dtypes) {
      for (const int o : cases.ops) {
        const auto dtype = static_cast<dl_dtype>(d);
        const auto op = static_cast<dl_op>(o);
        if (op >= DL_BAND && dtype >= DL_FLOAT16) continue;  // meaningless
        visit(dtype, op, size);
      }
    }
  }
}

// Returns the number of wrong elements.
std::size_t measure_all(Bench& bench, const Cases& cases, const Options& options, int ranks,
                        std::optional<Calibration>& calibration, std::optional<Printer>& printer) {
  std::size_t wrong = 0;
  each_case(cases, [&](dl_dtype dtype, dl_op op, std::size_t size) {
    Row row{make_case(cases.kind->kind, dtype, op, options.root, size, ranks), {}, {}};
    const auto measure = [&](bool in_place) {
      if (!calibration) return bench.measure(row.c, in_place);
      std::vector<Bounds> least;
      Timing timing = bench.measure(row.c, in_place, [&] {
        const auto now = calibration->bounds_now(row.c, in_place, options.rotate);
        if (now) least.push_back(*now);
      });
      if (!least.empty()) timing.least = medians(least);
      return timing;
    };
    if (cases.kind->out_of_place) row.out_of_place = measure(false);
    if (cases.kind->in_place) row.in_place = measure(true);
    wrong += row.out_of_place.value_or(Timing{}).wrong + row.in_place.value_or(Timing{}).wrong;
    if (printer) printer->row(row);
  });
  return wrong;
}

// Rank 0 prints how each case would be done.
int tell_cases(dl_comm* comm, const Cases& cases, int root) {
  each_case(cases, [&](dl_dtype dtype, dl_op op, std::size_t size) {
    if (dl_rank(comm) != 0) return;
    const Case c = make_case(cases.kind->kind, dtype, op, root, size, dl_size(comm));
    char text[256];
    require(dl_explain(comm, cases.kind->name, c.count, dtype, op, root, text, sizeof text), comm);
    std::printf("%12zu %12zu %9s %6s  %s\n", c.bytes, c.count,
                kDtypeNames[static_cast<std::size_t>(dtype)].c_str(),
                cases.kind->reduces ? kOpNames[static_cast<std::size_t>(op)].c_str() : "none",
                text);
  });
  require(dl_barrier(comm), comm);  // no rank leaves before it has answered
  if (std::fflush(stdout) != 0) {
    throw Failure{dlaunch::kExitCannotCreate, "the plan could not be written completely"};
  }
  return 0;
}

// Collective. 0, or the exit code if some rank has no GPU to measure on.
int find_gpus(dl_comm* comm) {
  const char* const local_rank = std::getenv("LOCAL_RANK");
  std::string lacks;
  if (dl_set_stream(comm, nullptr) != DL_OK) lacks = dl_last_error(comm);
  if (lacks.empty()) lacks = use_gpu(local_rank != nullptr ? std::atoi(local_rank) : 0);
  std::int32_t lacking = lacks.empty() ? 0 : 1;
  require(dl_all_reduce(comm, &lacking, &lacking, 1, DL_INT32, DL_MAX), comm);
  if (lacking == 0) return 0;
  return refuse(comm, {dlaunch::kExitSystem,
                       "--device cuda: " + (lacks.empty() ? "another rank lacks a GPU" : lacks)});
}

int run(const Options& options, dl_comm* comm, const Cases& cases) {
  if (options.root >= dl_size(comm)) {
    return refuse(comm,
                  {dlaunch::kExitUsage, "-r: there is no rank " + std::to_string(options.root)});
  }
  if (options.plan) return tell_cases(comm, cases, options.root);
  if (options.calibrate && dl_transport(comm) != std::string("shm")) {
    return refuse(
        comm,
        {dlaunch::kExitUsage,
         "--calibrate: limits are known only for shared memory, and these ranks have transport " +
             std::string(dl_transport(comm))});
  }
  if (options.device == "cuda") {
    if (const int refused = find_gpus(comm); refused != 0) return refused;
  }
  std::optional<Bench> bench;
  std::int32_t lacking = 0;
  try {
    bench.emplace(comm, options, cases);
  } catch (const std::exception&) {  // bad_alloc, length_error
    lacking = 1;
  }
  require(dl_all_reduce(comm, &lacking, &lacking, 1, DL_INT32, DL_MAX), comm);
  if (lacking != 0) {
    return refuse(comm, {dlaunch::kExitSystem,
                         "a rank has no memory for its buffers, which take twice the largest size "
                         "times --rotate; choose a smaller -e"});
  }
  if (options.compare) bench->prepare_compare();
  std::optional<Printer> printer;
  std::optional<Calibration> calibration;
  if (options.calibrate) calibration.emplace(comm);
  const int refused = start_printer(comm, options, cases, *bench,
                                    calibration ? calibration->limits() : std::nullopt, printer);
  if (refused != 0) return refused;
  const std::size_t wrong =
      measure_all(*bench, cases, options, dl_size(comm), calibration, printer);
  if (printer && !printer->finish()) {
    throw Failure{dlaunch::kExitCannotCreate, "the results could not be written completely"};
  }
  return wrong == 0 ? 0 : 1;
}

int run(const CLI::App& app, const Options& options) {
  check_without_model(app);
  const Cases cases = make_cases(app, options);
  dl_comm* comm = nullptr;
  require(dl_init(nullptr, nullptr, &comm), nullptr);
  const int exit_code = run(options, comm, cases);
  dl_finalize(comm);
  return exit_code;
}

void print_once(const File& file, const std::string& text) {
  if (!file) return;
  if (std::fputs(text.c_str(), file.get()) < 0 || std::fflush(file.get()) != 0) {
    throw Failure{dlaunch::kExitCannotCreate, "the results could not be written completely"};
  }
}

bool is_first_rank() {
  const char* rank = std::getenv("RANK");
  return rank == nullptr || std::strcmp(rank, "0") == 0;
}

int run_calibration(const CLI::App& app, const Options& options) {
  check_without_model(app);
  check_without_collective(app, options);
  if (!is_first_rank()) return 0;  // one rank is enough
  const Outputs outputs = open_outputs(options);
  const auto cores = usable_cores();
  const Limits limits = calibrate(cores, static_cast<int>(cores.size()));
  print_once(outputs.table, limits_table(limits));
  print_once(outputs.csv, limits_csv(limits));
  print_once(outputs.json, limits_json(limits) + "\n");
  return 0;
}

// Collective, except with a given link: then one rank is enough. Returns an exit code.
int survey_if_needed(const Wanted& wanted, std::optional<Surveyed>& surveyed) {
  ::unsetenv(dlaunch::contract::kRack);  // the model has no racks
  if (wanted.line) return 0;
  dl_comm* comm = nullptr;
  require(dl_init(nullptr, nullptr, &comm), nullptr);
  int exit_code = 0;
  try {
    surveyed = survey(comm);
  } catch (const Failure& failure) {
    if (failure.exit_code != dlaunch::kExitUsage) throw;
    exit_code = refuse(comm, failure);
  }
  dl_finalize(comm);
  return exit_code;
}

int run_adviser(const CLI::App& app, const Options& options) {
  check_outputs(options);
  const Wanted wanted = wanted_of(app, options);
  std::optional<Surveyed> surveyed;
  const int refused = survey_if_needed(wanted, surveyed);
  if (refused != 0 || !is_first_rank()) return refused;
  const Outputs outputs = open_outputs(options);
  const Forecast forecast = forecast_of(wanted, surveyed);
  print_once(outputs.table, advice_table(forecast));
  print_once(outputs.csv, advice_csv(forecast));
  print_once(outputs.json, advice_json(forecast));
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::Options options;
  CLI::App app{
      "Times the collectives of libdlring with the flags and columns of nccl-tests.\n"
      "With --model it predicts the step time of a training.\n"
      "Run it under dlaunch: dlaunch --nproc 4 dlaunch-bench all_reduce -b 8 -e 256M -f 4"};
  bench::declare(app, options);
  bench::declare_model(app, options.model);
  const bool speaks = bench::is_first_rank();
  try {
    app.parse(argc, argv);
    if (!options.model.model.empty()) return bench::run_adviser(app, options);
    if (options.collective.empty()) return bench::run_calibration(app, options);
    return bench::run(app, options);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return speaks ? app.exit(e) : 0;  // --help
    return bench::refuse({dlaunch::kExitUsage, std::string(e.what()) + "; see --help"});
  } catch (const bench::Failure& e) {
    if (e.exit_code == dlaunch::kExitUsage) return bench::refuse(e);
    std::fprintf(stderr, "dlaunch-bench: %s\n", e.what.c_str());
    return e.exit_code;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "dlaunch-bench: %s\n", e.what());
    return 1;
  }
}
