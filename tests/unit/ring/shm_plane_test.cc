#include "ring/shm/shm_plane.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "equal_runs.h"
#include "ring/kernels/reduce.h"
#include "shm_world.h"
#include "tests/unit/sanitized.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

constexpr dl_dtype kDtypes[] = {DL_INT8,   DL_UINT8,   DL_INT32,    DL_UINT32,  DL_INT64,
                                DL_UINT64, DL_FLOAT16, DL_BFLOAT16, DL_FLOAT32, DL_FLOAT64};
constexpr dl_op kOps[] = {DL_SUM, DL_PRODUCT, DL_MAX, DL_MIN, DL_AVG, DL_BAND, DL_BOR, DL_BXOR};

std::vector<char> random_bytes(std::size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<char> bytes(size + 8);
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, sizeof word);
  }
  return bytes;
}

// The result by definition: all operands in rank order in one go.
std::vector<char> reference(const std::vector<std::vector<char>>& inputs, std::size_t count,
                            dl_dtype dtype, dl_op op) {
  std::vector<const void*> operands;
  for (const auto& input : inputs) operands.push_back(input.data());
  std::vector<char> out(count * dtype_bytes(dtype) + 8);
  reduce(operands, out.data(), count, dtype, op, static_cast<int>(inputs.size()));
  return out;
}

struct PlaneCase {
  Collective collective;
  dl_dtype dtype;
  dl_op op;
  std::size_t count;
  bool in_place;
  bool only_even = false;  // in place on ranks of even number only
};

// So that what is small takes many blocks.
const PlanRules kSmallChunks = {{.shm = {.algorithm = {}, .chunk_bytes = 1000}}};

// Runs one collective on all ranks with random inputs at odd addresses and compares every bit.
void check(ShmWorld& world, const PlaneCase& c, std::uint64_t seq, unsigned seed) {
  const auto n = static_cast<std::size_t>(world.ranks());
  const std::size_t element = dtype_bytes(c.dtype);
  const bool scatter = c.collective == Collective::reduce_scatter;
  const bool gather = c.collective == Collective::all_gather;
  const std::size_t in_bytes = c.count * element * (scatter ? n : 1);
  const std::size_t out_bytes = c.count * element * (gather ? n : 1);
  std::vector<std::vector<char>> inputs;
  for (std::size_t r = 0; r < n; ++r)
    inputs.push_back(random_bytes(in_bytes, seed + static_cast<unsigned>(r)));
  const int root = static_cast<int>(seed % n);
  const bool rooted = c.collective == Collective::broadcast || c.collective == Collective::reduce;
  std::vector<char> reduced;
  const bool to_root = c.collective == Collective::reduce;
  if (c.collective == Collective::all_reduce || to_root || scatter) {
    reduced = reference(inputs, c.count * (scatter ? n : 1), c.dtype, c.op);
  }
  world.each([&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::vector<char> buffer(std::max(in_bytes, out_bytes) + 64);
    std::vector<char> separate(out_bytes + 64);
    const bool in_place = c.in_place && !(c.only_even && rank % 2 == 1);
    // Odd addresses: only the element's own alignment may be relied on, and not even that here.
    char* in = buffer.data() + 1;
    char* out = in_place ? in : separate.data() + 3;
    if (gather && in_place) in = buffer.data() + 1 + r * in_bytes;
    if (scatter && in_place) out = in + r * out_bytes;
    std::memcpy(in, inputs[r].data(), in_bytes);
    if (c.collective == Collective::broadcast) out = in;
    const auto done = world.plane(rank).run({.collective = c.collective,
                                             .in = in,
                                             .out = out,
                                             .count = c.count,
                                             .dtype = c.dtype,
                                             .op = c.op,
                                             .root = rooted ? root : -1,
                                             .seq = seq,
                                             .deadline = steady_now() + 60s});
    CHECK(done);
    bool equal = true;
    if (c.collective == Collective::broadcast) {
      equal = std::memcmp(out, inputs[static_cast<std::size_t>(root)].data(), in_bytes) == 0;
    } else if (gather) {
      for (std::size_t j = 0; j < n; ++j) {
        equal = equal && std::memcmp(out + j * in_bytes, inputs[j].data(), in_bytes) == 0;
      }
    } else if (to_root && rank != root) {
      equal = in_place
                  ? std::memcmp(out, inputs[r].data(), in_bytes) == 0
                  : std::all_of(separate.begin(), separate.end(), [](char b) { return b == 0; });
    } else if (c.collective != Collective::barrier) {
      equal = std::memcmp(out, reduced.data() + (scatter ? r * out_bytes : 0), out_bytes) == 0;
    }
    CHECK(equal);
    if (!in_place && c.collective != Collective::broadcast) {
      CHECK(std::memcmp(in, inputs[r].data(), in_bytes) == 0);
    }
  });
}

