// dl_all_reduce_some() between processes.
#include <atomic>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dlaunch/ring.hpp>

#include "base/clock.h"
#include "base/fnv1a.h"
#include "ring/call/operation.h"
#include "tests/unit/ring/some_world.h"
#include "tests/unit/sanitized.h"

using namespace dlaunch;

TEST_CASE("some: with all ranks in, a call is an all_reduce in the order of ranks") {
  for (const char* transport : kTransports) {
    for (const int ranks : {1, 2, 3, 5}) {
      all_well({.ranks = ranks, .transport = transport}, [&](int rank, dl_comm*& comm) {
        const auto options = some_of(ranks);
        for (const std::size_t count : {0UL, 1UL, 2UL, 333UL, 20011UL}) {
          std::vector<double> in(count);
          std::iota(in.begin(), in.end(), 1000.0 * rank);
          const SomeOutcome sum = sum_some(comm, options, &in, count);
          EXPECT(sum.result == DL_OK);
          EXPECT(sum.fate == DL_FATE_IN);
          EXPECT(sum.given == Counts(static_cast<std::size_t>(ranks), 1));
          for (std::size_t i = 0; i < count; ++i) {
            EXPECT(sum.out[i] == 1000.0 * ranks * (ranks - 1) / 2 + ranks * double(i));
          }
          EXPECT(dl_all_reduce_some(comm, in.data(), in.data(), count, DL_FLOAT64, DL_AVG, &options,
                                    nullptr, nullptr) == DL_OK);
          for (std::size_t i = 0; i < count; ++i) EXPECT(in[i] == sum.out[i] / ranks);
        }
        return 0;
      });
    }
  }
}

TEST_CASE("some: every type of number is added, and divided by the number of contributions") {
  all_well({.ranks = 3}, [&](int rank, dl_comm*& comm) {
    const auto options = some_of(2, DL_LATE_DROP, 0);  // waits for all: rank 1 gives nothing
    const auto call = [&](dl_dtype dtype, const void* in, void* out, dl_op op) {
      return dl_all_reduce_some(comm, rank == 1 ? nullptr : in, out, 4, dtype, op, &options,
                                nullptr, nullptr);
    };
    const std::uint8_t bytes[4] = {10, 20, 30, 250};
    std::uint8_t byte_out[4];
    EXPECT(call(DL_UINT8, bytes, byte_out, DL_SUM) == DL_OK);
    EXPECT((byte_out[0] == 20 && byte_out[3] == 244));
    const std::int32_t ints[4] = {7, rank, -5, 1};
    std::int32_t int_out[4];
    EXPECT(call(DL_INT32, ints, int_out, DL_AVG) == DL_OK);
    EXPECT((int_out[0] == 7 && int_out[1] == 1 && int_out[2] == -5));
    const std::uint16_t halves[4] = {0x3c00, 0x4000, 0, 0};  // 1, 2
    std::uint16_t half_out[4];
    EXPECT(call(DL_FLOAT16, halves, half_out, DL_SUM) == DL_OK);
    EXPECT((half_out[0] == 0x4000 && half_out[1] == 0x4400));
    return 0;
  });
}

TEST_CASE("some: a late rank gets the results without its values, which are dropped") {
  for (const char* transport : kTransports) {
    for (const auto& [late, count] :  // also the rank that decides, and beyond what sockets hold
         {std::pair(2, 5UL), std::pair(2, 300'000UL), std::pair(0, 300'000UL)}) {
      Gate gate;
      all_well({.ranks = 3, .transport = transport},
               [&, late = late, n = count](int rank, dl_comm*& comm) {
                 const auto options = some_of(2);
                 Counts others{1, 1, 1};
                 others[static_cast<std::size_t>(late)] = 0;
                 if (rank == late) {
                   gate.pass(2);
                   EXPECT(becomes([&] { return dl_some_behind(comm) == 3; }));
                 }
                 for (int call = 1; call <= 3; ++call) {
                   const auto in = all_of(n, rank == late ? 1e9 : call);
                   const SomeOutcome got = sum_some(comm, options, &in, n, DL_AVG);
                   EXPECT(got.result == DL_OK);
                   EXPECT(got.given == others);
                   EXPECT(got.out == all_of(n, call));
                   EXPECT(got.fate == (rank == late ? DL_FATE_DROPPED : DL_FATE_IN));
                 }
                 EXPECT(dl_some_behind(comm) == 0);
                 // The others may leave now: they wait until the late one has its results.
                 if (rank != late) gate.open();
                 return 0;
               });
    }
  }
}

