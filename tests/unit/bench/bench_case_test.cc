// The checker of dlaunch-bench itself: it must see wrong elements, and only those.
#include "cli/bench/bench_case.h"

#include <doctest/doctest.h>

namespace bench {
namespace {

// Every reduction that has a meaning, as (dtype, op).
template <class Visit>
void each_reduction(Visit visit) {
  for (int d = DL_INT8; d <= DL_FLOAT64; ++d) {
    for (int o = DL_SUM; o <= DL_BXOR; ++o) {
      if (o >= DL_BAND && d >= DL_FLOAT16) continue;
      visit(static_cast<dl_dtype>(d), static_cast<dl_op>(o));
    }
  }
}

TEST_CASE("an output that no call wrote is wrong in every element") {
  each_reduction([](dl_dtype dtype, dl_op op) {
    for (const Kind kind : {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather}) {
      const Case c = make_case(kind, dtype, op, 0, 3000 * 8, 4);
      Buffers buffers(1, 4, c.bytes);
      buffers.fill(c, false);
      const std::size_t outputs = kind == Kind::all_gather ? 4 * c.count : c.count;
      const std::size_t wrong = buffers.wrong(c, false);
      CAPTURE(dtype);
      CAPTURE(op);
      // 0x5a bytes are a possible int8 result of the bitwise ops, here and there.
      if (op >= DL_BAND) {
        CHECK(wrong > outputs / 2);
      } else {
        CHECK(wrong == outputs);
      }
    }
  });
}

TEST_CASE("inputs that were not reduced are wrong results") {
  each_reduction([](dl_dtype dtype, dl_op op) {
    const Case c = make_case(Kind::all_reduce, dtype, op, 0, 3000 * 8, 4);
    Buffers buffers(1, 4, c.bytes);
    buffers.fill(c, true);
    CAPTURE(dtype);
    CAPTURE(op);
    CHECK(buffers.wrong(c, true) > c.count / 4);
  });
}

TEST_CASE("with one rank the input is the result") {
  each_reduction([](dl_dtype dtype, dl_op op) {
    for (const Kind kind : {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather}) {
      const Case c = make_case(kind, dtype, op, 0, 3000 * 8, 1);
      Buffers buffers(0, 1, c.bytes);
      buffers.fill(c, true);
      CHECK(buffers.wrong(c, true) == 0);
    }
  });
}

TEST_CASE("a broadcast is right at its root and wrong elsewhere") {
  const Case c = make_case(Kind::broadcast, DL_FLOAT32, DL_SUM, 2, 4000, 4);
  for (int rank = 0; rank < 4; ++rank) {
    Buffers buffers(rank, 4, c.bytes);
    buffers.fill(c, true);
    CHECK(buffers.wrong(c, true) == (rank == 2 ? 0 : c.count));
  }
}

TEST_CASE("sizes are whole elements of whole parts") {
  CHECK(make_case(Kind::all_reduce, DL_FLOAT64, DL_SUM, 0, 20, 4).count == 2);
  const Case parts = make_case(Kind::all_gather, DL_FLOAT32, DL_SUM, 0, 70, 4);
  CHECK(parts.count == 4);
  CHECK(parts.bytes == 64);
  CHECK(make_case(Kind::barrier, DL_FLOAT32, DL_SUM, 0, 1024, 4).bytes == 0);
}

TEST_CASE("busbw is nccl-tests' correction of algbw") {
  CHECK(bus_factor(Kind::all_reduce, 4) == doctest::Approx(1.5));
  CHECK(bus_factor(Kind::reduce_scatter, 4) == doctest::Approx(0.75));
  CHECK(bus_factor(Kind::all_gather, 4) == doctest::Approx(0.75));
  CHECK(bus_factor(Kind::broadcast, 4) == doctest::Approx(1));
  CHECK(bus_factor(Kind::sendrecv, 4) == doctest::Approx(1));
  CHECK(bus_factor(Kind::all_reduce, 1) == doctest::Approx(0));
}

TEST_CASE("nccl-tests' names are understood") {
  REQUIRE(find_kind("all_reduce_perf") != nullptr);
  CHECK(find_kind("all_reduce_perf")->kind == Kind::all_reduce);
  CHECK(find_kind("all") == nullptr);
}

}  // namespace
}  // namespace bench
