// The C API between real processes that meet in a folder.
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <dlaunch/ring.h>
#include <doctest/doctest.h>

#include "base/clock.h"
#include "process_world.h"

using namespace dlaunch;

TEST_CASE("api: collectives and messages over both transports") {
  for (const char* transport : kTransports) {
    all_well({3, transport}, [transport](int rank, dl_comm*& comm) {
      EXPECT(dl_rank(comm) == rank);
      EXPECT(dl_size(comm) == 3);
      EXPECT(std::strcmp(dl_transport(comm), transport) == 0);
      std::vector<float> x(100000, static_cast<float>(rank + 1)), all(300000);
      EXPECT(dl_all_reduce(comm, x.data(), x.data(), x.size(), DL_FLOAT32, DL_SUM) == DL_OK);
      EXPECT(x.front() == 6 && x.back() == 6);
      EXPECT(dl_all_gather(comm, x.data(), all.data(), x.size(), DL_FLOAT32) == DL_OK);
      EXPECT(all.back() == 6);
      int root = rank == 2 ? 42 : 0;
      EXPECT(dl_broadcast(comm, &root, 1, DL_INT32, 2) == DL_OK);
      EXPECT(root == 42);
      EXPECT(dl_barrier(comm) == DL_OK);
      // Around the ring, large enough that no send ends before its receive begins.
      std::vector<double> out(1 << 20, rank), in(1 << 20);
      EXPECT(dl_send(comm, out.data(), out.size(), DL_FLOAT64, (rank + 1) % 3, 7) == DL_OK);
      EXPECT(dl_recv(comm, in.data(), in.size(), DL_FLOAT64, (rank + 2) % 3, 7) == DL_OK);
      EXPECT(in.back() == (rank + 2) % 3);
      return 0;
    });
  }
}

TEST_CASE("api: wrong arguments are refused, and the communicator still works") {
  all_well({2, "shm"}, [](int rank, dl_comm*& comm) {
    float x[4] = {};
    EXPECT(dl_all_reduce(comm, nullptr, x, 4, DL_FLOAT32, DL_SUM) == DL_ERR_INVALID);
    EXPECT(dl_all_reduce(comm, x, x + 1, 3, DL_FLOAT32, DL_SUM) == DL_ERR_INVALID);
    EXPECT(dl_all_reduce(comm, x, x, 4, static_cast<dl_dtype>(77), DL_SUM) == DL_ERR_INVALID);
    EXPECT(dl_all_reduce(comm, x, x, 4, DL_FLOAT32, static_cast<dl_op>(77)) == DL_ERR_INVALID);
    EXPECT(dl_all_reduce(comm, x, x, 4, static_cast<dl_dtype>(-1), DL_SUM) == DL_ERR_INVALID);
    EXPECT(dl_all_reduce(comm, x, x, 4, DL_FLOAT32, static_cast<dl_op>(-1)) == DL_ERR_INVALID);
    EXPECT(
        (dl_dtype_bytes(static_cast<dl_dtype>(-1)) == 0 && dl_dtype_bytes(DL_DTYPE_ANY_INT) == 0));
    EXPECT(dl_all_reduce(comm, x, x, SIZE_MAX / 2, DL_FLOAT32, DL_SUM) == DL_ERR_INVALID);
    EXPECT(dl_all_reduce(comm, x, x, 4, DL_FLOAT32, DL_BAND) == DL_ERR_UNSUPPORTED);
    EXPECT(dl_broadcast(comm, x, 4, DL_FLOAT32, 2) == DL_ERR_INVALID);
    EXPECT(dl_send(comm, x, 4, DL_FLOAT32, rank, 0) == DL_ERR_INVALID);
    EXPECT(dl_recv(comm, x, 4, DL_FLOAT32, 1 - rank, -1) == DL_ERR_INVALID);
    EXPECT(dl_all_reduce(nullptr, x, x, 4, DL_FLOAT32, DL_SUM) == DL_ERR_INVALID);
    EXPECT(std::strstr(dl_last_error(nullptr), "null") != nullptr);
    EXPECT(dl_wait_all(2, nullptr) == DL_ERR_INVALID);
    EXPECT(std::strstr(dl_last_error(nullptr), "dl_wait_all: the array of requests is null"));
    EXPECT(dl_wait_any(2, nullptr, nullptr) == DL_ERR_INVALID);
    EXPECT(dl_wait_all(0, nullptr) == DL_OK);
    EXPECT(dl_round(nullptr) == 0 && dl_round_over(nullptr) == 0);
    EXPECT(dl_all_reduce(comm, nullptr, nullptr, 0, DL_FLOAT32, DL_SUM) == DL_OK);
    EXPECT(dl_barrier(comm) == DL_OK);
    return 0;
  });
}

