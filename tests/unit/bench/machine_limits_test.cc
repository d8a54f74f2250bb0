// The list of the machine's limits. In every form it says why a limit could not be measured.
#include "cli/bench/machine_limits.h"

#include <algorithm>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "cli/bench/calibrate.h"

namespace bench {
namespace {

Limits one_core() {
  const dlaunch::Error why{dlaunch::Errc::unsupported, "it needs two usable cores"};
  return {1, 1, {{4 << 20, {30, 20, 10}, {30, 20, 10}}}, why, why, why, 0.8, 3.0, 4.0};
}

TEST_CASE("a limit that was not measured is listed with the reason") {
  CHECK(limits_table(one_core()).find("line hand-off") != std::string::npos);
  CHECK(limits_table(one_core()).find("not measured: it needs two usable") != std::string::npos);
  CHECK(limits_csv(one_core()).find("line hand-off,,,1,us\n") != std::string::npos);
  const auto json = nlohmann::json::parse(limits_json(one_core()));
  CHECK(json["limits"][4]["not_measured"] == "it needs two usable cores");
  CHECK(!json["limits"][4].contains("one_core"));
}

TEST_CASE("bandwidths of several cores are listed with those of one") {
  Limits limits = one_core();
  CHECK(limits_csv(limits).find("copy 4 MiB,10.0000,,1,GB/s\n") != std::string::npos);
  limits.busy = 2;
  limits.levels[0].together = {15, 12, 6};
  CHECK(limits_csv(limits).find("copy 4 MiB,10.0000,6.0000,2,GB/s\n") != std::string::npos);
  CHECK(limits_table(limits).find("each of 2") != std::string::npos);
}

TEST_CASE("the limits of a row are measured again, without larger sets") {
  Limits limits = one_core();
  const Rates marked{-1, -1, -1, -1};
  limits.levels = {{kStagingSet, marked, marked}, {4 << 20, marked, marked}};
  limits.pass_gbs = limits.handoff_us = limits.switch_us = -1.0;
  const auto cores = usable_cores();
  measure_again(limits, cores, 0);
  const auto& rates = limits.levels[0].together;
  CHECK(std::min({rates.read, rates.write, rates.copy, rates.update}) > 0);
  CHECK(limits.levels[1].together.copy == -1);
  CHECK(limits.switch_us.value() > 0);
  CHECK(limits.pass_gbs.has_value() == (cores.size() > 1));
  CHECK((!limits.handoff_us || *limits.handoff_us > 0));
}

}  // namespace
}  // namespace bench
