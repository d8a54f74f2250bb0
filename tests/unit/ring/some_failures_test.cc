// dl_all_reduce_some() where ranks are lost, leave, do not come, or give wrong arguments.
#include <signal.h>

#include <atomic>
#include <iterator>
#include <string>
#include <vector>

#include "tests/unit/ring/some_world.h"

using namespace dlaunch;

TEST_CASE("some: the loss of a rank ends the calls of all, whether it was late or inside") {
  struct Board {
    std::atomic<int> pid;
    std::atomic<int> through;
  };
  for (const char* transport : kTransports) {
    for (const bool late : {true, false}) {
      CAPTURE(late);
      const SharedByRanks<Board> board;
      Together<3> together;
      const auto codes = run({.ranks = 4, .transport = transport}, [&](int rank, dl_comm*& comm) {
        const auto in = all_of(200'000, 1);
        if (rank == 3) {
          board->pid = ::getpid();
          if (late) {
            (void)becomes([&] { return board->through == 3; });
            return ::raise(SIGKILL);
          }
          (void)sum_some(comm, some_of(4), &in, in.size());  // rank 2 never comes
          return 1;
        }
        if (late) {
          EXPECT(sum_some(comm, some_of(3), &in, in.size()).result == DL_OK);
          ++board->through;
          // Its results for rank 3 are on their way for ever.
          while (sum_some(comm, some_of(3), &in, in.size()).result == DL_OK) {
          }
        } else if (rank == 2) {
          EXPECT(becomes([&] { return board->pid != 0 && board->through == 2; }));
          EXPECT(falls_asleep(board->pid));  // in its call
          ::kill(board->pid, SIGKILL);
        } else {
          ++board->through;
        }
        EXPECT(sum_some(comm, some_of(4), &in, in.size()).result == DL_ERR_PEER_LOST);
        EXPECT(dl_peer_lost(comm) == 3);
        together.come(rank);
        return 0;
      });
      CHECK(codes == std::vector<int>{0, 0, 0, 128 + SIGKILL});
    }
  }
}

TEST_CASE("some: ranks that differ in their terms learn it, also from a rank that is late") {
  struct Given {
    std::size_t count = 6;
    int need = 1, max_behind = 16;
    dl_op op = DL_SUM;
  };
  for (const Given& other :
       {Given{.count = 5}, Given{.need = 2}, Given{.max_behind = 3}, Given{.op = DL_AVG}}) {
    for (const bool late : {false, true}) {
      CAPTURE(late);
      Gate gate;
      Together<3> together;
      all_well({.ranks = 3}, [&](int rank, dl_comm*& comm) {
        const Given given = rank == 1 ? other : Given{};
        const auto in = all_of(given.count, 1);
        const auto call = [&](int need) {
          const auto options = some_of(need, DL_LATE_DROP, given.max_behind);
          return sum_some(comm, options, &in, given.count, given.op).result;
        };
        dl_result result = DL_OK;
        if (late && rank != 1) EXPECT(call(given.need) == DL_OK);
        if (late && rank != 1) gate.open();
        if (late && rank == 1) gate.pass(2);
        while (result == DL_OK) result = call(given.need);
        together.come(rank);
        EXPECT(result == DL_ERR_MISMATCH);
        const std::string said = dl_last_error(comm);
        // The first of the two that see it: rank 0, which decides, or a rank that gets a result.
        EXPECT((said.find("gave different counts or terms") != std::string::npos ||
                said.find("rank 1 called all_reduce_some") != std::string::npos ||
                said.find("message with tag") != std::string::npos));
        return 0;
      });
    }
  }
}

TEST_CASE("some: a rank that leaves before it has made all calls is lost to the others") {
  Gate gate;
  all_well({.ranks = 2}, [&](int rank, dl_comm*& comm) {
    const auto in = all_of(300'000, 1);
    if (rank == 1) {
      gate.pass();
      return 0;
    }
    EXPECT(sum_some(comm, some_of(1), &in, in.size()).result == DL_OK);
    gate.open();
    dl_result result = DL_OK;
    for (int call = 0; call < 100 && result == DL_OK; ++call) {
      result = sum_some(comm, some_of(1), &in, in.size()).result;
    }
    EXPECT(result == DL_ERR_PEER_LOST);
    return 0;
  });
}

TEST_CASE("some: a call whose ranks do not come ends with its time, and names them") {
  for (const char* transport : kTransports) {
    Gate gate;
    all_well({.ranks = 3, .transport = transport, .op_timeout_s = 2},
             [&](int rank, dl_comm*& comm) {
               const auto in = all_of(6, 1);
               if (rank == 2) {
                 gate.pass(2);
                 return 0;
               }
               const dl_result result = sum_some(comm, some_of(3), &in, 6).result;
               const std::string said = dl_last_error(comm);
               gate.open();
               EXPECT(result == DL_ERR_TIMEOUT);
               EXPECT(said.find("all_reduce_some #1 timed out") != std::string::npos);
               EXPECT(waits_for(said, 2));
               return 0;
             });
  }
}

TEST_CASE("some: wrong arguments do nothing, and a single rank is no different") {
  for (const int ranks : {1, 2}) {
    all_well({.ranks = ranks}, [](int rank, dl_comm*& comm) {
      double a[8] = {};
      const auto call = [&](const dl_some_options* options, const void* in, void* out,
                            dl_op op = DL_SUM, dl_dtype dtype = DL_FLOAT64) {
        return dl_all_reduce_some(comm, in, out, 4, dtype, op, options, nullptr, nullptr);
      };
      const auto with = [](auto change) {
        auto options = some_of(1, DL_LATE_DROP, 0);
        change(options);
        return options;
      };
      const auto good = some_of(1, DL_LATE_DROP, 0);
      EXPECT(call(nullptr, a, a) == DL_ERR_INVALID);
      for (const auto& bad :
           {with([](auto& o) { o.need = 0; }), with([](auto& o) { o.need = 3; }),
            with([](auto& o) { o.wait_s = -1; }), with([](auto& o) { o.max_behind = -1; }),
            with([](auto& o) { o.late = static_cast<dl_late>(2); }),
            with([](auto& o) { o.struct_size = 4; })}) {
        EXPECT(call(&bad, a, a) == DL_ERR_INVALID);
      }
      EXPECT(call(&good, a, nullptr) == DL_ERR_INVALID);
      EXPECT(call(&good, a, a + 1) == DL_ERR_INVALID);
      EXPECT(call(&good, a, a, DL_MAX) == DL_ERR_UNSUPPORTED);
      EXPECT(call(&good, a, a, DL_SUM, static_cast<dl_dtype>(99)) == DL_ERR_INVALID);
      for (double& value : a) value = rank + 1;
      EXPECT(call(&good, a, a, DL_AVG) == DL_OK);
      EXPECT(a[3] == (dl_size(comm) == 1 ? 1 : 1.5));
      return 0;
    });
  }
}
