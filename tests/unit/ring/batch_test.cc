// Batches: what their calls become, and calls between processes through the C API. Persistent
// calls.
#include "ring/call/batch.h"

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <dlaunch/ring.h>
#include <doctest/doctest.h>

#include "process_world.h"

using namespace dlaunch;

namespace {

// Any memory of its own for each call.
struct Calls {
  std::deque<BatchedCall> all;
  std::vector<std::vector<char>> memory;

  Call& add(Collective collective, std::size_t count, dl_dtype dtype = DL_FLOAT32,
            dl_op op = DL_SUM) {
    memory.emplace_back(count * 2 * dtype_bytes(dtype) + 1);
    char* const at = memory.back().data();
    all.emplace_back().collective.keep(
        {.collective = collective, .in = at, .out = at, .count = count, .dtype = dtype, .op = op},
        2);
    return all.back().collective.call;
  }
  void add_message(void* at, std::size_t count, bool is_send) {
    BatchedCall& call = all.emplace_back();
    call.is_message = true;
    call.message = {.send = is_send ? at : nullptr,
                    .recv = is_send ? nullptr : at,
                    .is_send = is_send,
                    .count = count,
                    .dtype = DL_INT8,
                    .peer = 1};
  }
  std::string dependency(int rank = 0) const { return dependency_in(all, rank, 2); }
};

using Places = std::vector<std::vector<std::size_t>>;
constexpr auto kAny = [](const Call&) { return true; };

}  // namespace

TEST_CASE("batch: small calls of one kind become one") {
  Calls calls;
  calls.add(Collective::all_reduce, 10);
  calls.add(Collective::all_reduce, 10, DL_INT32);
  calls.add(Collective::barrier, 0);
  calls.add(Collective::all_reduce, 20);
  calls.add(Collective::all_reduce, 20, DL_FLOAT32, DL_MAX);
  calls.add_message(nullptr, 0, true);
  calls.add(Collective::all_reduce, kMostMergedBytes / 4 + 1);
  calls.add(Collective::all_reduce, 0);
  calls.add(Collective::all_reduce, 30);
  calls.add(Collective::broadcast, 5).root = 1;
  calls.add(Collective::broadcast, 5).root = 0;
  calls.add(Collective::broadcast, 6).root = 1;
  calls.add(Collective::all_gather, 5);
  calls.add(Collective::all_gather, 5);
  calls.add(Collective::all_reduce, 3, DL_INT32);
  CHECK(merged(calls.all, kAny) ==
        Places{{0, 3, 8}, {1, 14}, {2}, {4}, {6}, {7}, {9, 11}, {10}, {12}, {13}});
  CHECK(merged(calls.all, [](const Call&) { return false; }).size() == 14);
  const TensorList list = list_of(calls.all, {0, 3, 8});
  CHECK(list.ends == std::vector<std::size_t>{10, 30, 60});
  CHECK(list.in[1] == calls.all[3].collective.call.in);
}

TEST_CASE("batch: no call may use what another one writes") {
  std::vector<char> memory(100);
  char* const at = memory.data();
  {
    Calls calls;
    calls.add_message(at, 60, true);
    calls.add_message(at + 10, 10, true);
    calls.add_message(at + 20, 10, true);
    calls.add_message(at + 60, 40, false);
    CHECK(calls.dependency().empty());
    calls.add_message(at + 59, 1, false);
    CHECK(calls.dependency() ==
          "calls 1 (send) and 5 (recv) use the same memory, and one of them writes to it: the "
          "calls of a batch must not depend on each other");
  }
  {
    // The write is the longest, and begins first.
    Calls calls;
    calls.add_message(at, 90, false);
    calls.add_message(at + 95, 5, true);
    CHECK(calls.dependency().empty());
    calls.add_message(at + 80, 5, true);
    CHECK(!calls.dependency().empty());
  }
  {
    // In place; a broadcast's buffer counts as written on the root, too.
    Calls calls;
    calls.add(Collective::all_reduce, 10);
    Call& first = calls.add(Collective::broadcast, 10);
    first.root = 0;
    Call& second = calls.add(Collective::broadcast, 10);
    second.root = 0;
    second.in = second.out = first.out;
    CHECK(!calls.dependency(0).empty());
    CHECK(calls.dependency(0) == calls.dependency(1));
  }
  {
    // Parts of one call in another one.
    Calls calls;
    Call& gather = calls.add(Collective::all_gather, 10);
    Call& reduce = calls.add(Collective::all_reduce, 1);
    CHECK(calls.dependency().empty());
    reduce.in = reduce.out = static_cast<float*>(gather.out) + 19;
    CHECK(!calls.dependency().empty());
  }
}

