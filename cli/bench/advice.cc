#include "cli/bench/advice.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/contract.h"
#include "base/units.h"

namespace bench {
namespace {

double alone_samples_per_s(const Training& training) { return training.batch / training.step_s; }

// What each worker between two rows adds, as a share of the first worker's samples/s.
double gain(const Forecast& forecast, std::size_t row) {
  const auto& p = forecast.rows[row];
  const double first = alone_samples_per_s(forecast.training);
  const int before = row > 0 ? forecast.rows[row - 1].workers : 1;
  const double samples = row > 0 ? forecast.rows[row - 1].samples_per_s : first;
  return (p.samples_per_s - samples) / (p.workers - before) / first;
}

std::size_t rows_that_pay(const Forecast& forecast) {
  std::size_t row = 0;
  while (row < forecast.rows.size() && gain(forecast, row) >= forecast.target) ++row;
  return row;
}

std::string workers_text(int workers) {
  return fmt::format("{} worker{}", workers, workers == 1 ? "" : "s");
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

std::string rate_text(double samples) {
  return samples < 100 ? fmt::format("{:.3g}", samples) : fmt::format("{:.0f}", samples);
}

std::string size_text(double bytes) {
  constexpr double kMiB = 1 << 20;
  return bytes < kMiB ? fmt::format("{:.0f} KiB", std::ceil(bytes / 1024))
                      : fmt::format("{:.0f} MiB", std::ceil(bytes / kMiB));
}

const char* form_name(const Prediction& p) { return kFormNames[static_cast<int>(p.choice.form)]; }

std::string best_of(const Forecast& forecast) {
  int workers = 1;
  double most = alone_samples_per_s(forecast.training);
  for (const auto& p : forecast.rows) {
    if (p.samples_per_s <= most) continue;
    workers = p.workers;
    most = p.samples_per_s;
  }
  return fmt::format("The most is {} samples/s, with {}.", rate_text(most), workers_text(workers));
}

std::string about_workers(const Forecast& forecast) {
  const std::size_t pay = rows_that_pay(forecast);
  if (pay == forecast.rows.size()) {
    return fmt::format("Up to {}, each one adds at least {} of what the first one does. {}",
                       workers_text(forecast.rows.back().workers), percent(forecast.target),
                       best_of(forecast));
  }
  const int stop = most_that_pay(forecast);
  const double added = gain(forecast, pay);
  const std::string next = workers_text(forecast.rows[pay].workers);
  const std::string why =
      added < 0 ? fmt::format("{} together are slower than {}", next, stop)
                : fmt::format(
                      "each further one up to {} adds {} of what the first one does, less "
                      "than {}",
                      next, percent(added), percent(forecast.target));
  return fmt::format("More than {} {} not pay: {}. {}", workers_text(stop),
                     stop == 1 ? "does" : "do", why, best_of(forecast));
}

// The largest forecast that pays and exchanges something, else the smallest that does.
const Prediction* advised(const Forecast& forecast) {
  const Prediction* found = nullptr;
  for (std::size_t row = 0; row < forecast.rows.size(); ++row) {
    const auto& p = forecast.rows[row];
    if (p.exchange_s > 0 && (found == nullptr || row < rows_that_pay(forecast))) found = &p;
  }
  return found;
}

std::string about_exchange(const Forecast& forecast) {
  const Prediction* const chosen = advised(forecast);
  if (chosen == nullptr) return "All workers are on one host: nothing crosses the link.";
  const Prediction& p = *chosen;
  const std::string buckets = p.choice.bucket_bytes >= forecast.training.bytes()
                                  ? "Exchange all gradients in one bucket"
                                  : "Take buckets of " + size_text(p.choice.bucket_bytes);
  const std::string codec = p.choice.form == Form::none
                                ? std::string("no wire codec")
                                : fmt::format("the wire codec {} ({}={})", form_name(p),
                                              dlaunch::contract::kWireCodec, form_name(p));
  return fmt::format("{} and {} for {}: a step takes {}.", buckets, codec, workers_text(p.workers),
                     dlaunch::format_seconds(p.step_s));
}

std::string about_local(const Forecast& forecast) {
  const auto found = std::find_if(forecast.rows.begin(), forecast.rows.end(), [](const auto& p) {
    return p.efficiency < kBusyEnough && p.local_samples_per_s > p.samples_per_s;
  });
  const std::string what = fmt::format(
      "Local training (LocalSGD, DiLoCo; {} steps between two exchanges of 4 bits for a parameter)",
      forecast.training.inner_steps);
  if (found == forecast.rows.end()) {
    return what + " is not worth it: synchronous training is fast enough.";
  }
  return fmt::format(
      "{} is worth it from {} on: it makes {} samples/s there, {:.1f} times as many "
      "as synchronous training, which computes {} of the time.",
      what, workers_text(found->workers), rate_text(found->local_samples_per_s),
      found->local_samples_per_s / found->samples_per_s, percent(found->efficiency));
}

std::string head(const Forecast& forecast) {
  const auto& t = forecast.training;
  const std::string source = forecast.measured_hosts > 0
                                 ? fmt::format("measured between {} hosts", forecast.measured_hosts)
                                 : "as given";
  return fmt::format(
      "# dlaunch-bench --model: {:.4g} million parameters, {:.4g} MB of gradients\n"
      "# one worker: a step of {}, {} of it backward, {:g} samples{}\n"
      "# link: {} for gradients, round trip {}, {}; {} per host\n#\n",
      t.parameters / 1e6, t.bytes() / 1e6, dlaunch::format_seconds(t.step_s), percent(t.backward),
      t.batch, t.split_batch ? " for all workers together" : "",
      dlaunch::format_rate(forecast.line.bytes_per_second),
      dlaunch::format_seconds(2 * forecast.line.latency), source, workers_text(t.per_host));
}

}  // namespace

int most_that_pay(const Forecast& forecast) {
  const std::size_t pay = rows_that_pay(forecast);
  return pay > 0 ? forecast.rows[pay - 1].workers : 1;
}

std::vector<std::string> advice(const Forecast& forecast) {
  return {about_workers(forecast), about_exchange(forecast), about_local(forecast)};
}

std::string advice_table(const Forecast& forecast) {
  std::string text = head(forecast);
  text += fmt::format("#{:>8} {:>10} {:>10} {:>10} {:>10} {:>9} {:>6} {:>10} {:>10} {:>10}\n", "",
                      "exchange", "step", "efficiency", "samples/s", "bucket", "codec",
                      "local step", "efficiency", "samples/s");
  text += fmt::format("#{:>8} {:>10} {:>10} {:>10} {:>10} {:>9} {:>6} {:>10} {:>10} {:>10}\n",
                      "workers", "(ms)", "(ms)", "(%)", "", "", "", "(ms)", "(%)", "");
  for (const auto& p : forecast.rows) {
    text += fmt::format(
        " {:>8} {:>10.1f} {:>10.1f} {:>10.1f} {:>10} {:>9} {:>6} {:>10.1f} {:>10.1f} {:>10}\n",
        p.workers, 1e3 * p.exchange_s, 1e3 * p.step_s, 100 * p.efficiency,
        rate_text(p.samples_per_s), size_text(p.choice.bucket_bytes), form_name(p),
        1e3 * p.local_step_s, 100 * p.local_efficiency, rate_text(p.local_samples_per_s));
  }
  text += "#\n";
  for (const auto& sentence : advice(forecast)) text += sentence + "\n";
  return text;
}

std::string advice_csv(const Forecast& forecast) {
  std::string text =
      "workers,exchange_ms,step_ms,efficiency_pct,samples_per_s,bucket_bytes,codec,local_step_ms,"
      "local_efficiency_pct,local_samples_per_s\n";
  for (const auto& p : forecast.rows) {
    text += fmt::format("{},{:.3f},{:.3f},{:.2f},{:.4f},{:.0f},{},{:.3f},{:.2f},{:.4f}\n",
                        p.workers, 1e3 * p.exchange_s, 1e3 * p.step_s, 100 * p.efficiency,
                        p.samples_per_s, p.choice.bucket_bytes, form_name(p), 1e3 * p.local_step_s,
                        100 * p.local_efficiency, p.local_samples_per_s);
  }
  return text;
}

std::string advice_json(const Forecast& forecast) {
  const auto& t = forecast.training;
  nlohmann::json predictions = nlohmann::json::array();
  for (const auto& p : forecast.rows) {
    predictions.push_back({{"workers", p.workers},
                           {"exchange_ms", 1e3 * p.exchange_s},
                           {"step_ms", 1e3 * p.step_s},
                           {"efficiency_pct", 100 * p.efficiency},
                           {"samples_per_s", p.samples_per_s},
                           {"bucket_bytes", std::llround(p.choice.bucket_bytes)},
                           {"codec", form_name(p)},
                           {"local_step_ms", 1e3 * p.local_step_s},
                           {"local_efficiency_pct", 100 * p.local_efficiency},
                           {"local_samples_per_s", p.local_samples_per_s}});
  }
  const nlohmann::json all = {{"model",
                               {{"parameters", std::llround(t.parameters)},
                                {"gradient_bytes", std::llround(t.bytes())},
                                {"step_ms", 1e3 * t.step_s},
                                {"backward_pct", 100 * t.backward},
                                {"batch", t.batch},
                                {"split_batch", t.split_batch},
                                {"per_host", t.per_host},
                                {"inner_steps", t.inner_steps}}},
                              {"link",
                               {{"bytes_per_s", forecast.line.bytes_per_second},
                                {"round_trip_ms", 2e3 * forecast.line.latency},
                                {"measured_hosts", forecast.measured_hosts}}},
                              {"predictions", predictions},
                              {"most_that_pay", most_that_pay(forecast)},
                              {"advice", advice(forecast)}};
  return all.dump(2) + "\n";
}

}  // namespace bench
