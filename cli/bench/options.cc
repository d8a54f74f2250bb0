#include "cli/bench/options.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <CLI/CLI.hpp>

#include "base/exit_code.h"
#include "base/units.h"
#include "cli/bench/bounds.h"
#include "cli/bench/nccl_direct.h"

namespace bench {
namespace {

Failure usage(const std::string& what) { return {dlaunch::kExitUsage, what}; }

std::size_t parse_size(const std::string& flag, const std::string& text) {
  const auto bytes = dlaunch::parse_bytes(text);
  if (!bytes) throw usage(flag + ": " + bytes.error().what);
  return static_cast<std::size_t>(*bytes);
}

// The indices of "all", or of one of the names.
std::vector<int> select(const std::string& flag, const std::string& text,
                        const std::vector<std::string>& names) {
  std::vector<int> chosen;
  std::string known;
  for (std::size_t i = 0; i < names.size(); ++i) {
    known += names[i] + " ";
    if (text == "all" || text == names[i]) chosen.push_back(static_cast<int>(i));
  }
  if (chosen.empty()) throw usage(flag + ": '" + text + "' is none of: " + known + "all");
  return chosen;
}

std::vector<std::size_t> sizes(const Options& options) {
  const std::size_t first = parse_size("-b", options.min_bytes);
  const std::size_t last = options.max_bytes.empty() ? first : parse_size("-e", options.max_bytes);
  const std::size_t step = options.step_bytes.empty() ? 0 : parse_size("-i", options.step_bytes);
  if (last < first) throw usage("-e is smaller than -b");
  if (step == 0 && !(options.factor > 1 && std::isfinite(options.factor))) {
    throw usage("-f: the factor must be above 1");
  }
  std::vector<std::size_t> all;
  for (std::size_t size = first; size <= last;) {
    all.push_back(size);
    const auto scaled = static_cast<std::size_t>(static_cast<double>(size) * options.factor);
    size = step > 0 ? size + step : std::max(scaled, size + 1);
  }
  return all;
}

double parse_skew(const std::string& text) {
  if (text.empty()) return 0;
  const auto skew = dlaunch::parse_duration(text);
  if (!skew) throw usage("--skew: " + skew.error().what);
  if (*skew <= dlaunch::Duration::zero()) throw usage("--skew: must be above zero");
  return std::chrono::duration<double, std::micro>(*skew).count();
}

// --plan measures nothing, so options for a measurement are refused.
void check_plan(const CLI::App& app, const KindInfo& kind) {
  if (kind.kind == Kind::sendrecv) {
    throw usage("--plan: sendrecv is two messages and no collective: choose another");
  }
  for (const char* name : {"-n", "-w", "-c", "--alloc", "--rotate", "--skew", "--overlap", "--cpu",
                           "--calibrate", "--device", "--compare", "--queue", "--csv", "--json"}) {
    if (app.count(name) > 0) throw usage(std::string("--plan measures nothing: leave out ") + name);
  }
}

// Refuses meaningless combinations.
void check_modes(const Options& options, const KindInfo& kind) {
  if (options.calibrate && !has_bounds(kind.kind)) {
    throw usage(std::string("--calibrate: no limit is known for ") + kind.name +
                ", only for all_reduce, reduce_scatter, all_gather and broadcast");
  }
  if (options.overlap && kind.kind != Kind::all_reduce) {
    throw usage("--overlap is measured with all_reduce only");
  }
  if (options.overlap && !options.skew.empty()) {
    throw usage("--overlap and --skew cannot be combined");
  }
  if ((options.rotate > 1 || options.alloc) && kind.kind == Kind::barrier) {
    throw usage(std::string(options.alloc ? "--alloc" : "--rotate") + ": a barrier has no buffers");
  }
  if (options.device == "cuda" && (options.alloc || options.calibrate)) {
    throw usage(std::string(options.alloc ? "--alloc" : "--calibrate") +
                " is about the host's memory: leave out --device cuda");
  }
  if (options.compare && options.device != "cuda") {
    throw usage("--compare is with NCCL: it needs --device cuda");
  }
  if (options.compare && !NcclDirect::has(kind.kind)) {
    throw usage(std::string("--compare: NCCL has no function for ") + kind.name +
                ", only for all_reduce, reduce_scatter, all_gather, broadcast and reduce");
  }
  if (options.queue > 1 && (options.overlap || !options.skew.empty())) {
    throw usage("--queue cannot be combined with --overlap or --skew");
  }
  if (options.alloc && kind.kind == Kind::sendrecv) {
    throw usage("--alloc: memory of dl_alloc does not speed up messages");
  }
  if (options.cpu && (options.csv == "-" || options.json == "-")) {
    throw usage("--cpu adds a column to the table; CSV and JSON have it anyway: leave it out");
  }
}

void declare_sizes(CLI::App& app, Options& options) {
  app.add_option("-b,--minbytes", options.min_bytes, "the first size (32M)");
  app.add_option("-e,--maxbytes", options.max_bytes, "the last size (the first)");
  app.add_option("-f,--stepfactor", options.factor,
                 "multiply each size by this to get the next (2)");
  app.add_option("-i,--stepbytes", options.step_bytes,
                 "add these bytes to each size to get the next");
  app.add_option("-n,--iters", options.iterations,
                 "the number of timed operations (as many as fit in 0.25 s)")
      ->check(CLI::Range(1, 1000000000));
  app.add_option("-w,--warmup_iters", options.warmup,
                 "the number of operations before the timed ones (5)")
      ->check(CLI::Range(0, 1000000000));
  app.add_option("-c,--check", options.check, "1: check the results; 0: do not (1)")
      ->check(CLI::Range(0, 1));
  app.add_option("-d,--datatype", options.dtype, "the element type, or all (float)");
  app.add_option("-o,--op", options.op, "the reduction, or all (sum)");
  app.add_option("-r,--root", options.root, "the root of broadcast, reduce, gather, scatter (0)")
      ->check(CLI::NonNegativeNumber);
}

void declare_modes(CLI::App& app, Options& options) {
  app.add_option("--device", options.device,
                 "where the buffers are: host, or cuda: on the GPU of the rank's LOCAL_RANK (host)")
      ->check(CLI::IsMember({"host", "cuda"}));
  app.add_flag("--compare", options.compare,
               "also measure NCCL alone, and the way through the host's memory");
  app.add_option(
         "--queue", options.queue,
         "start this many calls before waiting for them; the times are those of one call (1)")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--rotate", options.rotate, "use this many pairs of buffers in turn (1)")
      ->check(CLI::Range(1, 100000));
  app.add_flag("--plan", options.plan, "print how each size would be done, and measure nothing");
  app.add_flag("--alloc", options.alloc,
               "allocate the buffers with dl_alloc, so that the ranks of a host share them");
  app.add_option("--skew", options.skew, "rank 0 arrives this much later; times count from then")
      ->type_name("DURATION");
  app.add_flag("--overlap", options.overlap,
               "measure how much time an all_reduce in the background saves");
  app.add_flag("--cpu", options.cpu, "add a column with CPU seconds per GB");
  app.add_flag("--calibrate", options.calibrate,
               "measure what limits collectives on this machine; with a collective, also the share "
               "that it reaches");
}

void declare_output(CLI::App& app, const char* flag, std::string& path, const char* what) {
  app.add_option_function<std::vector<std::string>>(
         flag,
         [&path](const std::vector<std::string>& words) {
           path = words.empty() || words[0].empty() ? "-" : words[0];
         },
         what)
      ->expected(0, 1)
      ->allow_extra_args(false)  // the word behind the file is the collective
      ->type_name("[FILE]");
}

}  // namespace

void declare(CLI::App& app, Options& options) {
  app.add_option("collective", options.collective,
                 "all_reduce reduce_scatter all_gather broadcast reduce gather scatter "
                 "all_to_all sendrecv barrier");
  declare_sizes(app, options);
  declare_modes(app, options);
  declare_output(app, "--csv", options.csv,
                 "write comma-separated values to FILE, or print them in place of the table");
  declare_output(app, "--json", options.json,
                 "write JSON to FILE, or print it in place of the table");
}

void check_outputs(const Options& options) {
  if (options.csv == "-" && options.json == "-") {
    throw usage("--csv and --json cannot both go to standard output");
  }
}

void check_without_collective(const CLI::App& app, const Options& options) {
  if (!options.calibrate) {
    throw usage("name a collective, or give --calibrate or --model; see --help");
  }
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    const bool fits = name == "--calibrate" || name == "--csv" || name == "--json";
    if (option->count() > 0 && !fits) throw usage(name + " needs a collective");
  }
  check_outputs(options);
}

Cases make_cases(const CLI::App& app, const Options& options) {
  Cases cases{find_kind(options.collective), {}, {}, {}, 0};
  if (cases.kind == nullptr) {
    std::string known;
    for (const auto& k : kinds()) known += std::string(" ") + k.name;
    throw usage("'" + options.collective + "' is none of:" + known);
  }
  if (options.plan) check_plan(app, *cases.kind);
  check_modes(options, *cases.kind);
  cases.skew_us = parse_skew(options.skew);
  cases.dtypes = select("-d", options.dtype, kDtypeNames);
  cases.ops = cases.kind->reduces ? select("-o", options.op, kOpNames) : std::vector<int>{DL_SUM};
  if (cases.ops[0] >= DL_BAND && cases.dtypes[0] >= DL_FLOAT16) {  // all others come before these
    throw usage("-o " + options.op + " is for integers; choose another -d");
  }
  cases.sizes = cases.kind->kind == Kind::barrier ? std::vector<std::size_t>{0} : sizes(options);
  check_outputs(options);
  return cases;
}

}  // namespace bench