TEST_CASE("batch: rank 0 gets nothing from an exscan") {
  Calls calls;
  Call& prefix = calls.add(Collective::exscan, 10);
  prefix.out = calls.add(Collective::all_reduce, 10).out;
  CHECK(calls.dependency(0).empty());
  CHECK(!calls.dependency(1).empty());
}

TEST_CASE("batch: collectives and messages of all kinds, in any order of messages") {
  for (const char* transport : kTransports) {
    all_well({3, transport}, [](int rank, dl_comm*& comm) {
      for (int round = 0; round < 3; ++round) {
        const int to = (rank + 1) % 3, from = (rank + 2) % 3;
        std::vector<std::int32_t> sums(64, rank + round), mine(500'000, rank), theirs(500'000);
        std::vector<float> wide(3000, 1), part(1000), all(6), own(2, static_cast<float>(rank));
        std::vector<std::int64_t> given = {10 * rank, 10 * rank + 1, 10 * rank + 2}, taken(3);
        double told = rank == 1 ? 2.5 : 0;
        std::size_t counts[] = {0, 1, 1};
        float uneven[2] = {};
        int any = -1, source = -1;
        EXPECT(dl_batch_start(comm) == DL_OK);
        // Large messages, which a peer takes only when it has begun to receive: some send first.
        const auto send = [&] { return dl_send(comm, mine.data(), mine.size(), DL_INT32, to, 5); };
        if (rank != 0) EXPECT(send() == DL_OK);
        for (auto& sum : sums) {
          EXPECT(dl_all_reduce(comm, &sum, &sum, 1, DL_INT32, DL_SUM) == DL_OK);
          EXPECT(sum == rank + round);
        }
        EXPECT(dl_batch_start(comm) == DL_OK);
        EXPECT(dl_recv(comm, theirs.data(), theirs.size(), DL_INT32, from, 5) == DL_OK);
        EXPECT(dl_broadcast(comm, &told, 1, DL_FLOAT64, 1) == DL_OK);
        EXPECT(dl_batch_end(comm) == DL_OK);
        if (rank == 0) EXPECT(send() == DL_OK);
        EXPECT(dl_reduce_scatter(comm, wide.data(), part.data(), 1000, DL_FLOAT32, DL_SUM) ==
               DL_OK);
        EXPECT(dl_all_gather(comm, own.data(), all.data(), 2, DL_FLOAT32) == DL_OK);
        EXPECT(dl_all_to_all(comm, given.data(), taken.data(), 1, DL_INT64) == DL_OK);
        EXPECT(dl_all_gather_v(comm, own.data(), uneven, counts, DL_FLOAT32) == DL_OK);
        if (rank == 2) EXPECT(dl_recv_any(comm, &any, 1, DL_INT32, 6, &source) == DL_OK);
        if (rank == 1) EXPECT(dl_send(comm, &rank, 1, DL_INT32, 2, 6) == DL_OK);
        counts[0] = 99;  // the library has its own copy
        if (round == 1) {
          dl_request* request = nullptr;
          EXPECT(dl_ibatch_end(comm, &request) == DL_OK);
          EXPECT(dl_wait(&request) == DL_OK);
        } else {
          EXPECT(dl_batch_end(comm) == DL_OK);
        }
        for (const auto sum : sums) EXPECT(sum == 3 + 3 * round);
        for (const auto value : theirs) EXPECT(value == from);
        EXPECT(part.front() == 3 && part.back() == 3 && told == 2.5);
        EXPECT(all == std::vector<float>({0, 0, 1, 1, 2, 2}));
        EXPECT(taken == std::vector<std::int64_t>({rank, 10 + rank, 20 + rank}));
        EXPECT(uneven[0] == 1 && uneven[1] == 2);
        if (rank == 2) EXPECT(any == 1 && source == 1);
      }
      return 0;
    });
  }
}