TEST_CASE("some: a rank that leaves waits for late ranks to its time limit, and says for which") {
  for (const char* transport : kTransports) {
    Gate gate;
    const TempFolder folder;
    const std::string log = folder.path / "log";
    all_well({.ranks = 2, .transport = transport, .op_timeout_s = 2},
             [&](int rank, dl_comm*& comm) {
               const auto in = all_of(3'000'000, 1);
               if (rank == 1) gate.pass();
               const SomeOutcome got = sum_some(comm, some_of(1), &in, in.size());
               EXPECT(got.result == (rank == 0 ? DL_OK : DL_ERR_PEER_LOST));
               if (rank == 1) EXPECT(dl_peer_lost(comm) == 0);
               if (rank == 0) EXPECT(::freopen(log.c_str(), "w", stderr) != nullptr);
               const TimePoint begun = steady_now();
               dl_finalize(std::exchange(comm, nullptr));
               if (rank == 0) EXPECT(steady_now() - begun >= std::chrono::seconds(2));
               if (rank == 0) gate.open();
               return 0;
             });
    std::ifstream lines(log);
    const std::string said{std::istreambuf_iterator(lines), {}};
    CHECK(said.find("leaves once rank 1 has taken its results, or in ") != std::string::npos);
  }
}

TEST_CASE("some: the copy of a result ends with its message, even if the operation stays") {
  Completions completions;
  Operation operation(completions);
  auto copy = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = copy;
  operation.keeps = std::move(copy);
  operation.finish({});
  CHECK(seen.expired());
}

TEST_CASE("some: who sees that an operation is done sees that it is not under way") {
  Completions completions;
  Operation operation(completions);
  std::thread finishes;
  // Nobody else can have the lock meanwhile: the operation gets done at one moment.
  Completions::wait([&] {
    finishes = std::thread([&] { operation.finish({}); });
    for (int ms = 0; ms < 50 && !operation.done(); ++ms) ::usleep(1000);
    CHECK(operation.done() == (completions.under_way() == 0));
    return true;
  });
  finishes.join();
  CHECK(operation.done());
  CHECK(completions.under_way() == 0);
}

TEST_CASE("some: an exception ends a C++ communicator without a wait for late ranks") {
  Gate gate;
  all_well({.ranks = 2, .transport = "tcp"}, [&](int rank, dl_comm*& comm) {
    const auto in = all_of(3'000'000, 1);
    if (rank == 1) {
      gate.pass();
      EXPECT(sum_some(comm, some_of(1), &in, in.size()).result == DL_ERR_PEER_LOST);
      EXPECT(dl_peer_lost(comm) == 0);
      return 0;
    }
    const TimePoint begun = steady_now();
    try {
      const auto ring = dl::Communicator::adopt(std::exchange(comm, nullptr));
      if (sum_some(ring.get(), some_of(1), &in, in.size()).result != DL_OK) return 2;
      throw std::runtime_error("of the program");
    } catch (const std::runtime_error&) {
      gate.open();
    }
    EXPECT(steady_now() - begun < std::chrono::seconds(20));  // the time limit is 30 s
    return 0;
  });
}

TEST_CASE("some: what cannot be added up without loss of range is not carried") {
  for (const int ranks : {1, 2}) {
    all_well({.ranks = ranks}, [&](int rank, dl_comm*& comm) {
      const std::uint64_t in[2] = {};
      std::uint64_t out[2];
      const auto call = [&](dl_late late, dl_dtype dtype, dl_op op) {
        const auto options = some_of(1, late, 0);
        return dl_all_reduce_some(comm, &in, &out, 2, dtype, op, &options, nullptr, nullptr);
      };
      for (const dl_dtype dtype : {DL_UINT8, DL_INT8, DL_FLOAT8_E4M3, DL_FLOAT8_E5M2}) {
        for (const dl_op op : {DL_SUM, DL_AVG}) {
          EXPECT(call(DL_LATE_CARRY, dtype, op) == DL_ERR_UNSUPPORTED);
          EXPECT(call(DL_LATE_DROP, dtype, op) == DL_OK);
        }
      }
      for (const dl_dtype dtype : {DL_INT32, DL_UINT32, DL_INT64, DL_UINT64}) {
        EXPECT(call(DL_LATE_CARRY, dtype, DL_AVG) == DL_ERR_UNSUPPORTED);
        EXPECT(std::string(dl_last_error(comm)).find("use DL_LATE_DROP") != std::string::npos);
        EXPECT(call(DL_LATE_CARRY, dtype, DL_SUM) == DL_OK);
      }
      for (const dl_dtype dtype : {DL_FLOAT16, DL_BFLOAT16, DL_FLOAT32, DL_FLOAT64}) {
        EXPECT(call(DL_LATE_CARRY, dtype, DL_AVG) == DL_OK);
      }
      return 0;
    });
  }
}

