#include "launcher/lead/metrics/bandwidth_samples.h"

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

TEST_CASE("bandwidth samples: what each look brings, of the collectives that move bytes") {
  BandwidthSamples samples;
  BandwidthSamples::Tallies tallies;
  CHECK(samples.sample(TimePoint(1s), 4, tallies).empty());
  tallies[{0, 2}] = {.kind = 0, .size = 2, .times = {1, 3}, .rates = {}, .ns = 800, .bytes = 400};
  tallies[{4, 0}] = {.kind = 4, .size = 0, .times = {9}, .rates = {}, .ns = 90, .bytes = 0};
  CHECK(samples.sample(TimePoint(1500ms), 4, tallies) ==
        R"({"monotonic":1.5,"ranks":4,"collectives":[{"kind":"all_reduce","size":"16MiB",)"
        R"("calls":4,"bytes":400,"ns":800}]})"
        "\n");
  CHECK(samples.sample(TimePoint(2s), 4, tallies).empty());
  tallies[{0, 2}].times[1] = 4;
  tallies[{0, 2}].ns = 1000;
  tallies[{0, 2}].bytes = 500;
  CHECK(samples.sample(TimePoint(3s), 3, tallies) ==
        R"({"monotonic":3.0,"ranks":3,"collectives":[{"kind":"all_reduce","size":"16MiB",)"
        R"("calls":1,"bytes":100,"ns":200}]})"
        "\n");
}
