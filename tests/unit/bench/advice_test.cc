// The sentences of dlaunch-bench --model, its options, and what it refuses.
#include "cli/bench/advice.h"

#include <algorithm>

#include <CLI/CLI.hpp>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "base/exit_code.h"
#include "cli/bench/adviser.h"

namespace bench {
namespace {

Wanted wanted_from(std::vector<std::string> words) {
  Options options;
  CLI::App app;
  declare(app, options);
  declare_model(app, options.model);
  std::reverse(words.begin(), words.end());
  app.parse(words);
  return wanted_of(app, options);
}

Forecast forecast_from(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"--model", "124M", "--step", "350ms", "--batch", "32"};
  words.insert(words.end(), more.begin(), more.end());
  return forecast_of(wanted_from(words), std::nullopt);
}

std::string refusal_of(const std::vector<std::string>& words) {
  try {
    wanted_from(words);
  } catch (const Failure& failure) {
    CHECK(failure.exit_code == dlaunch::kExitUsage);
    return failure.what;
  }
  return "accepted";
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST_CASE("advice: a fast link pays for all workers, without a codec or local training") {
  const auto forecast = forecast_from({"--link", "100gbit,50us"});
  CHECK(most_that_pay(forecast) == 64);
  const auto said = advice(forecast);
  CHECK(has(said[0], "Up to 64 workers, each one adds at least 50 %"));
  CHECK(has(said[1], "no wire codec for 64 workers"));
  CHECK(has(said[2], "is not worth it"));
}

TEST_CASE("advice: over a slow link no worker pays, and local training is worth it") {
  const auto forecast = forecast_from({"--link", "100mbit,40ms"});
  CHECK(most_that_pay(forecast) == 1);
  const auto said = advice(forecast);
  CHECK(has(said[0],
            "More than 1 worker does not pay: 2 workers together are slower than 1. The most is "));
  CHECK(has(said[1], "the wire codec int8 (DLAUNCH_WIRE_CODEC=int8) for 2 workers"));
  CHECK(has(said[2], "is worth it from 2 workers on"));
  CHECK(forecast.rows[0].local_efficiency > 0.7);
}

TEST_CASE("advice: workers that share a batch stop to pay at some number") {
  const auto forecast = forecast_from({"--link", "100gbit,50us", "--split-batch"});
  const int most = most_that_pay(forecast);
  CHECK(most > 1);
  CHECK(most < 64);
  CHECK(has(advice(forecast)[0],
            ("More than " + std::to_string(most) + " workers do not pay").c_str()));
}

TEST_CASE("advice: workers of one host exchange nothing over the link") {
  const auto within =
      forecast_from({"--link", "100mbit,40ms", "--per-host", "8", "--workers", "4"});
  CHECK(has(advice(within)[1], "nothing crosses the link"));
  const auto beyond =
      forecast_from({"--link", "1gbit,1ms", "--per-host", "8", "--workers", "8,16"});
  CHECK(most_that_pay(beyond) == 8);
  CHECK(has(advice(beyond)[1], "for 16 workers"));
}

TEST_CASE("advice: table, CSV and JSON have the same figures") {
  const auto forecast = forecast_from({"--link", "1gbit,10ms", "--workers", "8,2,8"});
  REQUIRE(forecast.rows.size() == 2);
  const auto json = nlohmann::json::parse(advice_json(forecast));
  CHECK(json["predictions"][1]["workers"] == 8);
  CHECK(json["link"]["round_trip_ms"].get<double>() == doctest::Approx(10));
  CHECK(json["model"]["gradient_bytes"] == 496'000'000);
  CHECK(json["advice"].size() == 3);
  const std::string csv = advice_csv(forecast);
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 3);
  CHECK(has(advice_table(forecast), "124 million parameters, 496 MB of gradients"));
}

TEST_CASE("advice: what the user asks for is taken") {
  const auto wanted =
      wanted_from({"--model", "1.5b", "--step", "2s", "--link", "10gbit,0", "-d", "half",
                   "--workers", "16", "--bucket", "25M", "--per-host", "8"});
  CHECK(wanted.training.parameters == doctest::Approx(1.5e9));
  CHECK(wanted.training.bytes() == doctest::Approx(3e9));
  CHECK(wanted.training.per_host == 8);
  CHECK(wanted.line->bytes_per_second == doctest::Approx(0.95 * 1.25e9));
  CHECK(wanted.buckets == std::vector<double>{25 << 20});
  CHECK(wanted.forms == std::vector<Form>{Form::none});
  CHECK(!wanted_from({"--model", "1k", "--step", "2s"}).line);
}

TEST_CASE("advice: bad input gets a line that says why") {
  const auto with = [](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--model", "124M", "--step", "350ms"};
    words.insert(words.end(), more.begin(), more.end());
    return refusal_of(words);
  };
  CHECK(has(refusal_of({"--model", "many", "--step", "1s"}), "--model: 'many' is not a number of"));
  CHECK(has(refusal_of({"--model", "-3M", "--step", "1s"}), "--model: '-3M' is not"));
  CHECK(has(refusal_of({"--model", "3M"}), "--model needs --step"));
  CHECK(has(refusal_of({"--model", "3M", "--step", "0"}), "--step: must be above zero"));
  CHECK(has(with({"--link", "fast"}), "--link: 'fast' is not RATE,ROUND_TRIP"));
  CHECK(has(with({"--link", "100mbit"}), "--link: '100mbit' is not"));
  CHECK(has(with({"--link", "100mbit,soon"}), "--link: 'soon' is not a duration"));
  CHECK(has(with({"--workers", "2,1"}), "--workers: '1' is not a whole number from 2"));
  CHECK(has(with({"--workers", "2,"}), "--workers: "));
  CHECK(has(with({"--bucket", "9"}), "--bucket: must be at least 1K"));
  CHECK(has(with({"--codec", "int8", "-d", "half"}), "--codec int8 is for float gradients"));
  CHECK(has(with({"-d", "int8"}), "-d: gradients are"));
  CHECK(has(with({"all_reduce"}), "takes no collective"));
  CHECK(has(with({"--rotate", "3"}), "takes no --rotate"));
}

}  // namespace
}  // namespace bench