TEST_CASE("api: a refused background call leaves no request") {
  all_well({2, "shm"}, [](int rank, dl_comm*& comm) {
    float x[4] = {};
    const auto refused = [&](const auto& start) {
      auto* request = reinterpret_cast<dl_request*>(x);  // as where it has not been set
      return start(&request) == DL_ERR_INVALID && dl_wait(&request) == DL_OK;
    };
    EXPECT(refused([&](dl_request** r) { return dl_ibarrier(nullptr, r); }));
    EXPECT(refused([&](dl_request** r) { return dl_isend(comm, x, 4, DL_FLOAT32, rank, 0, r); }));
    EXPECT(refused(
        [&](dl_request** r) { return dl_iall_gather_v(comm, x, x, nullptr, DL_FLOAT32, r); }));
    EXPECT(refused([&](dl_request** r) {
      return dl_ibroadcast_list(comm, 1, nullptr, nullptr, DL_FLOAT32, 0, r);
    }));
    const std::size_t one[] = {1, 1}, two[] = {2, 2};
    EXPECT(refused(
        [&](dl_request** r) { return dl_iall_to_all_v(comm, x, nullptr, x, one, DL_FLOAT32, r); }));
    EXPECT(refused([&](dl_request** r) {  // more for itself than it takes
      return dl_iall_to_all_v(comm, x, two, x + 2, one, DL_FLOAT32, r);
    }));
    EXPECT(refused([&](dl_request** r) {  // overlap
      return dl_iall_to_all_v(comm, x, one, x + 1, one, DL_FLOAT32, r);
    }));
    EXPECT(dl_ibarrier(comm, nullptr) == DL_ERR_INVALID);
    EXPECT(dl_barrier(comm) == DL_OK);
    return 0;
  });
}

TEST_CASE("api: ranks that disagree about a part of an all_to_all_v get its two lengths") {
  for (const char* transport : {"shm", "tcp"}) {
    all_well({3, transport}, [](int rank, dl_comm*& comm) {
      const std::vector<float> in(6, 1);
      std::vector<float> out(9);
      const std::size_t to[] = {2, 2, 2};
      // Rank 1 believes that it gets three from rank 2.
      const std::size_t from[] = {2, 2, rank == 1 ? std::size_t{3} : std::size_t{2}};
      const auto result = dl_all_to_all_v(comm, in.data(), to, out.data(), from, DL_FLOAT32);
      if (rank == 1) {
        EXPECT(result == DL_ERR_MISMATCH);
        EXPECT(dl_last_error(comm) ==
               std::string(
                   "all_to_all_v #1: rank 2 gives 2 elements to rank 1, which takes 3 from it"));
      } else {
        EXPECT(result != DL_OK);
      }
      return 0;
    });
  }
}

TEST_CASE("api: another call than all_to_all_v is named beside it") {
  for (const char* transport : {"shm", "tcp"}) {
    all_well({2, transport}, [](int rank, dl_comm*& comm) {
      const std::size_t none[] = {0, 0};
      const auto result = rank == 0 ? dl_all_to_all_v(comm, nullptr, none, nullptr, none, DL_INT8)
                                    : dl_barrier(comm);
      EXPECT(result != DL_OK);
      const std::string said = dl_last_error(comm);
      EXPECT((said.find("called all_to_all_v") != std::string::npos || result == DL_ERR_PEER_LOST));
      return 0;
    });
  }
}

