// dlaunch-bench: times the collectives of libdlring with nccl-tests' flags and columns. Runs as the
// workers of a job; through the public API only.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/exit_code.h"
#include "base/units.h"
#include "cli/bench/bench_case.h"
#include "cli/bench/bench_output.h"

namespace bench {
namespace {

constexpr double kBudgetSeconds = 0.25;  // of timed operations per size and place, without -n

struct Options {
  std::string collective;
  std::string min_bytes = "32M", max_bytes, step_bytes;
  double factor = 2;
  int iterations = 0, warmup = 5, check = 1, root = 0;
  std::string dtype = "float", op = "sum";
  std::string csv, json;  // "": not wanted; "-": standard output, in place of the table
};

// What a rank does on an error: says it in one line and ends the job through its exit code.
struct Failure {
  int exit_code;
  std::string what;
};

void require(dl_result result, dl_comm* comm) {
  if (result != DL_OK) throw Failure{1, dl_last_error(comm)};
}

std::size_t parse_size(const std::string& flag, const std::string& text) {
  const auto bytes = dlaunch::parse_bytes(text);
  if (!bytes) throw Failure{dlaunch::kExitUsage, flag + ": " + bytes.error().what};
  return static_cast<std::size_t>(*bytes);
}

// "all", or one of the names, as indices.
std::vector<int> select(const std::string& flag, const std::string& text,
                        const std::vector<std::string>& names) {
  std::vector<int> chosen;
  std::string known;
  for (std::size_t i = 0; i < names.size(); ++i) {
    known += names[i] + " ";
    if (text == "all" || text == names[i]) chosen.push_back(static_cast<int>(i));
  }
  if (chosen.empty()) {
    throw Failure{dlaunch::kExitUsage, flag + ": '" + text + "' is none of: " + known + "all"};
  }
  return chosen;
}

std::vector<std::size_t> sizes(const Options& options) {
  const std::size_t first = parse_size("-b", options.min_bytes);
  const std::size_t last = options.max_bytes.empty() ? first : parse_size("-e", options.max_bytes);
  const std::size_t step = options.step_bytes.empty() ? 0 : parse_size("-i", options.step_bytes);
  if (last < first) throw Failure{dlaunch::kExitUsage, "-e is smaller than -b"};
  if (step == 0 && !(options.factor > 1 && std::isfinite(options.factor))) {
    throw Failure{dlaunch::kExitUsage, "-f: the factor must be above 1"};
  }
  std::vector<std::size_t> all;
  for (std::size_t size = first; size <= last;) {
    all.push_back(size);
    const auto scaled = static_cast<std::size_t>(static_cast<double>(size) * options.factor);
    size = step > 0 ? size + step : std::max(scaled, size + 1);
  }
  return all;
}

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

class Bench {
 public:
  Bench(dl_comm* comm, const Options& options, std::size_t max_bytes)
      : comm_(comm), options_(options), buffers_(dl_rank(comm), dl_size(comm), max_bytes) {}

