// The model behind hw% and api%, on a machine of round numbers.
#include "cli/bench/bounds.h"

#include <doctest/doctest.h>

namespace bench {
namespace {

// In the cache a byte costs a nanosecond however it is moved, in memory ten times as much.
Limits machine(int cores) {
  const Rates fast{1, 1, 1}, slow{0.1, 0.1, 0.1};
  return {.cores = cores,
          .busy = cores,
          .levels = {{1 << 10, fast, fast}, {1 << 20, slow, slow}},
          .pass_gbs = 1.0,
          .handoff_us = 2.0,
          .wake_us = 9.0,
          .switch_us = 5.0,
          .tcp_gbs = 1.0,
          .tcp_rtt_us = 1.0};
}
Case of(Kind kind, std::size_t bytes) {
  Case c;
  c.kind = kind;
  c.bytes = bytes;
  return c;
}
Bounds in_cache(Kind kind, bool in_place, int ranks) {
  return bounds(machine(8), of(kind, 4000), in_place, ranks, 1).value();
}

TEST_CASE("each collective moves what the table says") {
  // 4 ranks, 4000 bytes: S takes 4 us, S/n 1 us; a hand-off 2 us. Loads run beside as many stores.
  const Bounds all_reduce = in_cache(Kind::all_reduce, true, 4);
  CHECK(all_reduce.absolute_us == doctest::Approx(2 + 4));
  CHECK(all_reduce.private_us == doctest::Approx(2 + 10));
  const Bounds reduce_scatter = in_cache(Kind::reduce_scatter, false, 4);
  CHECK(reduce_scatter.absolute_us == doctest::Approx(2 + 4));
  CHECK(reduce_scatter.private_us == doctest::Approx(2 + 7));
  const Bounds all_gather = in_cache(Kind::all_gather, false, 4);
  CHECK(all_gather.absolute_us == doctest::Approx(2 + 4));
  CHECK(all_gather.private_us == doctest::Approx(2 + 5));
  CHECK(in_cache(Kind::all_gather, true, 4).absolute_us == doctest::Approx(2 + 3));
  CHECK(in_cache(Kind::all_gather, true, 4).private_us == doctest::Approx(2 + 4));
  const Bounds broadcast = in_cache(Kind::broadcast, true, 4);
  CHECK(broadcast.absolute_us == doctest::Approx(2 + 3));
  CHECK(broadcast.private_us == doctest::Approx(2 + 4));
}

TEST_CASE("a rank touches its input and its output, in as many buffers as take turns") {
  CHECK(working_set(of(Kind::all_reduce, 4000), true, 4, 1) == 4000);
  CHECK(working_set(of(Kind::all_reduce, 4000), false, 4, 1) == 8000);
  CHECK(working_set(of(Kind::reduce_scatter, 4000), false, 4, 3) == 15000);
}

TEST_CASE("more ranks than cores share them, and switch instead of handing over") {
  const auto two = bounds(machine(2), of(Kind::all_reduce, 4000), true, 4, 1);
  CHECK(two->absolute_us == doctest::Approx(5 + 2 * 4));
  CHECK(two->private_us == doctest::Approx(5 + 2 * 10));
}

TEST_CASE("staged data come from the second-level cache, and passed data from another core") {
  Limits limits = machine(4);
  limits.levels.insert(limits.levels.begin() + 1, {256 << 10, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}});
  CHECK(bounds(limits, of(Kind::all_reduce, 4000), true, 4, 1)->absolute_us == doctest::Approx(6));
  CHECK(bounds(limits, of(Kind::all_reduce, 4000), true, 4, 1)->private_us ==
        doctest::Approx(2 + 20));
  // Of 4 ranks 6 KB of 4 are passed to each in an all_reduce, half of it in the others.
  limits.pass_gbs = 0.1;
  CHECK(bounds(limits, of(Kind::all_reduce, 4000), true, 4, 1)->private_us ==
        doctest::Approx(2 + 60));
  CHECK(bounds(limits, of(Kind::broadcast, 4000), true, 4, 1)->private_us ==
        doctest::Approx(2 + 30));
  CHECK(bounds(limits, of(Kind::all_reduce, 4000), true, 4, 1)->absolute_us == doctest::Approx(6));
  // On two cores half of the ranks, itself among them, are on the own one; each works for two.
  limits.cores = 2;
  CHECK(bounds(limits, of(Kind::all_reduce, 4000), true, 4, 1)->private_us ==
        doctest::Approx(5 + 2 * 40));
  limits.cores = 1;
  CHECK(bounds(limits, of(Kind::all_reduce, 4000), true, 4, 1)->private_us ==
        doctest::Approx(5 + 4 * 20));
}

TEST_CASE("memory limits large or rotated buffers, but not staged data") {
  const auto large = bounds(machine(8), of(Kind::all_reduce, 1 << 20), true, 2, 1);
  CHECK(large->absolute_us == doctest::Approx(2 + 10 * 1048.576));
  CHECK(large->private_us == doctest::Approx(large->absolute_us));
  // Half a MiB: out of place it is two buffers; in place it takes two pairs.
  const Case half = of(Kind::all_reduce, 1 << 19);
  CHECK(bounds(machine(8), half, true, 2, 1)->absolute_us == doctest::Approx(2 + 524.288));
  CHECK(bounds(machine(8), half, false, 2, 1)->absolute_us == doctest::Approx(2 + 5242.88));
  CHECK(bounds(machine(8), half, true, 2, 2)->absolute_us == doctest::Approx(2 + 5242.88));
}

TEST_CASE("a sum in place stores where it has loaded") {
  Limits limits = machine(8);
  limits.levels[1].together.update = 0.4;
  const auto us = [&](Kind kind, bool in_place) {
    return bounds(limits, of(kind, 1 << 20), in_place, 2, 1)->absolute_us;
  };
  CHECK(us(Kind::all_reduce, true) == doctest::Approx(2 + 2.5 * 1048.576));
  CHECK(us(Kind::all_reduce, false) == doctest::Approx(2 + 10 * 1048.576));
  CHECK(us(Kind::reduce_scatter, true) == doctest::Approx(2 + (2.5 / 2 + 10. / 2) * 1048.576));
  CHECK(us(Kind::broadcast, true) == doctest::Approx(2 + 10. / 2 * 1048.576));
  limits.levels[1].together.update = 0.05;  // a slower one bounds nothing
  CHECK(us(Kind::all_reduce, true) == doctest::Approx(2 + 10 * 1048.576));
}

TEST_CASE("an unknown limit does not count") {
  Limits limits = machine(8);
  limits.handoff_us = dlaunch::Error{dlaunch::Errc::unsupported, "not here"};
  CHECK(bounds(limits, of(Kind::all_reduce, 4000), true, 2, 1)->absolute_us == doctest::Approx(4));
}

TEST_CASE("collectives without a model have no bounds") {
  CHECK(has_bounds(Kind::all_reduce));
  CHECK(!has_bounds(Kind::all_to_all));
  CHECK(!bounds(machine(8), of(Kind::barrier, 0), true, 2, 1));
}

}  // namespace
}  // namespace bench
