#include "cli/bench/adviser.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "base/exit_code.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/bench/calibrate.h"
#include "cli/bench/measure.h"

namespace bench {
namespace {

constexpr const char* kModelOptions[] = {"--step",  "--batch",   "--split-batch", "--backward",
                                         "--link",  "--workers", "--per-host",    "--bucket",
                                         "--codec", "--target",  "--inner-steps"};
constexpr const char* kBesides[] = {"--help", "--model", "--datatype", "--csv", "--json"};
// Of 1514 bytes on Ethernet, TCP carries 1448; other frames need the rest.
constexpr double kPayloadShare = 0.95;
constexpr int kMostWorkers = 1'000'000;

Failure refused(const std::string& what) { return {dlaunch::kExitUsage, what}; }

template <class Value>
Value accept(dlaunch::Result<Value> result, const std::string& before = "") {
  if (!result) throw refused(before + result.error().what);
  return *result;
}

struct Unit {
  std::string_view name;
  double factor;
};
// 0: not a number above zero with one of the units.
double number_in(const std::string& text, const std::vector<Unit>& units) {
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number, std::chars_format::fixed);
  if (error != std::errc() || !(number > 0)) return 0;
  const std::string unit = dlaunch::lower_case({end, last});
  for (const auto& known : units) {
    if (unit == known.name) return number * known.factor;
  }
  return 0;
}

double parse_parameters(const std::string& text) {
  const double number =
      number_in(text, {{"", 1}, {"k", 1e3}, {"m", 1e6}, {"b", 1e9}, {"g", 1e9}, {"t", 1e12}});
  if (number >= 1 && number <= 1e14) return std::floor(number);
  throw refused("--model: '" + text + "' is not a number of parameters such as 124M, 7B");
}

double parse_above_zero(const std::string& flag, const std::string& text) {
  const double seconds = dlaunch::to_seconds(accept(dlaunch::parse_duration(text), flag + ": "));
  if (seconds > 0) return seconds;
  throw refused(flag + ": must be above zero");
}

dlaunch::HostLine parse_line(const std::string& text) {
  const auto comma = text.find(',');
  const double bits =
      number_in(text.substr(0, comma), {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}});
  if (comma == std::string::npos || bits == 0) {
    throw refused("--link: '" + text + "' is not RATE,ROUND_TRIP such as 100mbit,40ms");
  }
  const auto round_trip = accept(dlaunch::parse_duration(text.substr(comma + 1)), "--link: ");
  return {dlaunch::to_seconds(round_trip) / 2, kPayloadShare * bits / 8};
}

std::vector<int> parse_workers(const std::string& text) {
  std::vector<int> workers;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const auto word = std::string_view(text).substr(at, end - at);
    workers.push_back(accept(dlaunch::parse_int(word, 2, kMostWorkers, "--workers")));
    at = end + 1;
  }
  std::sort(workers.begin(), workers.end());
  workers.erase(std::unique(workers.begin(), workers.end()), workers.end());
  return workers;
}

void check_fitting(const CLI::App& app) {
  const auto among = [](const std::string& name, const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || among(name, kModelOptions) || among(name, kBesides)) continue;
    throw refused("--model predicts a training and takes no " +
                  (name == "collective" ? std::string("collective") : name));
  }
}

std::vector<Form> forms_for(const std::string& codec, bool floats) {
  if (codec == "auto" && !floats) return {Form::none};
  if (codec == "auto") return {Form::none, Form::bf16, Form::int8};
  if (codec == "none") return {Form::none};
  if (!floats) throw refused("--codec " + codec + " is for float gradients: leave out -d");
  return {codec == "bf16" ? Form::bf16 : Form::int8};
}

double bytes_of_dtype(const std::string& dtype) {
  if (dtype == "float") return 4;
  if (dtype == "half" || dtype == "bfloat16") return 2;
  if (dtype == "double") return 8;
  throw refused("-d: gradients are half, bfloat16, float or double, not " + dtype);
}

}  // namespace

void declare_model(CLI::App& app, ModelOptions& options) {
  app.add_option("--model", options.model,
                 "predict the step of a training with this number of parameters, such as 124M")
      ->type_name("PARAMETERS");
  app.add_option("--step", options.step, "--model: one worker's step without any exchange")
      ->type_name("DURATION");
  app.add_option("--batch", options.batch, "--model: the samples of that step (1)")
      ->check(CLI::Range(1, 1000000000));
  app.add_flag("--split-batch", options.split_batch,
               "--model: the workers share the batch; without this each has one");
  app.add_option("--backward", options.backward, "--model: the share of backward in a step (0.667)")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option(
         "--link", options.link,
         "--model: the link between hosts, such as 100mbit,40ms (measured between the ranks)")
      ->type_name("RATE,ROUND_TRIP");
  app.add_option("--workers", options.workers, "--model: the numbers of workers (2,4,8,16,32,64)")
      ->type_name("N,N...");
  app.add_option("--per-host", options.per_host,
                 "--model: the workers on each host (1, or those of the job)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--bucket", options.bucket, "--model: the size of buckets (the best)")
      ->type_name("SIZE");
  app.add_option("--codec", options.codec, "--model: the wire codec (auto: the best)")
      ->check(CLI::IsMember({"auto", "none", "bf16", "int8"}));
  app.add_option("--target", options.target,
                 "--model: a worker pays if it adds this percentage of the first one (50)")
      ->check(CLI::Range(1.0, 100.0));
  app.add_option("--inner-steps", options.inner_steps,
                 "--model: steps of local training between two exchanges (50)")
      ->check(CLI::Range(1, 1000000));
}

void check_without_model(const CLI::App& app) {
  for (const char* name : kModelOptions) {
    if (app.count(name) > 0) throw refused(std::string(name) + " needs --model");
  }
}