  // Collective; the result is the same on all ranks.
  Timing measure(const Case& c, bool in_place) {
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

 private:
  std::size_t checked_run(const Case& c, bool in_place) {
    buffers_.fill(c, in_place);
    require(buffers_.run(comm_, c, in_place), comm_);
    std::uint64_t wrong = buffers_.wrong(c, in_place);
    require(dl_all_reduce(comm_, &wrong, &wrong, 1, DL_UINT64, DL_SUM), comm_);
    return static_cast<std::size_t>(wrong);
  }

  double timed_run(const Case& c, bool in_place) {
    require(dl_barrier(comm_), comm_);
    const double started = now_us();
    require(buffers_.run(comm_, c, in_place), comm_);
    return now_us() - started;
  }

  // As many as fit the budget, agreed on by all ranks.
  int iterations(const Case& c, bool in_place) {
    if (options_.iterations > 0) return options_.iterations;
    double estimate = 0;
    for (int i = 0; i < 3; ++i) estimate = std::max(estimate, timed_run(c, in_place));
    require(dl_all_reduce(comm_, &estimate, &estimate, 1, DL_FLOAT64, DL_MAX), comm_);
    return std::clamp(static_cast<int>(kBudgetSeconds * 1e6 / std::max(estimate, 0.1)), 5, 2000);
  }

  dl_comm* comm_;
  const Options& options_;
  Buffers buffers_;
};

// Where every rank runs, for the table's head.
std::vector<std::string> places(dl_comm* comm) {
  constexpr std::size_t kWidth = 96;
  char host[64] = "?";
  ::gethostname(host, sizeof host - 1);
  char own[kWidth] = "";
  std::snprintf(own, sizeof own, "pid %6d on %s", ::getpid(), host);
  std::vector<char> all(kWidth * static_cast<std::size_t>(dl_size(comm)));
  require(dl_all_gather(comm, own, all.data(), kWidth, DL_UINT8), comm);
  std::vector<std::string> out;
  for (int r = 0; r < dl_size(comm); ++r)
    out.emplace_back(&all[static_cast<std::size_t>(r) * kWidth]);
  return out;
}

// An error that all ranks have alike. The others stay until rank 0 has said it: the launcher ends a
// job as soon as its first worker has failed.
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

// What the command line asks for, checked.
struct Plan {
  const KindInfo* kind;
  std::vector<std::size_t> sizes;
  std::vector<int> dtypes, ops;
};

Plan make_plan(const Options& options) {
  Plan plan{find_kind(options.collective), {}, {}, {}};
  if (plan.kind == nullptr) {
    std::string known;
    for (const auto& k : kinds()) known += std::string(" ") + k.name;
    throw Failure{dlaunch::kExitUsage, "'" + options.collective + "' is none of:" + known};
  }
  plan.dtypes = select("-d", options.dtype, kDtypeNames);
  plan.ops = plan.kind->reduces ? select("-o", options.op, kOpNames) : std::vector<int>{DL_SUM};
  if (plan.ops[0] >= DL_BAND && plan.dtypes[0] >= DL_FLOAT16) {  // all others come before these
    throw Failure{dlaunch::kExitUsage, "-o " + options.op + " is for integers; choose another -d"};
  }
  plan.sizes = plan.kind->kind == Kind::barrier ? std::vector<std::size_t>{0} : sizes(options);
  if (options.csv == "-" && options.json == "-") {
    throw Failure{dlaunch::kExitUsage, "--csv and --json cannot both go to standard output"};
  }
  return plan;
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

// Collective: rank 0 opens its files, and all ranks learn whether it could.
int start_printer(dl_comm* comm, const Options& options, const KindInfo& kind,
                  std::optional<Printer>& printer) {
  const Header header{dl_transport(comm), dl_size(comm), places(comm)};
  Failure failure{0, ""};
  if (dl_rank(comm) == 0) {
    try {
      printer.emplace(open_outputs(options), kind, header, options.check != 0);
    } catch (const Failure& e) {
      failure = e;
    }
  }
  std::int32_t exit_code = failure.exit_code;
  require(dl_broadcast(comm, &exit_code, 1, DL_INT32, 0), comm);
  failure.exit_code = exit_code;
  return exit_code == 0 ? 0 : refuse(comm, failure);
}

// Returns the number of wrong elements.
std::size_t measure_all(Bench& bench, const Plan& plan, int root, int ranks,
                        std::optional<Printer>& printer) {
  std::size_t wrong = 0;
  for (const std::size_t size : plan.sizes) {
    for (const int d : plan.dtypes) {
      for (const int o : plan.ops) {
        const auto dtype = static_cast<dl_dtype>(d);
        const auto op = static_cast<dl_op>(o);
        if (op >= DL_BAND && dtype >= DL_FLOAT16) continue;  // has no meaning
        Row row{make_case(plan.kind->kind, dtype, op, root, size, ranks), {}, {}};
        if (plan.kind->out_of_place) row.out_of_place = bench.measure(row.c, false);
        if (plan.kind->in_place) row.in_place = bench.measure(row.c, true);
        wrong += row.out_of_place.value_or(Timing{}).wrong + row.in_place.value_or(Timing{}).wrong;
        if (printer) printer->row(row);
      }
    }
  }
  return wrong;
}

int run(const Options& options, dl_comm* comm, const Plan& plan) {
  if (options.root >= dl_size(comm)) {
    return refuse(comm, {dlaunch::kExitUsage, "-r: not a rank: " + std::to_string(options.root)});
  }
  std::optional<Bench> bench;
  std::int32_t lacking = 0;
  try {
    bench.emplace(comm, options, plan.sizes.back());
  } catch (const std::exception&) {  // bad_alloc, length_error
    lacking = 1;
  }
  require(dl_all_reduce(comm, &lacking, &lacking, 1, DL_INT32, DL_MAX), comm);
  if (lacking != 0) {
    return refuse(comm, {dlaunch::kExitSystem,
                         "no memory for the buffers, twice the largest size "
                         "on every rank; choose a smaller -e"});
  }
  std::optional<Printer> printer;
  const int refused = start_printer(comm, options, *plan.kind, printer);
  if (refused != 0) return refused;
  const std::size_t wrong = measure_all(*bench, plan, options.root, dl_size(comm), printer);
  if (printer && !printer->finish()) {
    throw Failure{dlaunch::kExitCannotCreate, "the results could not be written completely"};
  }
  return wrong == 0 ? 0 : 1;
}

int run(const Options& options) {
  const Plan plan = make_plan(options);
  dl_comm* comm = nullptr;
  require(dl_init(nullptr, nullptr, &comm), nullptr);
  const int exit_code = run(options, comm, plan);
  dl_finalize(comm);
  return exit_code;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::Options options;
  CLI::App app{
      "Times the collectives of libdlring with the flags and columns of nccl-tests.\n"
      "Run it under dlaunch: dlaunch --nproc 4 dlaunch-bench all_reduce -b 8 -e 256M -f 4"};
  app.add_option("collective", options.collective,
                 "all_reduce reduce_scatter all_gather broadcast reduce gather scatter "
                 "all_to_all sendrecv barrier")
      ->required();
  app.add_option("-b,--minbytes", options.min_bytes, "first size (32M)");
  app.add_option("-e,--maxbytes", options.max_bytes, "last size (the first)");
  app.add_option("-f,--stepfactor", options.factor, "next size: this one times the factor (2)");
  app.add_option("-i,--stepbytes", options.step_bytes, "next size: this one plus these bytes");
  app.add_option("-n,--iters", options.iterations, "timed operations (as many as take 0.25 s)")
      ->check(CLI::Range(1, 1000000000));
  app.add_option("-w,--warmup_iters", options.warmup, "operations before (5)")
      ->check(CLI::Range(0, 1000000000));
  app.add_option("-c,--check", options.check, "0: do not check results")->check(CLI::Range(0, 1));
  app.add_option("-d,--datatype", options.dtype, "element type, or all (float)");
  app.add_option("-o,--op", options.op, "reduction, or all (sum)");
  app.add_option("-r,--root", options.root, "root of broadcast, reduce, gather, scatter (0)")
      ->check(CLI::NonNegativeNumber);
  const auto add_output = [&app](const char* flag, std::string& path, const char* what) {
    app.add_option_function<std::vector<std::string>>(
           flag,
           [&path](const std::vector<std::string>& words) {
             path = words.empty() || words[0].empty() ? "-" : words[0];
           },
           what)
        ->expected(0, 1)
        ->type_name("[FILE]");
  };
  add_output("--csv", options.csv, "comma-separated values; to a file, or in place of the table");
  add_output("--json", options.json, "JSON; to a file, or in place of the table");
  const char* rank = std::getenv("RANK");
  const bool speaks = rank == nullptr || std::strcmp(rank, "0") == 0;
  try {
    app.parse(argc, argv);
    return bench::run(options);
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