// A sanitizer finds in few ranks what there is to find, in a tenth of the time.
#if defined(__SANITIZE_THREAD__)
constexpr int kPlaneWorlds[] = {2, 3};
#elif defined(__SANITIZE_ADDRESS__)
constexpr int kPlaneWorlds[] = {1, 2, 3, 5};
#else
constexpr int kPlaneWorlds[] = {1, 2, 3, 4, 5, 8, 9};
#endif
constexpr Collective kAllPlanes[] = {Collective::all_reduce, Collective::reduce_scatter,
                                     Collective::all_gather, Collective::broadcast,
                                     Collective::reduce,     Collective::barrier};

struct Sleeper {
  std::size_t count;
  int cores;
};

// How long it takes from the flag to the end of a call that has waited for `asleep` by then.
Duration time_to_wake(const Sleeper& sleeper, Duration asleep) {
  ShmWorld world(2, sleeper.cores, true);
  std::vector<char> buffer(sleeper.count);
  std::atomic<TimePoint> begun{};
  TimePoint woken{};
  Result<void> done;
  std::thread thread([&] {
    begun = steady_now();
    done = world.plane(0).run({Collective::all_reduce, buffer.data(), buffer.data(), sleeper.count,
                               DL_INT8, DL_SUM, -1, 1, kNever});
    woken = steady_now();
  });
  while (begun.load() == TimePoint{}) std::this_thread::yield();
  std::this_thread::sleep_until(begun.load() + asleep);
  const TimePoint raised = steady_now();
  world.abort(0).raise({.code = Errc::peer_lost, .what = "rank 1 was lost", .rank = 1});
  thread.join();
  CHECK_FALSE(done);
  if (!done) CHECK(done.error().rank == 1);
  CHECK_FALSE(world.plane(0).run(
      {Collective::barrier, nullptr, nullptr, 0, DL_INT8, DL_SUM, -1, 2, kNever}));
  return woken - raised;
}

}  // namespace

TEST_CASE(
    "shm: every dtype and op, small and large, in and out of place, has the reference's bits") {
  struct Ranks {
    int ranks, cores;
    bool memfds;
    PlanRules rules;
  };
  for (const auto& [ranks, cores, memfds, rules] :
       {Ranks{3, 1, true, {}}, Ranks{3, 64, true, {}}, Ranks{2, 64, true, {}},
        Ranks{2, 64, true, kSmallChunks}, Ranks{2, 64, false, kSmallChunks}}) {
    ShmWorld world(ranks, cores, memfds, {}, rules);
    std::uint64_t seq = 0;
    for (const dl_dtype dtype : kDtypes) {
      for (const dl_op op : kOps) {
        if (!reducible(dtype, op)) continue;
        CAPTURE(dtype);
        CAPTURE(op);
        for (const std::size_t count : {1u, 5u, 2049u, 30011u}) {
          if (kSanitized && count > 2049 && op != DL_SUM) continue;
          ++seq;
          check(world, {Collective::all_reduce, dtype, op, count, seq % 2 == 0, seq % 4 == 2}, seq,
                static_cast<unsigned>(seq));
        }
      }
    }
  }
}