Wanted wanted_of(const CLI::App& app, const Options& options) {
  check_fitting(app);
  const ModelOptions& of = options.model;
  Wanted wanted;
  auto& t = wanted.training;
  t.parameters = parse_parameters(of.model);
  t.element_bytes = bytes_of_dtype(options.dtype);
  if (of.step.empty()) {
    throw refused("--model needs --step, the time of one worker's step without any exchange");
  }
  t.step_s = parse_above_zero("--step", of.step);
  t.backward = of.backward;
  t.batch = of.batch;
  t.split_batch = of.split_batch;
  t.per_host = of.per_host;
  t.inner_steps = of.inner_steps;
  if (!of.link.empty()) wanted.line = parse_line(of.link);
  wanted.workers = parse_workers(of.workers);
  wanted.forms = forms_for(of.codec, options.dtype == "float");
  wanted.buckets = bucket_sizes(t.bytes());
  if (!of.bucket.empty()) {
    const auto bytes = static_cast<double>(accept(dlaunch::parse_bytes(of.bucket), "--bucket: "));
    // Smaller ones would be a call for each few parameters.
    if (bytes < 1024) throw refused("--bucket: must be at least 1K");
    wanted.buckets = {std::min(bytes, t.bytes())};
  }
  wanted.target = of.target / 100;
  return wanted;
}

Forecast forecast_of(const Wanted& wanted, const std::optional<Surveyed>& surveyed) {
  Forecast forecast{.training = wanted.training,
                    .line = surveyed ? surveyed->line : *wanted.line,
                    .measured_hosts = surveyed ? surveyed->hosts : 0,
                    .target = wanted.target,
                    .rows = {}};
  auto& t = forecast.training;
  if (t.per_host == 0) t.per_host = surveyed ? surveyed->per_host : 1;
  for (const int workers : wanted.workers) {
    forecast.rows.push_back(predict_best(t, forecast.line, workers, wanted.forms, wanted.buckets));
  }
  return forecast;
}

namespace {

// Small ones cost latency and large ones bytes. Between them the latency decides whether libdlring
// saves latency or bytes, and a wrong guess of what it did would change the fitted rate.
constexpr std::size_t kSurveySizes[] = {8, 4 << 10, 3 << 20, 12 << 20, 48 << 20};
constexpr double kSurveySeconds = 0.5;  // for a size
constexpr double kLongEnough = 0.1;     // seconds of one call: the bytes count, and not the latency

// Seconds of one all_reduce of many in a row, as buckets are; that of the slowest rank. Integers,
// so that no wire codec changes their size.
double survey_size(dl_comm* comm, std::vector<std::int32_t>& data, std::size_t bytes) {
  const auto series = [&](int count) {
    require(dl_barrier(comm), comm);
    const double began = now_us();
    for (int i = 0; i < count; ++i) {
      require(
          dl_all_reduce(comm, data.data(), data.data(), bytes / sizeof data[0], DL_INT32, DL_MAX),
          comm);
    }
    double seconds = (now_us() - began) / 1e6 / count;
    require(dl_all_reduce(comm, &seconds, &seconds, 1, DL_FLOAT64, DL_MAX), comm);
    return seconds;
  };
  const double once = series(2);  // opens the connections, and their windows
  constexpr int kSeries = 3;
  const int count = std::clamp(static_cast<int>(kSurveySeconds / kSeries / once), 2, 1000);
  std::vector<double> times(kSeries);
  for (double& time : times) time = series(count);
  return median(std::move(times));
}

dlaunch::HostLine survey_line(dl_comm* comm) {
  std::vector<Measured> measured;
  std::vector<std::int32_t> data;
  for (const std::size_t bytes : kSurveySizes) {
    data.resize(bytes / sizeof data[0]);
    const double seconds = survey_size(comm, data, bytes);
    measured.push_back({static_cast<double>(bytes), seconds});
    if (seconds > kLongEnough && measured.size() > 2) break;
  }
  return fit_line(measured, dl_size(comm));
}

// By rank: the first rank on its host.
std::vector<int> first_of_hosts(dl_comm* comm) {
  constexpr std::size_t kWidth = 64;
  const auto ranks = static_cast<std::size_t>(dl_size(comm));
  char host[kWidth] = "";
  ::gethostname(host, kWidth - 1);
  std::vector<char> all(kWidth * ranks);
  require(dl_all_gather(comm, host, all.data(), kWidth, DL_UINT8), comm);
  std::vector<int> first;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::size_t f = 0;
    while (std::memcmp(&all[f * kWidth], &all[r * kWidth], kWidth) != 0) ++f;
    first.push_back(static_cast<int>(f));
  }
  return first;
}

}  // namespace

Surveyed survey(dl_comm* comm) {
  const auto first = first_of_hosts(comm);
  int hosts = 0;
  for (std::size_t r = 0; r < first.size(); ++r) hosts += first[r] == static_cast<int>(r) ? 1 : 0;
  if (hosts < 2) {
    throw refused(
        "--model: all ranks are on one host, so there is no link to measure; start ranks on "
        "several hosts, or give --link RATE,ROUND_TRIP");
  }
  const int own = dl_rank(comm);
  const bool speaks = first[static_cast<std::size_t>(own)] == own;
  dl_comm* group = nullptr;
  require(dl_split(comm, speaks ? 0 : 1, own, &group), comm);
  dlaunch::HostLine line;
  if (speaks) line = survey_line(group);
  dl_finalize(group);
  require(dl_barrier(comm), comm);
  return {line, hosts,
          static_cast<int>((first.size() + static_cast<std::size_t>(hosts) - 1) /
                           static_cast<std::size_t>(hosts))};
}

}  // namespace bench