TEST_CASE("some: kept integers go into no average") {
  Gate gate;
  all_well({.ranks = 2}, [&](int rank, dl_comm*& comm) {
    const std::int32_t in[2] = {3, 5};
    std::int32_t out[2];
    const auto call = [&](const std::int32_t* from, int need, dl_late late, dl_op op) {
      const auto options = some_of(need, late);
      return dl_all_reduce_some(comm, from, out, 2, DL_INT32, op, &options, nullptr, nullptr);
    };
    if (rank == 1) {
      gate.pass();
      EXPECT(becomes([&] { return dl_some_behind(comm) == 1; }));
    }
    EXPECT(call(in, 1, DL_LATE_CARRY, DL_SUM) == DL_OK);
    if (rank == 0) gate.open();
    if (rank == 1) EXPECT(call(in, 2, DL_LATE_DROP, DL_AVG) == DL_ERR_UNSUPPORTED);
    EXPECT(call(rank == 1 ? nullptr : in, 2, DL_LATE_DROP, DL_SUM) == DL_OK);
    EXPECT(out[1] == 10);
    EXPECT(call(in, 2, DL_LATE_DROP, DL_AVG) == DL_OK);  // nothing is left
    EXPECT(out[0] == 3);
    return 0;
  });
}

TEST_CASE("some: dl_abort() ends a call that waits") {
  Gate gate;
  all_well({.ranks = 2}, [&](int rank, dl_comm*& comm) {
    const auto in = all_of(3, 1);
    if (rank == 1) {
      gate.pass();
      EXPECT(sum_some(comm, some_of(2), &in, 3).result == DL_ERR_PEER_LOST);
      return 0;
    }
    std::atomic<bool> calls = false;
    std::atomic<bool> waits = false;
    std::thread aborts([&] {
      waits = becomes([&] { return calls.load(); }) && falls_asleep(::getpid());
      dl_abort(comm);
    });
    calls = true;
    const dl_result result = sum_some(comm, some_of(2), &in, 3).result;
    aborts.join();
    gate.open();
    EXPECT(waits);
    EXPECT(result == DL_ERR_ABORTED);
    return 0;
  });
}

TEST_CASE("some: carried contributions go into the next call of their rank, and count there") {
  for (const char* transport : kTransports) {
    Gate gate;
    all_well({.ranks = 3, .transport = transport}, [&](int rank, dl_comm*& comm) {
      auto options = some_of(2, DL_LATE_CARRY);
      const auto in = all_of(7, rank == 2 ? 100 : 1);
      if (rank == 2) {
        gate.pass(2);
        EXPECT(becomes([&] { return dl_some_behind(comm) == 3; }));
      }
      for (int call = 1; call <= 3; ++call) {
        const bool gives = rank != 2 || call < 3;
        const SomeOutcome got = sum_some(comm, options, gives ? &in : nullptr, 7);
        EXPECT(got.given == (Counts{1, 1, 0}));
        EXPECT(got.out == all_of(7, 2));
        EXPECT(got.fate == (rank == 2 ? DL_FATE_CARRIED : DL_FATE_IN));
      }
      if (rank != 2) gate.open();
      options.need = 3;
      const SomeOutcome four = sum_some(comm, options, rank == 2 ? nullptr : &in, 7, DL_AVG);
      EXPECT(four.given == (Counts{1, 1, 2}));
      EXPECT(four.out == all_of(7, 202.0 / 4));
      EXPECT(four.fate == DL_FATE_IN);
      const SomeOutcome five = sum_some(comm, options, &in, 7);  // nothing is left
      EXPECT(five.given == (Counts{1, 1, 1}));
      EXPECT(five.out == all_of(7, 102));
      return 0;
    });
  }
}