TEST_CASE("shm: every collective at sizes around each threshold, for 1 to 9 ranks") {
  for (const int n : kPlaneWorlds) {
    for (const bool memfds : {true, false}) {
      // Two ranks with a core each also on the heap, where thread sanitizer sees them.
      const bool spin = n == 2 || (memfds && n == 3);
      ShmWorld world(n, spin ? 64 : 1, memfds);
      const ShmShape shape = shape_for(n);
      std::uint64_t seq = 0;
      for (const Collective collective : kAllPlanes) {
        CAPTURE(n);
        CAPTURE(collective_name(collective));
        for (const std::size_t bytes :
             {std::size_t{0}, std::size_t{4}, kInlineBytes, kInlineBytes + 4, shape.small_bytes,
              shape.small_bytes + 4, kExchangeAbove, kExchangeAbove + 4,
              shape.chunk_bytes * static_cast<std::size_t>(n) + 4,
              3 * shape.chunk_bytes * static_cast<std::size_t>(n) - 4}) {
          ++seq;
          check(world, {collective, DL_FLOAT32, DL_SUM, bytes / 4, seq % 2 == 0}, seq,
                static_cast<unsigned>(seq));
        }
      }
    }
  }
}

TEST_CASE("shm: mixed collectives in a row do not disturb each other") {
  struct Ranks {
    int ranks;
    PlanRules rules;
  };
  for (const auto& [ranks, rules] : {Ranks{4, {}}, Ranks{2, {}}, Ranks{2, kSmallChunks}}) {
    ShmWorld world(ranks, 2, true, {}, rules);
    std::mt19937 random(11);
    for (std::uint64_t seq = 1; seq <= (kSanitized ? 100 : 300); ++seq) {
      const std::size_t counts[] = {0, 1, 10, 300, 5000, 60000};
      check(world,
            {kAllPlanes[random() % std::size(kAllPlanes)], DL_INT32, kOps[random() % 8],
             counts[random() % 6], random() % 2 == 0},
            seq, static_cast<unsigned>(seq));
    }
  }
}

TEST_CASE("shm: small messages of two ranks in a row do not disturb each other") {
  constexpr std::size_t kCount = 800;
  const auto value = [](std::uint64_t seq, int giver, std::size_t i) {
    return static_cast<std::int32_t>(seq * 1000003 + static_cast<std::size_t>(giver) * 7919 + i);
  };
  for (const bool memfds : {true, false}) {
    ShmWorld world(2, 64, memfds);
    world.each([&](int rank) {
      std::vector<std::int32_t> in(2 * kCount), out(2 * kCount);
      void* const both[] = {in.data(), in.data() + kCount / 2};
      const std::size_t halves[] = {kCount / 2, kCount / 2};
      const auto list = make_tensor_list(2, both, both, halves);
      REQUIRE(list);
      std::size_t wrong = 0;
      for (std::uint64_t seq = 1; seq <= 2000; ++seq) {
        const bool gathers = seq % 5 == 0, from_list = seq % 3 == 0;
        const int root = static_cast<int>(seq / 2 % 2);
        for (std::size_t i = 0; i < kCount; ++i) in[i] = value(seq, rank, i);
        Call call{.collective = gathers ? Collective::all_gather : Collective::broadcast,
                  .in = in.data(),
                  .out = gathers ? out.data() : in.data(),
                  .count = kCount,
                  .dtype = DL_INT32,
                  .root = gathers ? -1 : root,
                  .seq = seq,
                  .deadline = steady_now() + 60s};
        if (!gathers && from_list) call.list = &*list;
        if (!world.plane(rank).run(call)) ++wrong;
        for (std::size_t i = 0; i < (gathers ? 2 * kCount : kCount); ++i) {
          const int giver = gathers ? static_cast<int>(i / kCount) : root;
          const std::int32_t got = gathers ? out[i] : in[i];
          if (got != value(seq, giver, i % kCount)) ++wrong;
        }
      }
      CHECK(wrong == 0);
    });
  }
}

