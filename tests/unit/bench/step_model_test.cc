// The predicted steps: against cases that one can work out by hand, and against the real choice of
// algorithms.
#include "cli/bench/step_model.h"

#include <doctest/doctest.h>

namespace bench {
namespace {

using dlaunch::HostLine;
using doctest::Approx;

constexpr double kMega = 1 << 20;
// A MiB takes 0.1 s, and 10 ms of latency.
constexpr HostLine kSlowLine{0.01, 10 * kMega};

// Forward takes 1 s, backward 2 s.
Training training_of(double mebibytes) {
  return {.parameters = mebibytes * kMega / 4, .step_s = 3, .batch = 30};
}

TEST_CASE("step model: an exchange costs the latencies and bytes of its algorithm") {
  // Two hosts exchange 1 MiB: one latency. From 4 MiB on they have slices, and two latencies.
  CHECK(exchange_seconds(kSlowLine, 2, 1, kMega, Form::none) == Approx(0.11).epsilon(0.001));
  CHECK(exchange_seconds(kSlowLine, 2, 1, 16 * kMega, Form::none) == Approx(1.62).epsilon(0.001));
  CHECK(exchange_seconds(kSlowLine, 4, 1, 16 * kMega, Form::none) == Approx(2.42).epsilon(0.001));
  CHECK(exchange_seconds(kSlowLine, 1, 8, 16 * kMega, Form::none) == 0);
  // The ring of many hosts has a latency for each.
  const double ring = exchange_seconds(kSlowLine, 64, 1, 64 * kMega, Form::none);
  CHECK(ring == Approx(2 * 63 / 64.0 * 6.4 + 2 * 63 * 0.01).epsilon(0.002));
}

TEST_CASE("step model: a codec sends fewer bytes, block by block") {
  // 8 MiB are two blocks, with two latencies each, and half of the bytes; a quarter for int8.
  CHECK(exchange_seconds(kSlowLine, 2, 1, 8 * kMega, Form::bf16) == Approx(0.44).epsilon(0.02));
  CHECK(exchange_seconds(kSlowLine, 2, 1, 8 * kMega, Form::int8) == Approx(0.243).epsilon(0.03));
  // On a fast line the codec itself is the limit.
  const HostLine fast{1e-5, 100e9};
  CHECK(exchange_seconds(fast, 2, 1, 64 * kMega, Form::int8) >
        exchange_seconds(fast, 2, 1, 64 * kMega, Form::none));
}

TEST_CASE("step model: the workers of a host share its link") {
  const double one = exchange_seconds(kSlowLine, 2, 1, 4 * kMega, Form::none);
  CHECK(exchange_seconds(kSlowLine, 2, 8, 4 * kMega, Form::none) == Approx(one).epsilon(0.05));
}

TEST_CASE("step model: backward hides all exchanges but the last") {
  // 4 MiB in buckets of 1 MiB are ready each 0.5 s, and take 0.11 s.
  const auto hidden = predict(training_of(4), kSlowLine, 2, {Form::none, kMega});
  CHECK(hidden.step_s == Approx(3.11).epsilon(0.001));
  CHECK(hidden.exchange_s == Approx(0.44).epsilon(0.001));
  CHECK(hidden.samples_per_s == Approx(2 * 30 / 3.11).epsilon(0.001));
  CHECK(hidden.efficiency == Approx(3 / 3.11).epsilon(0.001));
  // In one bucket nothing is hidden, but for the first MiB: a bucketer's first bucket is small.
  const auto open = predict(training_of(4), kSlowLine, 2, {Form::none, 4 * kMega});
  CHECK(open.step_s == Approx(3 + 0.31).epsilon(0.001));
  // 80 MiB take longer than backward: they follow each other from the first bucket on.
  const auto late = predict(training_of(80), kSlowLine, 2, {Form::none, kMega});
  CHECK(late.step_s == Approx(1 + 2 / 80.0 + 80 * 0.11).epsilon(0.001));
}

TEST_CASE("step model: workers that share a batch compute less") {
  Training training = training_of(4);
  training.split_batch = true;
  const auto p = predict(training, kSlowLine, 10, {Form::none, kMega});
  CHECK(p.samples_per_s == Approx(30 / p.step_s));
  CHECK(p.efficiency == Approx(0.3 / p.step_s));
  CHECK(p.step_s < 1.5);
}

TEST_CASE("step model: local training exchanges 4 bits for a parameter, once in so many steps") {
  const auto p = predict(training_of(80), kSlowLine, 2, {Form::none, kMega});
  const double exchange = exchange_seconds(kSlowLine, 2, 1, 80 * kMega, Form::outer);
  CHECK(exchange < 1.7);
  CHECK(p.local_step_s == Approx(3 + exchange / 50));
  CHECK(p.local_samples_per_s == Approx(60 / p.local_step_s));
}

TEST_CASE("step model: the best bucket, and a codec only where it is noticed") {
  const std::vector<Form> forms = {Form::none, Form::bf16, Form::int8};
  const auto small = training_of(4), large = training_of(400);
  const auto easy = predict_best(small, kSlowLine, 2, forms, bucket_sizes(small.bytes()));
  CHECK(easy.choice.form == Form::none);
  CHECK(easy.choice.bucket_bytes == kMega);
  const auto hard = predict_best(large, kSlowLine, 2, forms, bucket_sizes(large.bytes()));
  CHECK(hard.choice.form == Form::int8);
  CHECK(hard.choice.bucket_bytes > kMega);
  CHECK(bucket_sizes(3 * kMega) == std::vector<double>{kMega, 2 * kMega, 3 * kMega});
}

TEST_CASE("step model: the fit finds the line behind exact times") {
  for (const HostLine& line : {kSlowLine, HostLine{1e-4, 1.2e9}, HostLine{0.05, 5e6}}) {
    for (const int hosts : {2, 4, 24}) {
      std::vector<Measured> measured;
      for (const double bytes : {8.0, 4096.0, 3 * kMega, 12 * kMega}) {
        measured.push_back({bytes, exchange_seconds(line, hosts, 1, bytes, Form::none)});
      }
      const HostLine found = fit_line(measured, hosts);
      CHECK(found.latency == Approx(line.latency).epsilon(0.01));
      CHECK(found.bytes_per_second == Approx(line.bytes_per_second).epsilon(0.01));
    }
  }
}

TEST_CASE("step model: a latency that is wrong by a third leaves the rate right") {
  const HostLine line{0.01, 11.9e6};
  for (const int hosts : {2, 3, 4, 16, 40}) {
    std::vector<Measured> measured;
    for (const double bytes : {8.0, 4096.0, 3 * kMega}) {
      measured.push_back({bytes, exchange_seconds(line, hosts, 1, bytes, Form::none)});
    }
    measured[0].seconds *= 1.35;
    const HostLine found = fit_line(measured, hosts);
    CHECK(found.bytes_per_second == Approx(line.bytes_per_second).epsilon(0.15));
    CHECK(found.latency == Approx(line.latency).epsilon(0.35));
  }
}

TEST_CASE("step model: a line whose bytes cost nothing stays a line") {
  const HostLine found = fit_line({{8, 0.01}, {65536, 0.01}, {524288, 0.01}}, 2);
  CHECK(found.latency > 0);
  CHECK(found.bytes_per_second >= 1e9);
}

}  // namespace
}  // namespace bench