TEST_CASE("some: each slot carries its own values, and refuses those of another buffer") {
  Gate gate;
  all_well({.ranks = 2}, [&](int rank, dl_comm*& comm) {
    auto options = some_of(1, DL_LATE_CARRY);
    const auto one = all_of(3, 1), other = all_of(5, 10);
    if (rank == 1) {
      gate.pass();
      EXPECT(becomes([&] { return dl_some_behind(comm) == 2; }));
    }
    EXPECT(sum_some(comm, options, &one, 3).out == all_of(3, 1));
    options.slot = -9;
    EXPECT(sum_some(comm, options, &other, 5).out == all_of(5, 10));
    if (rank == 0) gate.open();
    options.need = 2;
    if (rank == 1) {
      EXPECT(sum_some(comm, options, &one, 3).result == DL_ERR_INVALID);  // this call did nothing
      EXPECT(std::string(dl_last_error(comm)).find("slot -9 carries 5 double") !=
             std::string::npos);
    }
    EXPECT(sum_some(comm, options, &other, 5).out == all_of(5, 30));
    options.slot = 0;
    EXPECT(sum_some(comm, options, nullptr, 3).given == (Counts{0, 1}));
    return 0;
  });
}

TEST_CASE("some: the others wait for a rank that is too far behind") {
  struct Board {
    std::atomic<int> waits;  // a process
    std::atomic<bool> came;
  };
  const SharedByRanks<Board> board;
  all_well({.ranks = 3}, [&](int rank, dl_comm*& comm) {
    const auto options = some_of(2, DL_LATE_DROP, 2);
    const auto in = all_of(3, 1);
    if (rank == 2) {
      EXPECT(becomes([&] { return board->waits != 0; }));
      EXPECT(falls_asleep(board->waits));
      board->came = true;
    }
    for (int call = 1; call <= 3; ++call) {
      if (rank == 0 && call == 3) board->waits = ::getpid();
      EXPECT(sum_some(comm, options, &in, 3).result == DL_OK);
      EXPECT((call < 3 || board->came));
    }
    return 0;
  });
}

TEST_CASE("some: a call waits for its time, and is over earlier if all have come") {
  all_well({.ranks = 2}, [&](int rank, dl_comm*& comm) {
    auto options = some_of(1);
    const auto in = all_of(3, 1);
    options.wait_s = 1e6;
    EXPECT(sum_some(comm, options, &in, 3).given == (Counts{1, 1}));
    options.wait_s = 0.05;
    EXPECT(dl_barrier(comm) == DL_OK);
    if (rank == 1) EXPECT(becomes([&] { return dl_some_behind(comm) == 1; }));
    const TimePoint begun = steady_now();
    EXPECT(sum_some(comm, options, &in, 3).given == (Counts{1, 0}));
    if (rank == 0) EXPECT(steady_now() - begun >= std::chrono::milliseconds(50));
    return 0;
  });
}

TEST_CASE("some: ranks that all give nothing get zeros") {
  all_well({.ranks = 3}, [](int rank, dl_comm*& comm) {
    for (const dl_op op : {DL_SUM, DL_AVG}) {
      const SomeOutcome got = sum_some(comm, some_of(1), nullptr, 4, op);
      EXPECT(got.out == all_of(4, 0));
      EXPECT(got.given == (Counts{0, 0, 0}));
      EXPECT(got.fate == DL_FATE_NONE);
    }
    return 0;
  });
}