TEST_CASE("api: a refused call leaves no group and no memory") {
  int here = 0;
  auto* group = reinterpret_cast<dl_comm*>(&here);  // as where it has not been set
  CHECK(dl_split(nullptr, 0, 0, &group) == DL_ERR_INVALID);
  CHECK(group == nullptr);
  dl_comm* comm = nullptr;
  REQUIRE(dl_init(nullptr, nullptr, &comm) == DL_OK);
  group = reinterpret_cast<dl_comm*>(&here);
  CHECK(dl_group(comm, nullptr, 1, 0, -1, &group) == DL_ERR_INVALID);
  CHECK(group == nullptr);
  void* memory = &here;
  CHECK(dl_alloc(nullptr, 8, &memory) == DL_ERR_INVALID);
  CHECK(memory == nullptr);
  dl_finalize(comm);
}

TEST_CASE("api: tensors of a list that overlap are refused by their numbers") {
  all_well({2, "shm"}, [](int rank, dl_comm*& comm) {
    std::vector<float> x(40, 1.0F);
    struct List {
      std::size_t in[4], out[4], counts[4];  // first elements in x, and how many
      const char* wrong;                     // null: nothing is
    };
    // The second one is empty wherever it is.
    const List lists[] = {
        {{0, 5, 10, 20}, {0, 5, 10, 20}, {10, 0, 10, 20}, nullptr},
        {{30, 5, 30, 0}, {20, 5, 10, 0}, {10, 0, 10, 10}, nullptr},  // inputs may
        {{0, 5, 10, 20}, {1, 5, 10, 20}, {10, 0, 10, 20}, "the outputs of tensors 0 and 2"},
        {{0, 5, 20, 0}, {20, 5, 10, 0}, {10, 0, 11, 5}, "the outputs of tensors 0 and 2"},
        {{0, 5, 0, 0}, {0, 5, 20, 0}, {10, 0, 10, 10}, "the outputs of tensors 0 and 3"},
        {{0, 5, 10, 20}, {0, 5, 11, 25}, {5, 0, 10, 4}, "in and out of tensor 2 overlap without"},
        {{0, 5, 29, 20},
         {0, 5, 10, 20},
         {10, 0, 5, 10},
         "the input of tensor 2 and the output of tensor 3"},
    };
    for (const List& list : lists) {
      const void* in[4];
      void* out[4];
      for (int i = 0; i < 4; ++i) {
        in[i] = &x[list.in[i]];
        out[i] = &x[list.out[i]];
      }
      const auto told = dl_all_reduce_list(comm, 4, in, out, list.counts, DL_FLOAT32, DL_MAX);
      EXPECT(told == (list.wrong == nullptr ? DL_OK : DL_ERR_INVALID));
      EXPECT((list.wrong == nullptr || std::strstr(dl_last_error(comm), list.wrong) != nullptr));
      EXPECT(dl_broadcast_list(comm, 4, out, list.counts, DL_FLOAT32, 1) == DL_OK);
    }
    return 0;
  });
}

TEST_CASE("api: different calls end in an error that names both ranks, on every rank") {
  for (const char* transport : kTransports) {
    Together<3> failed;
    all_well({3, transport}, [&](int rank, dl_comm*& comm) {
      std::vector<float> x(1000);
      const auto result = rank == 1
                              ? dl_broadcast(comm, x.data(), 1000, DL_FLOAT32, 0)
                              : dl_all_reduce(comm, x.data(), x.data(), 1000, DL_FLOAT32, DL_MAX);
      // Rank 1's broadcast may be complete before anybody looks; its next call then tells.
      const auto told = result == DL_OK ? dl_barrier(comm) : result;
      failed.come(rank);
      EXPECT(told == DL_ERR_MISMATCH);
      EXPECT(
          std::strstr(dl_last_error(comm), "rank 1 called broadcast(count 1000, float, root 0)"));
      EXPECT(std::strstr(dl_last_error(comm), "called all_reduce(count 1000, float, max)"));
      EXPECT(dl_barrier(comm) == DL_ERR_MISMATCH);  // it stays broken
      return 0;
    });
  }
}

