#include "ring/plan/plan_rules.h"

#include <string>

#include <doctest/doctest.h>

#include "ring/shm/shm_memory.h"

using namespace dlaunch;

namespace {

Shape shape(Collective collective, std::size_t bytes) {
  return {.collective = collective, .count = bytes / 4, .element_bytes = 4};
}

std::string refusal(std::string_view text) {
  const auto rules = parse_plan_rules(text);
  return rules ? "" : rules.error().what;
}

}  // namespace

TEST_CASE("plan rules: the first matching rule applies") {
  const auto rules = parse_plan_rules(
      "all_reduce:1M-2M:ring,granule=128K;all_reduce:-4K:direct;broadcast::window=3;all:8M:granule="
      "1M");
  REQUIRE(rules);
  const Tuning normal;
  const auto tuned = [&](Collective collective, std::size_t bytes) {
    return tuning_by(*rules, shape(collective, bytes), 4, normal);
  };
  for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{2} << 20}) {
    const Tuning ring = tuned(Collective::all_reduce, bytes);
    CHECK(algorithm_of(shape(Collective::all_reduce, bytes), 4, ring) == Algorithm::ring);
    CHECK(ring.granule_bytes == 128 << 10);
    CHECK(ring.window == normal.window);
    CHECK(describe_algorithm(Algorithm::ring, ring).ends_with("(DLAUNCH_PLAN)"));
  }
  CHECK_FALSE(tuned(Collective::all_reduce, (1 << 20) - 4).by_rule);
  CHECK_FALSE(tuned(Collective::all_reduce, (2 << 20) + 4).by_rule);
  CHECK(tuned(Collective::all_reduce, 4 << 10).forced == Algorithm::direct);
  CHECK(tuned(Collective::broadcast, 1 << 30).window == 3);
  CHECK_FALSE(tuned(Collective::broadcast, 1 << 30).forced);
  CHECK(tuned(Collective::reduce, 8 << 20).granule_bytes == 1 << 20);
  // The size is that of all parts together.
  CHECK(tuned(Collective::all_gather, 2 << 20).granule_bytes == 1 << 20);
  CHECK_FALSE(tuned(Collective::all_gather, 8 << 20).by_rule);
  CHECK(parse_plan_rules("")->empty());
}

TEST_CASE("plan rules: rules for shared memory apply as far as there is room") {
  using ShmAlgorithm = ShmPlan::Algorithm;
  const auto rules = parse_plan_rules(
      "all_reduce:-64K:shm-one-shot;all_reduce:64K-1M:shm-blocks,shm-chunk=10000;"
      "all_reduce::shm-exchange;all::shm-chunk=1M");
  REQUIRE(rules);
  const auto plan = [&](Collective collective, std::size_t bytes, int ranks) {
    const Shape s = shape(collective, bytes);
    return plan_shm(s, ranks, shape_for(ranks), shm_wish_by(*rules, s, ranks));
  };
  const auto all_reduce = Collective::all_reduce;
  CHECK(plan(all_reduce, 16 << 10, 2).algorithm == ShmAlgorithm::one_shot);
  CHECK(plan(all_reduce, 16 << 10, 2).by_rule);
  CHECK(plan(all_reduce, 64 << 10, 2).algorithm == ShmAlgorithm::exchange);  // no room for one shot
  CHECK_FALSE(plan(all_reduce, 64 << 10, 2).by_rule);
  CHECK(plan(all_reduce, 1 << 20, 2).algorithm == ShmAlgorithm::blocks);
  CHECK(plan(all_reduce, 1 << 20, 2).chunk == 9984 / 4);  // whole cache lines
  CHECK(plan(all_reduce, 2 << 20, 2).algorithm == ShmAlgorithm::exchange);
  CHECK(plan(all_reduce, 2 << 20, 3).algorithm == ShmAlgorithm::blocks);  // there are not two
  const std::size_t most = shape_for(4).chunk_bytes;
  CHECK(plan(Collective::broadcast, 1 << 20, 4).chunk == most / 4);
  CHECK(plan(Collective::broadcast, 1 << 20, 4).blocks ==
        (1 << 20) / most + ((1 << 20) % most != 0));
  CHECK(plan(Collective::broadcast, 8, 4).algorithm == ShmAlgorithm::in_entry);
  // A rule for one kind of plane leaves the other as it is.
  CHECK_FALSE(tuning_by(*rules, shape(all_reduce, 1 << 20), 2, Tuning{}).by_rule);
}

TEST_CASE("plan rules: a malformed rule is refused with the possible values") {
  CHECK(refusal("all_reduce::chain")
            .find("exchange doubling star direct grid ring racks tree shm-one-shot") !=
        std::string::npos);
  CHECK(refusal("broadcast::ring").find("tree chain") != std::string::npos);
  CHECK(refusal("all::ring").find("one collective") != std::string::npos);
  CHECK(refusal("broadcast::shm-exchange").find("is no algorithm") != std::string::npos);
  CHECK(refusal("all::shm-blocks").find("one collective") != std::string::npos);
  CHECK(refusal("all::shm-chunk=1K").find("shm-chunk has from 4K") != std::string::npos);
  CHECK(refusal("all::fast").find("'fast' is no algorithm") != std::string::npos);
  CHECK(refusal("reduce:1M-").find("COLLECTIVE:SIZES:CHANGE") != std::string::npos);
  CHECK(refusal("reduces::ring").find("'reduces' is no collective") != std::string::npos);
  CHECK(refusal("barrier::granule=64K").find("'barrier'") != std::string::npos);
  CHECK(refusal("reduce:2M-1M:ring").find("no size") != std::string::npos);
  CHECK(refusal("reduce:many:ring").find("'many' is not a size") != std::string::npos);
  for (const std::string text :
       {"reduce::", "reduce::granule", "reduce::granule=1", "reduce::granule=1G",
        "reduce::window=0", "reduce::window=x", ";", "reduce:1M-2M-3M:ring"}) {
    CAPTURE(text);
    CHECK_FALSE(refusal(text).empty());
  }
  CHECK(refusal("reduce::ring,;").empty());  // what ends may end with its separator
  CHECK(refusal(std::string(251, 'x')).find("longer") != std::string::npos);
}