// A private mapping shows what the others write until its own first write.
TEST_CASE("shm: a small message is written back if each of two ranks has a core") {
  for (const int cores : {1, 2}) {
    CAPTURE(cores);
    const auto control = make_shm_control(2);
    const auto data = make_shm_data(2);
    auto giver = map_shm(0, 2, *control, *data), taker = map_shm(1, 2, *control, *data);
    REQUIRE((giver && taker));
    const ShmShape shape = giver->shape;
    void* const seen = ::mmap(nullptr, shape.control_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE,
                              control->get(), 0);
    REQUIRE(seen != MAP_FAILED);
    const char* const theirs = static_cast<const char*>(seen) + shape.pair_small(0);
    taker->small[0] = theirs;
    char* const own = giver->own_small;
    AbortFlag abort;
    const ShmOptions options{.usable_cores = cores};
    const std::unique_ptr<Plane> planes[] = {make_shm_plane(0, std::move(*giver), abort, options),
                                             make_shm_plane(1, std::move(*taker), abort, options)};
    std::vector<char> sent(8192, 's'), got(8192);
    for (const auto& [rank, buffer] : {std::pair(0, &sent), std::pair(1, &got)}) {
      CHECK(planes[rank]->run({Collective::broadcast, buffer->data(), buffer->data(), 8192, DL_INT8,
                               DL_SUM, 0, 1, steady_now() + 60s}));
    }
    CHECK(got == sent);
    std::memset(own + shape.small(1), 'x', 8192);
    const char* const slot = theirs + shape.small(1);
    CHECK(std::count(slot, slot + 8192, cores == 2 ? 's' : 'x') == 8192);
    ::munmap(seen, shape.control_bytes());
  }
}

TEST_CASE("shm: the result does not depend on how a vector is cut") {
  for (const int ranks : {3, 2}) {
    ShmWorld world(ranks, 64, true);
    constexpr std::size_t kCount = 100003;
    const auto n = static_cast<std::size_t>(ranks);
    std::vector<std::vector<float>> whole(n), parts(n);
    world.each([&](int rank) {
      std::mt19937 random(static_cast<unsigned>(rank));
      auto& a = whole[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < kCount; ++i) a.push_back(static_cast<float>(random()) * 1e-5f);
      auto& b = parts[static_cast<std::size_t>(rank)];
      b = a;
      CHECK(world.plane(rank).run(
          {Collective::all_reduce, a.data(), a.data(), kCount, DL_FLOAT32, DL_SUM, -1, 1, kNever}));
      std::uint64_t seq = 2;
      for (std::size_t from = 0; from < kCount; from += 7001) {
        const std::size_t count = std::min<std::size_t>(7001, kCount - from);
        CHECK(world.plane(rank).run({Collective::all_reduce, b.data() + from, b.data() + from,
                                     count, DL_FLOAT32, DL_SUM, -1, seq++, kNever}));
      }
    });
    CHECK(std::memcmp(whole[0].data(), parts[0].data(), kCount * 4) == 0);
    CHECK(std::memcmp(whole[0].data(), whole[n - 1].data(), kCount * 4) == 0);
  }
}

TEST_CASE("shm: a thousand runs have the same bits") {
  for (const int ranks : {2, 3}) {
    ShmWorld world(ranks, 64, true);
    world.each([&](int rank) { CHECK(thousand_runs_differ(world.plane(rank), rank) == ""); });
  }
}

TEST_CASE("shm: tensors of a list end anywhere in the blocks that two ranks exchange") {
  ShmWorld world(2, 64, false, {}, kSmallChunks);
  std::mt19937 random(12);
  for (std::uint64_t seq = 1; seq <= 20; ++seq) {
    const bool in_place = seq % 2 == 0;
    std::vector<std::size_t> counts(100);
    std::size_t total = 0;
    for (auto& count : counts) total += count = 1 + random() % (seq < 10 ? 300 : 3000);
    std::vector<std::vector<char>> inputs;
    for (unsigned r = 0; r < 2; ++r) inputs.push_back(random_bytes(total * 4, random()));
    const auto expected = reference(inputs, total, DL_INT32, DL_SUM);
    world.each([&](int rank) {
      std::vector<std::vector<int>> in, out;
      std::vector<const void*> from;
      std::vector<void*> to;
      const char* next = inputs[static_cast<std::size_t>(rank)].data();
      for (const std::size_t count : counts) {
        std::memcpy(in.emplace_back(count).data(), next, count * 4);
        out.emplace_back(count);
        next += count * 4;
      }
      for (std::size_t i = 0; i < counts.size(); ++i) {
        from.push_back(in[i].data());
        to.push_back(in_place ? in[i].data() : out[i].data());
      }
      const auto list = make_tensor_list(counts.size(), from.data(), to.data(), counts.data());
      REQUIRE(list);
      CHECK(world.plane(rank).run({.collective = Collective::all_reduce,
                                   .count = total,
                                   .dtype = DL_INT32,
                                   .op = DL_SUM,
                                   .seq = seq,
                                   .deadline = steady_now() + 60s,
                                   .list = &*list,
                                   .layout = layout_of(*list)}));
      const char* wanted = expected.data();
      bool equal = true;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        equal = equal && std::memcmp(to[i], wanted, counts[i] * 4) == 0;
        wanted += counts[i] * 4;
      }
      CHECK(equal);
    });
  }
}