TEST_CASE("batch: errors of arguments, and what a batch refuses") {
  all_well({2}, [](int rank, dl_comm*& comm) {
    int x[2] = {1, 1}, y[2] = {};
    dl_request* request = nullptr;
    EXPECT(dl_batch_end(comm) == DL_ERR_INVALID);
    EXPECT(std::string(dl_last_error(comm)) == "no batch is open");
    EXPECT(dl_batch_start(comm) == DL_OK && dl_batch_end(comm) == DL_OK);
    EXPECT(dl_batch_start(comm) == DL_OK && dl_ibatch_end(comm, &request) == DL_OK);
    EXPECT(request == nullptr);

    // A call that is refused makes the end fail, too.
    EXPECT(dl_batch_start(comm) == DL_OK);
    EXPECT(dl_all_reduce(comm, x, y, 2, DL_INT32, DL_SUM) == DL_OK);
    EXPECT(dl_broadcast(comm, x, 2, DL_INT32, 2) == DL_ERR_INVALID);
    EXPECT(dl_send(comm, x, 2, DL_INT32, rank, 0) == DL_ERR_INVALID);
    EXPECT(dl_batch_end(comm) == DL_ERR_INVALID);
    EXPECT(std::string(dl_last_error(comm)) == "broadcast: root 2 is not a rank");
    EXPECT(y[0] == 0);

    const std::string open = "a batch is open";
    EXPECT(dl_batch_start(comm) == DL_OK);
    EXPECT(dl_iall_reduce(comm, x, y, 2, DL_INT32, DL_SUM, &request) == DL_ERR_INVALID);
    EXPECT(std::string(dl_last_error(comm)).starts_with(open) && request == nullptr);
    EXPECT(dl_batch_end(comm) == DL_ERR_INVALID);
    void* memory = nullptr;
    dl_comm* group = nullptr;
    EXPECT(dl_batch_start(comm) == DL_OK);
    EXPECT(dl_alloc(comm, 1, &memory) == DL_ERR_INVALID);
    EXPECT(dl_split(comm, 0, 0, &group) == DL_ERR_INVALID);
    dl_batch_drop(comm);

    EXPECT(dl_batch_start(comm) == DL_OK);
    EXPECT(dl_all_reduce(comm, x, y, 2, DL_INT32, DL_SUM) == DL_OK);
    EXPECT(dl_all_reduce(comm, y, y, 2, DL_INT32, DL_SUM) == DL_OK);
    EXPECT(dl_batch_end(comm) == DL_ERR_INVALID);
    EXPECT(std::string(dl_last_error(comm)).starts_with("batch: calls 1 (all_reduce) and 2"));

    // Without a place for the request: the end of an inner level, then of the batch.
    EXPECT(dl_ibatch_end(comm, nullptr) == DL_ERR_INVALID);
    EXPECT(std::string(dl_last_error(comm)) == "no batch is open");
    EXPECT(dl_batch_start(comm) == DL_OK && dl_batch_start(comm) == DL_OK);
    EXPECT(dl_all_reduce(comm, x, y, 2, DL_INT32, DL_SUM) == DL_OK);
    EXPECT(dl_ibatch_end(comm, nullptr) == DL_ERR_INVALID);
    EXPECT(std::string(dl_last_error(comm)) == "request is null");
    EXPECT(dl_batch_end(comm) == DL_ERR_INVALID && y[0] == 0);
    EXPECT(dl_batch_start(comm) == DL_OK);
    EXPECT(dl_ibatch_end(comm, nullptr) == DL_ERR_INVALID);

    // Nothing of this was made, and the communicator goes on.
    EXPECT(dl_all_reduce(comm, x, y, 2, DL_INT32, DL_SUM) == DL_OK && y[1] == 2);
    return 0;
  });
}