TEST_CASE("api: lists with equal totals but other tensors are different calls") {
  for (const char* transport : kTransports) {
    Together<2> failed;
    all_well({2, transport}, [&](int rank, dl_comm*& comm) {
      std::vector<float> weights(3), bias(1);
      void* tensors[] = {weights.data(), bias.data(), nullptr};
      std::size_t counts[] = {3, 1, 0};
      EXPECT(dl_all_reduce_list(comm, 3 - rank, tensors, tensors, counts, DL_FLOAT32, DL_SUM) ==
             DL_OK);  // one that is empty makes no difference
      if (rank == 1) {
        std::swap(tensors[0], tensors[1]);
        std::swap(counts[0], counts[1]);
      }
      const auto told = dl_all_reduce_list(comm, 2, tensors, tensors, counts, DL_FLOAT32, DL_SUM);
      failed.come(rank);
      EXPECT(told == DL_ERR_MISMATCH);
      EXPECT(std::strstr(dl_last_error(comm), "all_reduce_list(float, sum): rank "));
      EXPECT(std::strstr(dl_last_error(comm), " gave different counts"));
      return 0;
    });
  }
}

TEST_CASE("api: an error about a missing split or alloc names the call that was made instead") {
  for (const char* transport : kTransports) {
    for (const bool splits : {true, false}) {
      Together<2> failed;
      all_well({2, transport}, [&](int rank, dl_comm*& comm) {
        float x[2] = {1, 2};
        dl_comm* group = nullptr;
        void* memory = nullptr;
        auto told = DL_OK;
        if (rank == 1) {
          told = dl_all_reduce(comm, x, x, 2, DL_FLOAT32, DL_SUM);
        } else {
          told = splits ? dl_split(comm, 0, 0, &group) : dl_alloc(comm, 64, &memory);
        }
        failed.come(rank);
        EXPECT(told == DL_ERR_MISMATCH);
        const std::string text = dl_last_error(comm);
        EXPECT(text.find("rank 1 called all_reduce(count 2, float, sum)") != text.npos);
        EXPECT(text.find(splits ? "rank 0 called dl_split" : "rank 0 called dl_alloc") !=
               text.npos);
        return 0;
      });
    }
  }
}

// All ranks send to one rank, which answers. Otherwise no rank may send.
TEST_CASE("api: different calls in which all wait are reported long before their deadline") {
  for (const char* transport : kTransports) {
    World world{5, transport};
    world.op_timeout_s = 60;
    Together<5> begun, failed;
    all_well(world, [&](int rank, dl_comm*& comm) {
      float x[2] = {1, 2};
      EXPECT(dl_barrier(comm) == DL_OK);
      begun.come(rank);  // the next call may fail before others have left the barrier
      const auto begin = steady_now();
      const auto told = rank == 4 ? dl_broadcast(comm, x, 2, DL_FLOAT32, 3)
                                  : dl_all_reduce(comm, x, x, 2, DL_FLOAT32, DL_SUM);
      const auto took = steady_now() - begin;
      failed.come(rank);
      EXPECT(told == DL_ERR_MISMATCH);
      EXPECT(std::strstr(dl_last_error(comm), "collective #2: "));
      EXPECT(std::strstr(dl_last_error(comm), "rank 4 called broadcast(count 2, float, root 3)"));
      EXPECT(std::strstr(dl_last_error(comm), "called all_reduce(count 2, float, sum)"));
      EXPECT(took < std::chrono::seconds(30));
      return 0;
    });
  }
}

// A broadcast's root does not wait, and a rank that waits for a root gets its data.
TEST_CASE("api: different roots are reported at the latest by the next call in which all wait") {
  for (const char* transport : kTransports) {
    for (const int count : {4, 500000}) {
      Together<3> begun, failed;
      all_well({3, transport}, [&](int rank, dl_comm*& comm) {
        std::vector<float> x(static_cast<std::size_t>(count), 1.0F);
        EXPECT(dl_broadcast(comm, x.data(), x.size(), DL_FLOAT32, 1) == DL_OK);
        EXPECT(dl_barrier(comm) == DL_OK);
        begun.come(rank);  // the roots go on, and may fail before others have left the barrier
        auto told = dl_broadcast(comm, x.data(), x.size(), DL_FLOAT32, rank == 0 ? 0 : 1);
        std::string text = dl_last_error(comm);
        if (told == DL_OK) {
          told = dl_all_reduce(comm, x.data(), x.data(), 2, DL_FLOAT32, DL_SUM);
          text = dl_last_error(comm);
        }
        failed.come(rank);
        EXPECT(told == DL_ERR_MISMATCH);
        EXPECT(text.find("rank 0") != text.npos);
        EXPECT((text.find("gave different roots") != text.npos ||
                text.find("root 0") != text.npos || text.find("root 1") != text.npos));
        return 0;
      });
    }
  }
}