TEST_CASE("shm: large results of two ranks, some of which go around the caches") {
  ShmWorld world(2, 64, true);
  check(world, {Collective::all_reduce, DL_FLOAT32, DL_AVG, (5u << 20) / 4 + 3, false}, 1, 1);
  for (const unsigned root : {0u, 1u}) {
    check(world, {Collective::reduce, DL_FLOAT32, DL_AVG, (7u << 20) / 4 + 3, false}, 2 + root,
          root);
  }
  check(world, {Collective::all_gather, DL_FLOAT32, DL_SUM, (5u << 20) / 4 + 3, false}, 4, 1);
}

TEST_CASE("shm: a rank that never comes is named at the deadline") {
  // One after the other: what the first has told stays there when its own time is up.
  for (const int cores : {1, 64}) {
    for (const int first : {0, 2}) {
      ShmWorld world(3, cores, true);
      const auto words_of = [&](int rank) {
        int x = rank;
        const auto done = world.plane(rank).run(
            {Collective::all_reduce, &x, &x, 1, DL_INT32, DL_SUM, -1, 1, steady_now() + 30ms});
        REQUIRE_FALSE(done);
        CHECK(done.error().code == Errc::timeout);
        return done.error().what;
      };
      const std::string alone = first == 0 ? "1-2; arrived: 0" : "0-1; arrived: 2";
      CHECK(words_of(first).ends_with("waiting for rank " + alone));
      CHECK(words_of(2 - first).ends_with("waiting for rank 1; arrived: 0,2"));
    }
  }
}

TEST_CASE("shm: raising the abort flag wakes a sleeping rank at once") {
  // Each 50 ms it looks by itself, so it is woken 5 ms after it did. A machine that has other
  // things to do takes its time: the fastest of many counts.
  for (const auto& sleeper : {Sleeper{1, 1}, Sleeper{1000000, 1}, Sleeper{1000000, 64}}) {
    Duration fastest = 1h;
    for (int i = 0; i < 100 && fastest >= 30ms; ++i) {
      fastest = std::min(fastest, time_to_wake(sleeper, 55ms));
    }
    CAPTURE(sleeper.count);
    CAPTURE(sleeper.cores);
    CHECK(fastest < 30ms);
  }
}

TEST_CASE("shm: the plan of a call covers all of it, whatever the shape") {
  for (const int n : {2, 3, 8}) {
    const ShmShape layout = shape_for(n);
    for (const Collective collective : kAllPlanes) {
      if (collective == Collective::barrier) continue;
      const bool scatter = collective == Collective::reduce_scatter;
      const std::size_t ranks = static_cast<std::size_t>(n);
      for (std::size_t count = 1; count < (std::size_t{64} << 20); count = count * 3 + 1) {
        const ShmPlan plan =
            plan_shm({.collective = collective, .count = count, .element_bytes = 4}, n, layout);
        CHECK(plan.input_bytes == count * 4 * (scatter ? ranks : 1));
        CHECK((plan.algorithm == ShmPlan::Algorithm::in_entry) ==
              (plan.input_bytes <= kInlineBytes));
        const bool shared =
            collective == Collective::all_reduce || collective == Collective::reduce;
        const bool exchange = shared && n == 2;
        const bool large = plan.input_bytes > (exchange ? kExchangeAbove : layout.small_bytes);
        CHECK((plan.algorithm == ShmPlan::Algorithm::blocks) == (large && !exchange));
        CHECK((plan.algorithm == ShmPlan::Algorithm::exchange) == (large && exchange));
        if (!large) continue;
        const std::size_t in_block = plan.chunk * (shared ? ranks : 1);
        CHECK(plan.chunk * 4 <= (exchange ? layout.exchange_bytes : layout.chunk_bytes));
        CHECK(plan.blocks * in_block >= count);
        CHECK((plan.blocks - 1) * in_block < count);
      }
    }
  }
}