TEST_CASE("batch: each error of an argument is that of the end, too, which then does nothing") {
  using Wrong = dl_result (*)(dl_comm*, float*);
  static constexpr Wrong kWrong[] = {
      [](dl_comm* comm, float* x) { return dl_all_gather_v(comm, x, x + 1, nullptr, DL_FLOAT32); },
      [](dl_comm* comm, float* x) {
        return dl_all_to_all_v(comm, x, nullptr, x + 1, nullptr, DL_FLOAT32);
      },
      [](dl_comm* comm, float* x) {
        const std::size_t given[] = {1, 1}, taken[] = {2, 2};
        return dl_all_to_all_v(comm, x, given, x + 2, taken, DL_FLOAT32);
      },
      [](dl_comm* comm, float*) {
        return dl_all_reduce_list(comm, 1, nullptr, nullptr, nullptr, DL_FLOAT32, DL_SUM);
      },
      [](dl_comm* comm, float* x) {
        return dl_all_reduce_shards(comm, 0, nullptr, x, 1, DL_FLOAT32, DL_SUM);
      },
      [](dl_comm* comm, float* x) {
        return dl_compressed_average(comm, x, x, 1, static_cast<dl_codec>(99), nullptr);
      },
      [](dl_comm* comm, float* x) {
        return dl_all_reduce_some(comm, x, x, 1, DL_FLOAT32, DL_SUM, nullptr, nullptr, nullptr);
      },
      [](dl_comm* comm, float*) { return dl_ibarrier(comm, nullptr); },
      [](dl_comm* comm, float*) { return dl_split(comm, 0, 0, nullptr); },
      [](dl_comm* comm, float*) { return dl_alloc(comm, 1, nullptr); },
  };
  all_well({2}, [](int rank, dl_comm*& comm) {
    float x[10] = {}, one = 1, sum = 0;
    for (const Wrong wrong : kWrong) {
      EXPECT(dl_batch_start(comm) == DL_OK);
      EXPECT(dl_all_reduce(comm, &one, &sum, 1, DL_FLOAT32, DL_SUM) == DL_OK);
      EXPECT(wrong(comm, x) == DL_ERR_INVALID);
      const std::string why = dl_last_error(comm);
      EXPECT(dl_batch_end(comm) == DL_ERR_INVALID);
      EXPECT(dl_last_error(comm) == why);
      EXPECT(sum == 0);
    }
    return 0;
  });
}

TEST_CASE("batch: ranks with different batches get an error") {
  for (const char* transport : kTransports) {
    all_well({2, transport}, [](int rank, dl_comm*& comm) {
      float x[3] = {};
      EXPECT(dl_batch_start(comm) == DL_OK);
      EXPECT(dl_all_reduce(comm, x, x, 1, DL_FLOAT32, DL_SUM) == DL_OK);
      EXPECT(dl_all_reduce(comm, x + 1, x + 1, 1 + static_cast<std::size_t>(rank), DL_FLOAT32,
                           DL_SUM) == DL_OK);
      EXPECT(dl_batch_end(comm) == DL_ERR_MISMATCH);
      EXPECT(dl_barrier(comm) == DL_ERR_MISMATCH);
      return 0;
    });
  }
}

TEST_CASE("batch: all ranks make the same calls in a batch, or none does") {
  for (const char* transport : kTransports) {
    all_well({2, transport}, [](int rank, dl_comm*& comm) {
      float x[2] = {};
      const auto both = [&] {
        const dl_result first = dl_all_reduce(comm, x, x, 1, DL_FLOAT32, DL_SUM);
        return first == DL_OK ? dl_all_reduce(comm, x + 1, x + 1, 1, DL_FLOAT32, DL_SUM) : first;
      };
      if (rank == 0) {
        EXPECT(dl_batch_start(comm) == DL_OK && both() == DL_OK);
        EXPECT(dl_batch_end(comm) == DL_ERR_MISMATCH);
      } else {
        EXPECT(both() == DL_ERR_MISMATCH);
      }
      EXPECT(dl_barrier(comm) == DL_ERR_MISMATCH);
      return 0;
    });
  }
}

TEST_CASE("batch: in shared memory sums of floats have the bits of calls of their own") {
  for (const dl_dtype dtype : {DL_FLOAT32, DL_BFLOAT16}) {
    all_well({3, "shm"}, [dtype](int rank, dl_comm*& comm) {
      const std::size_t element = dtype_bytes(dtype);
      std::mt19937 random(static_cast<unsigned>(7 + rank));
      // Sums of normal numbers of many sizes, so that most are rounded.
      std::uniform_int_distribution<unsigned> sizes(1, 3000), bits(0, 0xFFFF);
      std::vector<std::size_t> ends = {0};
      std::mt19937 common(5);
      for (int i = 0; i < 40; ++i) ends.push_back(ends.back() + sizes(common));
      std::vector<std::uint16_t> given(ends.back() * element / 2);
      for (std::size_t i = 0; i < given.size(); ++i) {
        const bool has_exponent = element == 2 || i % 2 == 1;  // the upper half of a float32
        given[i] = static_cast<std::uint16_t>(bits(random));
        if (has_exponent) given[i] = static_cast<std::uint16_t>((given[i] & 0x83FF) | 0x3C00);
      }
      const auto reduce_all = [&](std::vector<std::uint16_t>& sums) {
        for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
          const std::size_t at = ends[i] * element / 2;
          const auto done = dl_all_reduce(comm, given.data() + at, sums.data() + at,
                                          ends[i + 1] - ends[i], dtype, DL_SUM);
          if (done != DL_OK) return done;
        }
        return DL_OK;
      };
      std::vector<std::uint16_t> alone(given.size()), together(given.size());
      EXPECT(reduce_all(alone) == DL_OK);
      EXPECT(dl_batch_start(comm) == DL_OK && reduce_all(together) == DL_OK);
      EXPECT(dl_batch_end(comm) == DL_OK);
      EXPECT(alone == together && alone != given);
      return 0;
    });
  }
}