TEST_CASE("api: an error about different calls in a group also has the job's rank numbers") {
  Together<3> made, failed;
  all_well({4, "tcp"}, [&](int rank, dl_comm*& comm) {
    const int members[] = {1, 2, 3};
    dl_comm* group = nullptr;
    float x[2] = {1, 2};
    if (rank == 0) return dl_barrier(comm) == DL_OK ? 0 : 1;
    EXPECT(dl_group(comm, members, 3, 0, -1, &group) == DL_OK);
    made.come(rank - 1);
    // Each waits for the next one.
    const auto told = dl_broadcast(group, x, 2, DL_FLOAT32, rank % 3);
    failed.come(rank - 1);
    EXPECT(told == DL_ERR_MISMATCH);
    const std::string text = dl_last_error(group);
    EXPECT(text.find("rank 0 of this group is rank 1 (pid ") != text.npos ||
           text.find("rank 1 of this group is rank 2 (pid ") != text.npos ||
           text.find("rank 2 of this group is rank 3 (pid ") != text.npos);
    dl_finalize(group);
    EXPECT(dl_barrier(comm) == DL_OK);
    return 0;
  });
}

TEST_CASE("api: only ranks that need a rank miss it after it has left in good order") {
  for (const char* transport : kTransports) {
    all_well({2, transport}, [](int rank, dl_comm*& comm) {
      EXPECT(dl_barrier(comm) == DL_OK);
      if (rank == 1) return 0;
      const auto result = dl_barrier(comm);
      EXPECT(result == DL_ERR_PEER_LOST);
      EXPECT(dl_peer_lost(comm) == 1);
      EXPECT(std::strstr(dl_last_error(comm), "rank 1"));
      return 0;
    });
  }
}

TEST_CASE("api: abort ends this rank's calls, and the peers lose it") {
  for (const char* transport : kTransports) {
    all_well({2, transport}, [](int rank, dl_comm*& comm) {
      // Rank 0 is out of its barrier when rank 1 aborts.
      int x = 0;
      EXPECT(dl_barrier(comm) == DL_OK);
      if (rank == 0) EXPECT(dl_send(comm, &x, 1, DL_INT32, 1, 0) == DL_OK);
      if (rank == 1) EXPECT(dl_recv(comm, &x, 1, DL_INT32, 0, 0) == DL_OK);
      if (rank == 1) dl_abort(comm);
      const auto result = dl_barrier(comm);
      EXPECT(result == (rank == 1 ? DL_ERR_ABORTED : DL_ERR_PEER_LOST));
      EXPECT(rank == 1 || dl_peer_lost(comm) == 1);
      return 0;
    });
  }
}

TEST_CASE("api: an operation's deadline names the missing ranks, on all ranks") {
  for (const char* transport : kTransports) {
    CAPTURE(transport);
    const TempFolder folder;
    Together<3> begun;
    Gate over, heard;
    const auto body = [&](int rank, dl_comm*& comm) {
      std::vector<float> x(100000);
      EXPECT(dl_barrier(comm) == DL_OK);
      begun.come(rank);  // the next call may fail before others have left the barrier
      // Rank 2 has 30 s, and hears of the others' limit.
      if (rank != 2) EXPECT(dl_set_op_timeout(comm, 3) == DL_OK);
      if (rank == 2) over.pass(2);
      const auto begin = steady_now();
      const auto result = dl_all_reduce(comm, x.data(), x.data(), x.size(), DL_FLOAT32, DL_SUM);
      const auto took = steady_now() - begin;
      if (rank == 2) heard.open(2);
      if (rank != 2) over.open();
      if (rank != 2) heard.pass();
      EXPECT(result == DL_ERR_TIMEOUT);
      EXPECT(std::strstr(dl_last_error(comm), "all_reduce #2 timed out"));
      EXPECT((rank != 2 || took < std::chrono::seconds(20)));
      return 0;
    };
    std::vector<pid_t> pids;
    for (int rank = 0; rank < 3; ++rank) {
      pids.push_back(start_rank(folder.url(), {3, transport}, rank, body));
    }
    for (const pid_t pid : pids) CHECK(end_of(pid) == 0);
  }
}