namespace {

constexpr int kLedgerCalls = 60, kLedgerRanks = 5;
struct Ledger {
  std::atomic<std::uint64_t> bits[kLedgerCalls];  // a hash of the results of a call
  std::atomic<int> agree[kLedgerCalls];           // ranks with the same one
};

// What a rank knows about the contributions: element r of a result has those of rank r that are in,
// and element ranks + r the sum of their numbers.
int keep_ledger(int rank, dl_comm*& comm, unsigned seed, const SharedByRanks<Ledger>& ledger) {
  std::mt19937 random(seed * 100 + static_cast<unsigned>(rank));
  const auto r = static_cast<std::size_t>(rank), ranks = static_cast<std::size_t>(kLedgerRanks);
  double in = 0, in_numbers = 0, kept = 0, kept_numbers = 0, seen = 0, seen_numbers = 0;
  for (int call = 0; call < kLedgerCalls; ++call) {
    if (random() % 4 == 0) ::usleep(random() % 3000 * (rank == 1 ? 3 : 1));
    const bool last = call == kLedgerCalls - 1;  // all come there, and nothing stays kept
    const bool gives = random() % 5 > 0, carries = random() % 2 > 0;
    std::vector<double> values(2 * ranks);
    values[r] = 1;
    values[ranks + r] = call;
    auto options = some_of(3, carries ? DL_LATE_CARRY : DL_LATE_DROP, 6);
    if (last) options.need = kLedgerRanks;
    if (last) options.wait_s = 1e6;
    options.wait_s = std::max(options.wait_s, 1e-4);
    const SomeOutcome got = sum_some(comm, options, gives ? &values : nullptr, 2 * ranks);
    EXPECT(got.result == DL_OK);
    for (std::size_t other = 0; other < ranks; ++other) {
      EXPECT(got.out[other] == got.given[other]);
    }
    seen += got.out[r];
    seen_numbers += got.out[ranks + r];
    if (got.fate == DL_FATE_IN) {
      in += std::exchange(kept, 0) + (gives ? 1 : 0);
      in_numbers += std::exchange(kept_numbers, 0) + (gives ? call : 0);
    } else if (got.fate == DL_FATE_CARRIED && gives) {
      kept += 1;
      kept_numbers += call;
    } else {
      EXPECT(got.fate == (gives ? DL_FATE_DROPPED : kept > 0 ? DL_FATE_CARRIED : DL_FATE_NONE));
    }
    Fnv1a hash;
    for (const double value : got.out) hash.add(static_cast<std::uint64_t>(value));
    std::uint64_t none = 0;
    const auto at = static_cast<std::size_t>(call);
    ledger->bits[at].compare_exchange_strong(none, hash.value());
    EXPECT(ledger->bits[at] == hash.value());
    ++ledger->agree[at];
  }
  EXPECT(seen == in);
  EXPECT(seen_numbers == in_numbers);
  EXPECT(kept == 0);
  return 0;
}

}  // namespace

TEST_CASE("some: each contribution is in one call or dropped, whatever the delays") {
  for (const char* transport : kTransports) {
    for (unsigned seed = 0; seed < (kSanitized ? 1 : 4); ++seed) {
      CAPTURE(seed);
      const SharedByRanks<Ledger> ledger;
      all_well({.ranks = kLedgerRanks, .transport = transport},
               [&](int rank, dl_comm*& comm) { return keep_ledger(rank, comm, seed, ledger); });
      for (const auto& agree : ledger->agree) CHECK(agree == kLedgerRanks);
    }
  }
}

TEST_CASE("some: among few links, and in a group, beside other calls and messages") {
  ::setenv("DLAUNCH_LINKS", "few", 1);
  for (const char* transport : kTransports) {
    Gate gate;
    all_well({.ranks = 9, .transport = transport}, [&](int rank, dl_comm*& comm) {
      dl_comm* group = nullptr;
      EXPECT(dl_split(comm, rank % 2, -rank, &group) == DL_OK);
      const auto in = all_of(100, rank);
      for (int call = 0; call < 3; ++call) {
        const double odd = 1 + 3 + 5 + 7, even = 0 + 2 + 4 + 6 + 8;
        const SomeOutcome got = sum_some(group, some_of(dl_size(group)), &in, 100);
        EXPECT(got.out == all_of(100, rank % 2 == 1 ? odd : even));
        if (rank == 8) gate.pass(8);
        int value = rank;
        if (rank == 1) EXPECT(dl_send(comm, &value, 1, DL_INT32, 8, 0) == DL_OK);
        const SomeOutcome all = sum_some(comm, some_of(8), &in, 100);
        EXPECT(all.out == all_of(100, 28));
        EXPECT(all.fate == (rank == 8 ? DL_FATE_DROPPED : DL_FATE_IN));
        if (rank == 8) EXPECT(dl_recv(comm, &value, 1, DL_INT32, 1, 0) == DL_OK);
        EXPECT((rank != 8 || value == 1));
        if (rank != 8) gate.open();
        EXPECT(dl_barrier(comm) == DL_OK);
      }
      dl_finalize(group);
      return 0;
    });
  }
  ::unsetenv("DLAUNCH_LINKS");
}