TEST_CASE("batch: the loss of a rank ends all calls") {
  for (const char* transport : kTransports) {
    Gate gate;
    CHECK(run({3, transport}, [&](int rank, dl_comm*& comm) {
            if (rank == 2) {
              gate.pass(2);
              ::raise(SIGKILL);
            }
            float x = 1, y = 0;
            EXPECT(dl_batch_start(comm) == DL_OK);
            if (rank == 0) EXPECT(dl_recv(comm, &y, 1, DL_FLOAT32, 2, 0) == DL_OK);
            EXPECT(dl_all_reduce(comm, &x, &x, 1, DL_FLOAT32, DL_SUM) == DL_OK);
            gate.open();
            EXPECT(dl_batch_end(comm) == DL_ERR_PEER_LOST);
            EXPECT(dl_peer_lost(comm) == 2);
            EXPECT(dl_batch_start(comm) == DL_OK);
            EXPECT(dl_barrier(comm) == DL_ERR_PEER_LOST);
            EXPECT(dl_batch_end(comm) == DL_ERR_PEER_LOST);
            return 0;
          }) == std::vector<int>{0, 0, 128 + SIGKILL});
  }
}

TEST_CASE("batch: a time limit ends it, and names the missing rank") {
  for (const char* transport : kTransports) {
    Gate gate;
    all_well({.ranks = 2, .transport = transport, .op_timeout_s = 0.3},
             [&](int rank, dl_comm*& comm) {
               float x = 1, y = 0;
               if (rank == 1) {
                 gate.pass();
                 return 0;
               }
               EXPECT(dl_batch_start(comm) == DL_OK);
               EXPECT(dl_recv(comm, &y, 1, DL_FLOAT32, 1, 0) == DL_OK);
               EXPECT(dl_all_reduce(comm, &x, &x, 1, DL_FLOAT32, DL_SUM) == DL_OK);
               const dl_result ended = dl_batch_end(comm);
               gate.open();
               EXPECT(ended == DL_ERR_TIMEOUT);
               EXPECT(std::string(dl_last_error(comm)).find("rank 1") != std::string::npos);
               return 0;
             });
  }
}