TEST_CASE("api: a time limit holds for later operations and later groups") {
  all_well({.ranks = 3}, [](int rank, dl_comm*& comm) {
    const int all[] = {0, 1, 2};
    dl_comm* own = nullptr;
    dl_comm* inherits = nullptr;
    EXPECT(dl_group(comm, all, 3, 1, -1, &own) == DL_OK);
    EXPECT(dl_set_op_timeout(comm, 10) == DL_OK);  // dl_group has this limit, too
    EXPECT(dl_group(comm, all, 3, 2, -1, &inherits) == DL_OK);
    EXPECT(dl_set_op_timeout(comm, std::nan("")) == DL_ERR_INVALID);
    EXPECT(dl_set_op_timeout(comm, -1) == DL_OK);
    EXPECT(dl_set_op_timeout(own, 3) == DL_OK);
    for (dl_comm* const group : {own, inherits}) {
      EXPECT(dl_barrier(comm) == DL_OK);
      if (rank != 2) {
        const auto begun = std::chrono::steady_clock::now();
        const auto result = dl_barrier(group);
        EXPECT((result == DL_ERR_TIMEOUT || result == DL_ERR_PEER_LOST));
        if (result == DL_ERR_TIMEOUT) EXPECT(waits_for(dl_last_error(group), 2));
        EXPECT(dl_barrier(group) == result);
        EXPECT(std::chrono::steady_clock::now() - begun < std::chrono::seconds(25));
      }
      EXPECT(dl_barrier(comm) == DL_OK);
      // The others have called this barrier, so that it may still succeed; they call no other one.
      EXPECT((rank != 2 || dl_barrier(group) != DL_OK || dl_barrier(group) != DL_OK));
    }
    // An operation under way keeps the limit that it was begun with.
    dl_request* request = nullptr;
    if (rank != 2) EXPECT(dl_ibarrier(comm, &request) == DL_OK);
    EXPECT(dl_set_op_timeout(comm, 0.05) == DL_OK);
    std::this_thread::sleep_for(std::chrono::milliseconds(rank == 2 ? 300 : 0));
    EXPECT(dl_set_op_timeout(comm, 20) == DL_OK);
    if (rank == 2) EXPECT(dl_ibarrier(comm, &request) == DL_OK);
    EXPECT(dl_wait(&request) == DL_OK);
    for (dl_comm* const group : {own, inherits}) dl_finalize(group);
    return 0;
  });
}

TEST_CASE("api: a world of one rank needs no peer") {
  dl_options options;
  dl_options_init(&options);
  options.rank = 0;
  options.size = 1;
  dl_comm* comm = nullptr;
  REQUIRE(dl_init("env://", &options, &comm) == DL_OK);
  CHECK(std::string(dl_transport(comm)) == "self");
  const float in[2] = {3, 4};
  float out[2] = {};
  CHECK(dl_all_reduce(comm, in, out, 2, DL_FLOAT32, DL_AVG) == DL_OK);
  CHECK(out[1] == 4);
  CHECK(dl_barrier(comm) == DL_OK);
  CHECK(dl_send(comm, in, 1, DL_FLOAT32, 0, 0) == DL_ERR_INVALID);
  dl_finalize(comm);
  dl_finalize(nullptr);
  CHECK(dl_init("nonsense", nullptr, &comm) == DL_ERR_INVALID);
  CHECK(comm == nullptr);
  CHECK(std::string(dl_last_error(nullptr)).find("nonsense") != std::string::npos);
}

