// dlaunch-bench: times the collectives of libdlring with nccl-tests' flags and columns. Runs as the
// workers of a job; through the public API only.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
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
  bool csv = false, json = false;
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
  if (step == 0 && options.factor <= 1) {
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

int run(const Options& options) {
  const KindInfo* kind = find_kind(options.collective);
  if (kind == nullptr) {
    std::string known;
    for (const auto& k : kinds()) known += std::string(" ") + k.name;
    throw Failure{dlaunch::kExitUsage, "'" + options.collective + "' is none of:" + known};
  }
  const auto dtypes = select("-d", options.dtype, kDtypeNames);
  const auto ops = kind->reduces ? select("-o", options.op, kOpNames) : std::vector<int>{DL_SUM};
  const auto all_sizes = kind->kind == Kind::barrier ? std::vector<std::size_t>{0} : sizes(options);

  dl_comm* comm = nullptr;
  require(dl_init(nullptr, nullptr, &comm), nullptr);
  if (options.root < 0 || options.root >= dl_size(comm)) {
    throw Failure{dlaunch::kExitUsage, "-r: not a rank: " + std::to_string(options.root)};
  }
  const Header header{dl_transport(comm), dl_size(comm), places(comm)};
  std::optional<Printer> printer;
  if (dl_rank(comm) == 0) {
    const Format format = options.csv ? Format::csv : options.json ? Format::json : Format::table;
    printer.emplace(format, *kind, header, options.check != 0);
  }
  Bench bench(comm, options, all_sizes.back());
  std::size_t wrong = 0;
  for (const std::size_t size : all_sizes) {
    for (const int d : dtypes) {
      for (const int o : ops) {
        const auto dtype = static_cast<dl_dtype>(d);
        const auto op = static_cast<dl_op>(o);
        if (op >= DL_BAND && dtype >= DL_FLOAT16) continue;  // has no meaning
        Row row{make_case(kind->kind, dtype, op, options.root, size, dl_size(comm)), {}, {}};
        if (kind->out_of_place) row.out_of_place = bench.measure(row.c, false);
        if (kind->kind != Kind::sendrecv) row.in_place = bench.measure(row.c, true);
        wrong += row.out_of_place.value_or(Timing{}).wrong + row.in_place.value_or(Timing{}).wrong;
        if (printer) printer->row(row);
      }
    }
  }
  if (printer) printer->finish();
  dl_finalize(comm);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::Options options;
  CLI::App app{
      "Times the collectives of libdlring with the flags and columns of nccl-tests.\n"
      "Run it under dlaunch: dlaunch --nproc 4 dlaunch-bench all_reduce -b 8 -e 256M -f 4"};
  app.add_option("collective", options.collective,
                 "all_reduce reduce_scatter all_gather broadcast sendrecv barrier")
      ->required();
  app.add_option("-b,--minbytes", options.min_bytes, "first size (32M)");
  app.add_option("-e,--maxbytes", options.max_bytes, "last size (the first)");
  app.add_option("-f,--stepfactor", options.factor, "next size: this one times the factor (2)");
  app.add_option("-i,--stepbytes", options.step_bytes, "next size: this one plus these bytes");
  app.add_option("-n,--iters", options.iterations, "timed operations (as many as take 0.25 s)");
  app.add_option("-w,--warmup_iters", options.warmup, "operations before (5)");
  app.add_option("-c,--check", options.check, "0: do not check results");
  app.add_option("-d,--datatype", options.dtype, "element type, or all (float)");
  app.add_option("-o,--op", options.op, "reduction, or all (sum)");
  app.add_option("-r,--root", options.root, "root of a broadcast (0)");
  auto* csv = app.add_flag("--csv", options.csv, "comma-separated values instead of the table");
  app.add_flag("--json", options.json, "JSON instead of the table")->excludes(csv);
  const char* rank = std::getenv("RANK");
  const bool speaks = rank == nullptr || std::strcmp(rank, "0") == 0;
  try {
    app.parse(argc, argv);
    return bench::run(options);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return speaks ? app.exit(e) : 0;  // --help
    if (speaks) std::fprintf(stderr, "dlaunch-bench: %s; see --help\n", e.what());
    return dlaunch::kExitUsage;
  } catch (const bench::Failure& e) {
    if (speaks || e.exit_code == 1) std::fprintf(stderr, "dlaunch-bench: %s\n", e.what.c_str());
    return e.exit_code;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "dlaunch-bench: %s\n", e.what());
    return 1;
  }
}