TEST_CASE(
    "persistent: calls with the results of plain ones, alone, in a batch and in the background") {
  for (const char* transport : kTransports) {
    all_well({3, transport}, [](int rank, dl_comm*& comm) {
      double value = 0, sum = 0, all[3] = {}, told = 0, most = 0;
      std::int32_t parts[3] = {}, part = 0, crossed[3] = {};
      dl_persistent *reduce = nullptr, *gather = nullptr, *tell = nullptr, *meet = nullptr,
                    *scatter = nullptr, *cross = nullptr, *to_root = nullptr;
      EXPECT(dl_all_reduce_init(comm, &value, &sum, 1, DL_FLOAT64, DL_SUM, &reduce) == DL_OK);
      EXPECT(dl_all_gather_init(comm, &value, all, 1, DL_FLOAT64, &gather) == DL_OK);
      EXPECT(dl_broadcast_init(comm, &told, 1, DL_FLOAT64, 2, &tell) == DL_OK);
      EXPECT(dl_reduce_scatter_init(comm, parts, &part, 1, DL_INT32, DL_SUM, &scatter) == DL_OK);
      EXPECT(dl_all_to_all_init(comm, parts, crossed, 1, DL_INT32, &cross) == DL_OK);
      EXPECT(dl_reduce_init(comm, &value, &most, 1, DL_FLOAT64, DL_MAX, 1, &to_root) == DL_OK);
      EXPECT(dl_barrier_init(comm, &meet) == DL_OK);
      const std::vector<dl_persistent*> calls = {reduce, gather,  tell, scatter,
                                                 cross,  to_root, meet};
      for (int round = 0; round < 30; ++round) {
        value = rank + round;
        told = rank == 2 ? round : 0;
        for (int r = 0; r < 3; ++r) parts[r] = 10 * rank + r + round;
        if (round % 3 == 0) {
          for (dl_persistent* const call : calls) EXPECT(dl_persistent_run(call) == DL_OK);
        } else if (round % 3 == 1) {
          EXPECT(dl_batch_start(comm) == DL_OK);
          for (dl_persistent* const call : calls) EXPECT(dl_persistent_run(call) == DL_OK);
          EXPECT(dl_batch_end(comm) == DL_OK);
        } else {
          std::vector<dl_request*> requests(calls.size());
          for (std::size_t i = 0; i < calls.size(); ++i) {
            EXPECT(dl_persistent_start(calls[i], &requests[i]) == DL_OK);
          }
          // Behind those in the background.
          double one = 1;
          if (rank == 0) {
            EXPECT(dl_all_reduce(comm, &one, &one, 1, DL_FLOAT64, DL_SUM) == DL_OK && one == 3);
          } else {
            dl_persistent* own = nullptr;
            EXPECT(dl_all_reduce_init(comm, &one, &one, 1, DL_FLOAT64, DL_SUM, &own) == DL_OK);
            EXPECT(dl_persistent_run(own) == DL_OK && one == 3);
            dl_persistent_free(own);
          }
          EXPECT(dl_wait_all(requests.size(), requests.data()) == DL_OK);
        }
        EXPECT(sum == 3 + 3 * round && told == round && (rank != 1 || most == 2 + round));
        for (int r = 0; r < 3; ++r) {
          EXPECT(all[r] == r + round && crossed[r] == 10 * r + rank + round);
        }
        EXPECT(part == 30 + 3 * rank + 3 * round);
      }
      for (dl_persistent* const call : calls) dl_persistent_free(call);
      return 0;
    });
  }
}

TEST_CASE("persistent: wrong arguments, and ranks that differ") {
  for (const char* transport : kTransports) {
    all_well({2, transport}, [](int rank, dl_comm*& comm) {
      float x[2] = {};
      dl_persistent* call = nullptr;
      EXPECT(dl_broadcast_init(comm, x, 2, DL_FLOAT32, 2, &call) == DL_ERR_INVALID);
      EXPECT(call == nullptr);
      EXPECT(dl_barrier_init(comm, nullptr) == DL_ERR_INVALID);
      EXPECT(dl_persistent_run(nullptr) == DL_ERR_INVALID);
      dl_persistent_free(nullptr);
      EXPECT(dl_all_reduce_init(comm, x, x, 1 + static_cast<std::size_t>(rank), DL_FLOAT32, DL_SUM,
                                &call) == DL_OK);
      EXPECT(dl_barrier(comm) == DL_OK);
      EXPECT(dl_persistent_run(call) == DL_ERR_MISMATCH);
      EXPECT(std::string(dl_last_error(comm)).find("all_reduce(count 2") != std::string::npos);
      EXPECT(dl_persistent_run(call) == DL_ERR_MISMATCH);
      dl_persistent_free(call);
      return 0;
    });
  }
}

TEST_CASE("persistent: the loss of a rank") {
  for (const char* transport : kTransports) {
    Gate gate;
    CHECK(run({2, transport}, [&](int rank, dl_comm*& comm) {
            float x = 1;
            dl_persistent* call = nullptr;
            EXPECT(dl_all_reduce_init(comm, &x, &x, 1, DL_FLOAT32, DL_SUM, &call) == DL_OK);
            EXPECT(dl_persistent_run(call) == DL_OK);
            // Rank 0 may still be in the call when it is over on rank 1.
            if (rank == 0) gate.open();
            if (rank == 1) {
              gate.pass();
              ::raise(SIGKILL);
            }
            EXPECT(dl_persistent_run(call) == DL_ERR_PEER_LOST);
            EXPECT(dl_persistent_run(call) == DL_ERR_PEER_LOST);
            dl_persistent_free(call);
            return 0;
          }) == std::vector<int>{0, 128 + SIGKILL});
  }
}