TEST_CASE("api: a thread sees the errors of its own calls, not those of an earlier thread") {
  dl_comm* comm = nullptr;
  REQUIRE(dl_init(nullptr, nullptr, &comm) == DL_OK);
  std::string own, of_next, of_first;
  std::thread([&] {
    dl_send(comm, nullptr, 0, DL_FLOAT32, 0, 0);
    own = dl_last_error(comm);
  }).join();
  std::thread([&] { of_next = dl_last_error(comm); }).join();  // most likely with the same id
  of_first = dl_last_error(comm);
  CHECK(own == "send: peer 0 is not another rank");
  CHECK(of_next == "");
  CHECK(of_first == "");
  dl_finalize(comm);
}

TEST_CASE(
    "api: ranks that share cores send to one rank, and make one plan despite different cores") {
  struct Told {
    int cores[3];
    const char* algorithm;
  };
  for (const auto& [cores, algorithm] :
       {Told{{3, 3, 3}, "each with each"}, Told{{2, 2, 2}, "all with one"},
        Told{{64, 0, 2}, "all with one"}, Told{{0, 64, 3}, "each with each"}}) {
    const TempFolder folder;
    std::vector<pid_t> pids;
    for (int r = 0; r < 3; ++r) {
      World world{3, "tcp"};
      world.cores = cores[r];
      pids.push_back(
          start_rank(folder.url(), world, r, [algorithm = algorithm](int rank, dl_comm*& comm) {
            char text[200];
            float x[2] = {1, 2};
            EXPECT(dl_explain(comm, "all_reduce", 2, DL_FLOAT32, DL_SUM, -1, text, sizeof text) ==
                   DL_OK);
            EXPECT(std::string(text) == std::string("tcp: ") + algorithm);
            EXPECT(dl_all_reduce(comm, x, x, 2, DL_FLOAT32, DL_SUM) == DL_OK);
            EXPECT(x[0] == 3 && x[1] == 6);
            return 0;
          }));
    }
    for (const pid_t pid : pids) CHECK(end_of(pid) == 0);
  }
}

TEST_CASE("api: a communicator explains how it would do a call") {
  for (const char* transport : kTransports) {
    World world{3, transport};
    world.cores = 3;
    all_well(world, [transport](int rank, dl_comm*& comm) {
      const bool shm = std::strcmp(transport, "shm") == 0;
      char text[200], brief[6];
      const auto explains = [&](const char* collective, std::size_t count, int root,
                                const char* words) {
        return dl_explain(comm, collective, count, DL_FLOAT32, DL_SUM, root, text, sizeof text) ==
                   DL_OK &&
               std::strstr(text, words) != nullptr;
      };
      EXPECT(explains("all_reduce", 2, -1, shm ? "in the cache line" : "each with each"));
      EXPECT(
          explains("all_reduce", 1 << 20, -1, shm ? "blocks, chunks of" : "owner of each slice"));
      EXPECT(explains("broadcast", 1000, 1, shm ? "one shot" : "tree"));
      EXPECT(explains("barrier", 0, -1, shm ? "cache line" : "dissemination"));
      EXPECT(dl_explain(comm, "all_reduce", 2, DL_FLOAT32, DL_SUM, -1, brief, sizeof brief) ==
             DL_OK);
      EXPECT(std::strlen(brief) == 5);
      EXPECT(dl_explain(comm, "all_reduce", 2, DL_FLOAT32, DL_BAND, -1, text, 9) == DL_ERR_INVALID);
      EXPECT(dl_explain(comm, "broadcast", 2, DL_FLOAT32, DL_SUM, 3, text, 9) == DL_ERR_INVALID);
      EXPECT(dl_explain(comm, "reduce", SIZE_MAX, DL_INT8, DL_SUM, 0, text, 9) == DL_ERR_INVALID);
      EXPECT(std::strstr(dl_last_error(comm), "explain: reduce: count is too large") != nullptr);
      EXPECT(dl_explain(comm, "reduce", 2, DL_INT8, static_cast<dl_op>(77), 0, text, 9) ==
             DL_ERR_INVALID);
      EXPECT(dl_explain(comm, "nothing", 2, DL_FLOAT32, DL_SUM, 0, text, 9) == DL_ERR_INVALID);
      return 0;
    });
  }
}