TEST_CASE("shm: with a core for each rank, more ranks lower the limit of one-shot") {
  const auto algorithm = [](int ranks, bool own_cores, std::size_t bytes, Collective collective) {
    ShmShape layout = shape_for(ranks);
    layout.own_cores = own_cores;
    return plan_shm({.collective = collective, .count = bytes / 4, .element_bytes = 4}, ranks,
                    layout)
        .algorithm;
  };
  using Algorithm = ShmPlan::Algorithm;
  CHECK(algorithm(8, true, 1 << 10, Collective::all_reduce) == Algorithm::one_shot);
  CHECK(algorithm(8, true, (1 << 10) + 4, Collective::all_reduce) == Algorithm::blocks);
  CHECK(algorithm(16, true, 512, Collective::all_reduce) == Algorithm::one_shot);
  CHECK(algorithm(16, true, 516, Collective::all_reduce) == Algorithm::blocks);
  CHECK(algorithm(16, false, 8 << 10, Collective::all_reduce) == Algorithm::one_shot);
  CHECK(algorithm(16, true, 8 << 10, Collective::all_gather) == Algorithm::one_shot);
}

TEST_CASE("shm: an error about different calls names both ranks") {
  for (const int cores : {1, 64}) {
    ShmWorld world(2, cores, true);
    world.each([&](int rank) {
      std::vector<float> x(100000);
      const Call call{Collective::all_reduce,
                      x.data(),
                      x.data(),
                      rank == 0 ? 100000u : 99999u,
                      DL_FLOAT32,
                      DL_SUM,
                      -1,
                      1,
                      steady_now() + 60s};
      const auto done = world.plane(rank).run(call);
      REQUIRE_FALSE(done);
      CHECK(done.error().code == Errc::mismatch);
      CHECK(done.error().what.find("all_reduce(count 100000, float, sum)") != std::string::npos);
      CHECK(done.error().what.find("all_reduce(count 99999, float, sum)") != std::string::npos);
    });
  }
}

TEST_CASE("shm: no rank can write another one's part of the data segment") {
  const auto control = make_shm_control(3);
  const auto data = make_shm_data(3);
  std::vector<ShmMemory> ranks;
  for (int r = 0; r < 3; ++r) {
    auto memory = map_shm(r, 3, *control, *data);
    REQUIRE(memory);
    std::memset(memory->own, 'a' + r, memory->shape.data_bytes());
    ranks.push_back(std::move(*memory));
  }
  seal_shm_data(*data);
  for (int r = 0; r < 3; ++r) {
    ranks[0].fault_in();
    CHECK(ranks[0].data[static_cast<std::size_t>(r)][0] == 'a' + r);
    CHECK(ranks[0].data[static_cast<std::size_t>(r)][ranks[0].shape.data_bytes() - 1] == 'a' + r);
  }
  const std::size_t all = 3 * ranks[0].shape.data_stride();
  CHECK(::mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_SHARED, data->get(), 0) == MAP_FAILED);
}

TEST_CASE("shm: the staging memory of all ranks of a host together is bounded") {
  for (const int ranks : {2, 16, 64, 65, 128, 256, 257, 512, 1024, 2048}) {
    CAPTURE(ranks);
    const ShmShape shape = shape_for(ranks);
    CHECK(shape.chunk_bytes >= 64);
    CHECK(shape.chunk_bytes % 64 == 0);
    CHECK(static_cast<std::size_t>(ranks) * shape.staging_bytes() <= std::size_t{1100} << 20);
  }
}

TEST_CASE("shm: a root that does not exist is an error") {
  auto control = make_shm_control(2);
  const auto data = make_shm_data(2);
  auto memory = map_shm(0, 2, *control, *data);
  REQUIRE(memory);
  memory->header->released = 1 << 16 | 0xffff;  // as if a wild pointer had been there
  AbortFlag abort;
  const auto plane = make_shm_plane(0, std::move(*memory), abort, ShmOptions{.usable_cores = 1});
  float x = 1;
  const auto done = plane->run(
      {Collective::all_reduce, &x, &x, 1, DL_FLOAT32, DL_SUM, -1, 1, steady_now() + 60s});
  REQUIRE_FALSE(done);
  CHECK(done.error().code == Errc::protocol);
}
