// Operations in the background and groups, between processes, through the C and C++ APIs.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dlaunch/bucketer.hpp>
#include <dlaunch/ring.hpp>
#include <doctest/doctest.h>

#include "process_world.h"
#include "ring/api.h"

using namespace dlaunch;

TEST_CASE("async: background collectives give the results of blocking ones, in order") {
  for (const char* transport : kTransports) {
    all_well({3, transport}, [](int rank, dl_comm*& comm) {
      constexpr std::size_t kOps = 40;
      std::vector<std::vector<std::int64_t>> data(kOps);
      std::vector<dl_request*> requests(kOps);
      for (std::size_t i = 0; i < kOps; ++i) {
        data[i].assign(1 + i * i * 37, static_cast<std::int64_t>(i) + rank);
        auto& x = data[i];
        EXPECT(dl_iall_reduce(comm, x.data(), x.data(), x.size(), DL_INT64, DL_SUM, &requests[i]) ==
               DL_OK);
        if (i % 10 != 3) continue;
        // A plain call among them takes its turn.
        std::int64_t one = 1;
        EXPECT(dl_all_reduce(comm, &one, &one, 1, DL_INT64, DL_SUM) == DL_OK);
        EXPECT(one == 3);
      }
      EXPECT(dl_wait_all(kOps, requests.data()) == DL_OK);
      for (std::size_t i = 0; i < kOps; ++i) {
        EXPECT(requests[i] == nullptr);
        const auto want = 3 * static_cast<std::int64_t>(i) + 3;
        for (const auto value : data[i]) EXPECT(value == want);
      }
      EXPECT(dl_wait(&requests[0]) == DL_OK);
      return 0;
    });
  }
}

TEST_CASE("async: counts and lists need not outlive the call, and every twin works") {
  for (const char* transport : kTransports) {
    all_well({2, transport}, [](int rank, dl_comm*& comm) {
      std::vector<float> a(4000, 1), b(3000, 2), parts(5, static_cast<float>(rank)), all(7),
          wide(2000, 3), narrow(1000), two(2000, static_cast<float>(rank)), swapped(2000);
      std::vector<dl_request*> requests(14);
      std::vector<float> given(rank == 0 ? 5 : 4, static_cast<float>(rank)), crossed(6, -1), cut(3);
      std::vector<float> mine(rank == 0 ? 5 : 2, static_cast<float>(rank)), gathered(2000);
      {
        void* tensors[] = {a.data(), b.data()};
        std::size_t lengths[] = {a.size(), b.size()};
        EXPECT(dl_iall_reduce_list(comm, 2, tensors, tensors, lengths, DL_FLOAT32, DL_SUM,
                                   &requests[0]) == DL_OK);
        std::size_t counts[] = {5, 2};
        EXPECT(dl_iall_gather_v(comm, mine.data(), all.data(), counts, DL_FLOAT32, &requests[1]) ==
               DL_OK);
        EXPECT(dl_igather_v(comm, mine.data(), parts.data(), std::vector<std::size_t>{0, 0}.data(),
                            DL_FLOAT32, 0, &requests[2]) == DL_OK);
        // Rank 0 gives 2 to itself and 3 to rank 1, which gives 1 and 3.
        std::size_t to[] = {rank == 0 ? 2u : 1u, 3},
                    from[] = {rank == 0 ? 2u : 3u, rank == 0 ? 1u : 3u};
        EXPECT(dl_iall_to_all_v(comm, given.data(), to, crossed.data(), from, DL_FLOAT32,
                                &requests[11]) == DL_OK);
        std::size_t shares[] = {1, 3};
        EXPECT(dl_iscatter_v(comm, wide.data(), cut.data(), shares, DL_FLOAT32, 0, &requests[12]) ==
               DL_OK);
        EXPECT(dl_ireduce_scatter_v(comm, wide.data(), cut.data(), shares, DL_FLOAT32, DL_SUM,
                                    &requests[13]) == DL_OK);
        to[0] = to[1] = from[0] = from[1] = shares[0] = shares[1] = 77;
        lengths[0] = lengths[1] = counts[0] = counts[1] = 99;
      }
      EXPECT(dl_ireduce_scatter(comm, wide.data(), narrow.data(), 1000, DL_FLOAT32, DL_SUM,
                                &requests[3]) == DL_OK);
      EXPECT(dl_iall_to_all(comm, two.data(), swapped.data(), 1000, DL_FLOAT32, &requests[4]) ==
             DL_OK);
      EXPECT(dl_igather(comm, narrow.data(), gathered.data(), 1000, DL_FLOAT32, 1, &requests[5]) ==
             DL_OK);
      EXPECT(dl_iscatter(comm, wide.data(), narrow.data(), 1000, DL_FLOAT32, 0, &requests[6]) ==
             DL_OK);
      EXPECT(dl_ireduce(comm, two.data(), swapped.data(), 10, DL_FLOAT32, DL_MAX, 1,
                        &requests[7]) == DL_OK);
      EXPECT(dl_ibroadcast(comm, parts.data(), 5, DL_FLOAT32, 1, &requests[8]) == DL_OK);
      EXPECT(dl_iall_gather(comm, narrow.data(), gathered.data(), 1000, DL_FLOAT32, &requests[9]) ==
             DL_OK);
      EXPECT(dl_ibarrier(comm, &requests[10]) == DL_OK);
      std::size_t finished = 0, index = 0;
      while (dl_wait_any(requests.size(), requests.data(), &index) == DL_OK &&
             index < requests.size()) {
        ++finished;
      }
      EXPECT(finished == requests.size());
      EXPECT(a.back() == 2 && b.back() == 4);
      EXPECT(all == std::vector<float>({0, 0, 0, 0, 0, 1, 1}));
      EXPECT(swapped.front() == (rank == 1 ? 1 : 0) && swapped.back() == 1);
      EXPECT(parts.front() == 1);
      EXPECT(gathered.front() == 3 && gathered.back() == 3);
      EXPECT(crossed == (rank == 0 ? std::vector<float>({0, 0, 1, -1, -1, -1})
                                   : std::vector<float>({0, 0, 0, 1, 1, 1})));
      EXPECT(cut == (rank == 0 ? std::vector<float>({6, 0, 0}) : std::vector<float>({6, 6, 6})));
      return 0;
    });
  }
}

TEST_CASE("async: messages and collectives do not wait for one another") {
  for (const char* transport : kTransports) {
    all_well({3, transport}, [](int rank, dl_comm*& comm) {
      // Rank 0 receives before it joins the sum that the others wait in; they send while they wait.
      std::vector<int> x(300000, 1), in(1 << 20), out(1 << 20, rank);
      dl_request* sum = nullptr;
      dl_request* sent = nullptr;
      if (rank != 0) {
        EXPECT(dl_iall_reduce(comm, x.data(), x.data(), x.size(), DL_INT32, DL_SUM, &sum) == DL_OK);
        int done = 0;
        EXPECT(dl_test(&sum, &done) == DL_OK && done == 0);
        EXPECT(dl_isend(comm, out.data(), out.size(), DL_INT32, 0, 4, &sent) == DL_OK);
      } else {
        for (int i = 0; i < 2; ++i) {
          int source = -1;
          EXPECT(dl_recv_any(comm, in.data(), in.size(), DL_INT32, 4, &source) == DL_OK);
          EXPECT(in.front() == source && in.back() == source);
        }
        EXPECT(dl_iall_reduce(comm, x.data(), x.data(), x.size(), DL_INT32, DL_SUM, &sum) == DL_OK);
      }
      EXPECT(dl_wait(&sent) == DL_OK);
      EXPECT(dl_wait(&sum) == DL_OK);
      EXPECT(x.front() == 3 && x.back() == 3);
      return 0;
    });
  }
}

TEST_CASE("async: another thread's messages pass during a blocking collective") {
  for (const char* transport : kTransports) {
    all_well({2, transport}, [](int rank, dl_comm*& comm) {
      // Rank 1 comes to each sum after a message of rank 0, whose own thread may wait in it by
      // then.
      constexpr int kRounds = 200;
      std::vector<int> sums(kRounds, rank + 1);
      bool sums_well = true, messages_well = true;
      const auto sum = [&](int i) {
        int* const x = &sums[static_cast<std::size_t>(i)];
        sums_well &= dl_all_reduce(comm, x, x, 1, DL_INT32, DL_SUM) == DL_OK && *x == 3;
      };
      std::thread other([&] {
        for (int i = 0; rank == 0 && i < kRounds; ++i) sum(i);
      });
      for (int i = 0; i < kRounds; ++i) {
        int number = i;
        dl_request* request = nullptr;
        const auto begun = rank == 0 ? dl_isend(comm, &number, 1, DL_INT32, 1, i, &request)
                                     : dl_irecv(comm, &number, 1, DL_INT32, 0, i, &request);
        messages_well &= begun == DL_OK && dl_wait(&request) == DL_OK && number == i;
        if (rank == 1) sum(i);
      }
      other.join();
      EXPECT(sums_well && messages_well);
      return 0;
    });
  }
}

TEST_CASE("async: one thread waits for operations of several communicators") {
  all_well({2, "shm"}, [](int rank, dl_comm*& comm) {
    dl_comm* group = nullptr;
    EXPECT(dl_split(comm, 0, 0, &group) == DL_OK);
    // The answer comes in the one or in the other, while the other's is still to come.
    dl_comm* const comms[] = {comm, group};
    for (const std::size_t first : {std::size_t{0}, std::size_t{1}}) {
      int got[2] = {}, go = 0;
      dl_request* requests[2] = {};
      if (rank == 0) {
        for (int i = 0; i < 2; ++i) {
          EXPECT(dl_irecv(comms[i], &got[i], 1, DL_INT32, 1, 7, &requests[i]) == DL_OK);
        }
      }
      for (const std::size_t answered : {first, 1 - first}) {
        std::size_t index = 9;
        if (rank == 0) {
          EXPECT(dl_send(comm, &go, 1, DL_INT32, 1, 0) == DL_OK);
          EXPECT(dl_wait_any(2, requests, &index) == DL_OK);
          EXPECT(index == answered && got[answered] == 5);
        } else {
          const int five = 5;
          EXPECT(dl_recv(comm, &go, 1, DL_INT32, 0, 0) == DL_OK);
          // Most likely the other one waits by then; it is right either way.
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          EXPECT(dl_send(comms[answered], &five, 1, DL_INT32, 0, 7) == DL_OK);
        }
      }
    }
    dl_finalize(group);
    return 0;
  });
}

TEST_CASE("async: dl_wait_for waits no longer than its time limit, and can be repeated") {
  all_well({2, "auto"}, [](int rank, dl_comm*& comm) {
    int got = 0, done = 9;
    dl_request* request = nullptr;
    if (rank == 0) {
      EXPECT(dl_irecv(comm, &got, 1, DL_INT32, 1, 7, &request) == DL_OK);
      const auto before = std::chrono::steady_clock::now();
      EXPECT(dl_wait_for(&request, 0.05, &done) == DL_OK);
      EXPECT(done == 0 && request != nullptr);
      EXPECT(std::chrono::steady_clock::now() - before >= std::chrono::milliseconds(50));
      EXPECT(dl_wait_for(&request, 0, nullptr) == DL_OK && request != nullptr);
    }
    EXPECT(dl_barrier(comm) == DL_OK);
    const int five = 5;
    if (rank == 1) return dl_send(comm, &five, 1, DL_INT32, 0, 7) == DL_OK ? 0 : 1;
    EXPECT(dl_wait_for(&request, 60, &done) == DL_OK);
    EXPECT(done == 1 && request == nullptr && got == 5);
    EXPECT(dl_wait_for(&request, -1, &done) == DL_OK && done == 1);  // none
    return 0;
  });
}

TEST_CASE("async: receives that are started before the sends go around in a circle") {
  all_well({4, "tcp"}, [](int rank, dl_comm*& comm) {
    std::vector<double> in(1 << 20), out(1 << 20, rank);
    dl_request* requests[2] = {};
    const int left = (rank + 3) % 4, right = (rank + 1) % 4;
    EXPECT(dl_irecv(comm, in.data(), in.size(), DL_FLOAT64, left, 0, &requests[0]) == DL_OK);
    EXPECT(dl_isend(comm, out.data(), out.size(), DL_FLOAT64, right, 0, &requests[1]) == DL_OK);
    EXPECT(dl_wait_all(2, requests) == DL_OK);
    EXPECT(in.front() == left && in.back() == left);
    return 0;
  });
}

TEST_CASE("async: a lost peer ends all operations, and finalize does not wait for them") {
  for (const char* transport : kTransports) {
    Together<2> failed;
    const auto codes = run({3, transport}, [&](int rank, dl_comm*& comm) {
      std::vector<float> x(1 << 20, 1);
      dl_request* requests[4] = {};
      if (rank == 2) ::raise(SIGKILL);
      for (auto& request : requests) {
        const auto started =
            dl_iall_reduce(comm, x.data(), x.data(), x.size(), DL_FLOAT32, DL_SUM, &request);
        EXPECT(started == DL_OK || started == DL_ERR_PEER_LOST);
      }
      dl_wait_all(4, requests);
      const auto result = dl_barrier(comm);
      failed.come(rank);
      EXPECT(result == DL_ERR_PEER_LOST);
      EXPECT(dl_peer_lost(comm) == 2);
      return 0;
    });
    CHECK(codes == std::vector<int>{0, 0, 128 + SIGKILL});
    all_well({2, transport}, [](int rank, dl_comm*& comm) {
      int x = 0;
      dl_request* never = nullptr;
      const auto started = dl_irecv(comm, &x, 1, DL_INT32, 1 - rank, 9, &never);
      EXPECT(started == DL_OK || started == DL_ERR_PEER_LOST);  // the other one may be gone already
      dl_finalize(comm);
      comm = nullptr;
      return 0;
    });
  }
}

TEST_CASE("groups: each has its own ranks and order, beside other groups and their parent") {
  for (const char* transport : kTransports) {
    all_well({5, transport}, [](int rank, dl_comm*& comm) {
      dl_comm* group = nullptr;
      // 0 2 4 backwards, and 1 3.
      EXPECT(dl_split(comm, rank % 2, -rank, &group) == DL_OK);
      EXPECT(dl_size(group) == (rank % 2 == 0 ? 3 : 2));
      EXPECT(dl_rank(group) == (rank % 2 == 0 ? (4 - rank) / 2 : (3 - rank) / 2));
      int sum = rank, all = rank;
      EXPECT(dl_all_reduce(group, &sum, &sum, 1, DL_INT32, DL_SUM) == DL_OK);
      EXPECT(sum == (rank % 2 == 0 ? 6 : 4));
      EXPECT(dl_all_reduce(comm, &all, &all, 1, DL_INT32, DL_SUM) == DL_OK);
      EXPECT(all == 10);
      // A group of a group, and one that overlaps both; one rank stays out.
      dl_comm* inner = nullptr;
      EXPECT(dl_split(group, dl_rank(group) == 0 ? -1 : 7, 0, &inner) == DL_OK);
      EXPECT((inner == nullptr) == (dl_rank(group) == 0));
      dl_comm* firsts = nullptr;
      EXPECT(dl_split(comm, rank < 3 ? 0 : -1, 0, &firsts) == DL_OK);
      if (firsts != nullptr) {
        std::vector<float> x(200000, 1);
        dl_request* request = nullptr;
        EXPECT(dl_iall_reduce(firsts, x.data(), x.data(), x.size(), DL_FLOAT32, DL_SUM, &request) ==
               DL_OK);
        EXPECT(dl_barrier(group == nullptr ? firsts : comm) == DL_OK);
        EXPECT(dl_wait(&request) == DL_OK);
        EXPECT(x.back() == 3);
      } else {
        EXPECT(dl_barrier(comm) == DL_OK);
      }
      // Groups outlive what they came from.
      dl_finalize(comm);
      comm = nullptr;
      EXPECT(dl_barrier(group) == DL_OK);
      if (inner != nullptr) EXPECT(dl_barrier(inner) == DL_OK);
      for (auto* g : {inner, firsts, group}) dl_finalize(g);
      return 0;
    });
  }
}

TEST_CASE("groups: members that know each other meet without the others") {
  for (const char* transport : kTransports) {
    all_well({4, transport}, [](int rank, dl_comm*& comm) {
      dl_comm *odd = nullptr, *later = nullptr, *all = nullptr, *none = nullptr;
      const int odds[] = {3, 1}, everybody[] = {0, 1, 2, 3}, wrong[] = {rank, 4},
                twice[] = {rank, rank};
      if (rank % 2 == 1) {
        EXPECT(dl_group(comm, odds, 2, 5, -1, &odd) == DL_OK);
        EXPECT(dl_group(comm, odds, 2, 5, -1, &later) == DL_OK);
        EXPECT(dl_rank(odd) == (rank == 3 ? 0 : 1));
        int sum = rank;
        EXPECT(dl_all_reduce(odd, &sum, &sum, 1, DL_INT32, DL_SUM) == DL_OK);
        EXPECT(sum == 4);
      } else {
        EXPECT(dl_group(comm, odds, 2, 5, -1, &none) == DL_ERR_INVALID);
      }
      EXPECT(dl_group(comm, wrong, 2, 0, -1, &none) == DL_ERR_INVALID);
      EXPECT(dl_group(comm, twice, 2, 0, -1, &none) == DL_ERR_INVALID);
      EXPECT(dl_group(comm, everybody, 4, -1, -1, &none) == DL_ERR_INVALID);
      if (rank == 0) EXPECT(dl_group(comm, everybody, 4, 0, 2e9, &none) == DL_ERR_INVALID);
      EXPECT(none == nullptr);
      EXPECT(dl_group(comm, everybody, 4, 0, -1, &all) == DL_OK);
      // The end of one is not that of the others.
      if (rank == 3) dl_abort(later);
      if (later != nullptr)
        EXPECT(dl_barrier(later) == (rank == 3 ? DL_ERR_ABORTED : DL_ERR_PEER_LOST));
      EXPECT(dl_barrier(all) == DL_OK);
      EXPECT(dl_barrier(comm) == DL_OK);
      for (auto* group : {later, odd, all}) dl_finalize(group);
      return 0;
    });
  }
}

TEST_CASE("groups: a member that has left in good order is named, and the others go on") {
  for (const char* transport : kTransports) {
    Gate done;
    all_well({3, transport}, [&](int rank, dl_comm*& comm) {
      if (rank == 2) {
        dl_finalize(std::exchange(comm, nullptr));
        done.pass(2);
        return 0;
      }
      const int gone[] = {rank, 2}, here[] = {0, 1};
      dl_comm* group = nullptr;
      EXPECT(dl_set_op_timeout(comm, 0.2) == DL_OK);
      dl_result result = DL_OK;
      std::string said;
      // Some attempts may begin before the news of the departure.
      for (int tag = 0; tag < 100 && !said.ends_with(" has left the job"); ++tag) {
        result = dl_group(comm, gone, 2, tag, -1, &group);
        EXPECT(result != DL_OK);
        said = dl_last_error(comm);
      }
      EXPECT(result == DL_ERR_PEER_LOST);
      EXPECT(said.find("rank 2 ") != std::string::npos);
      EXPECT(dl_set_op_timeout(comm, 30) == DL_OK);
      EXPECT(dl_group(comm, here, 2, 0, -1, &group) == DL_OK);
      EXPECT(dl_barrier(group) == DL_OK);
      dl_finalize(group);
      done.open();
      return 0;
    });
  }
}

TEST_CASE("groups: a member that dies before it comes ends the bootstrap for the others") {
  Together<2> failed;
  const auto codes = run(World{3, "auto"}, [&](int rank, dl_comm*& comm) {
    const int members[] = {2, 1, 0};
    if (rank == 1) ::raise(SIGKILL);
    dl_comm* group = nullptr;
    const auto result = dl_group(comm, members, 3, 0, -1, &group);
    failed.come(rank / 2);
    EXPECT(result == DL_ERR_PEER_LOST);
    EXPECT(std::string(dl_last_error(comm)).find("rank 1 ") != std::string::npos);
    return 0;
  });
  CHECK(codes == std::vector<int>{0, 128 + SIGKILL, 0});
}

TEST_CASE("async: another thread may wait for an operation") {
  for (const char* transport : kTransports) {
    all_well({2, transport}, [](int rank, dl_comm*& comm) {
      constexpr int kRounds = 200;
      std::vector<std::vector<int>> sums(kRounds, std::vector<int>(1000, rank + 1));
      std::vector<int> got(kRounds, 0), numbers(kRounds);
      std::iota(numbers.begin(), numbers.end(), 0);
      std::vector<dl_request*> reductions(kRounds), messages(kRounds);
      std::atomic<int> begun = 0;
      std::atomic<bool> well = true;
      std::thread waiter([&] {
        for (int i = 0; i < kRounds; ++i) {
          for (int seen = begun; seen <= i; seen = begun) begun.wait(seen);
          const auto k = static_cast<std::size_t>(i);
          if (dl_wait(&reductions[k]) != DL_OK || dl_wait(&messages[k]) != DL_OK) well = false;
          if (sums[k].back() != 3 || got[k] != (rank == 0 ? i : 0)) well = false;
        }
      });
      for (int i = 0; i < kRounds; ++i) {
        const auto k = static_cast<std::size_t>(i);
        EXPECT(dl_iall_reduce(comm, sums[k].data(), sums[k].data(), 1000, DL_INT32, DL_SUM,
                              &reductions[k]) == DL_OK);
        const auto started = rank == 0
                                 ? dl_irecv(comm, &got[k], 1, DL_INT32, 1, i, &messages[k])
                                 : dl_isend(comm, &numbers[k], 1, DL_INT32, 0, i, &messages[k]);
        EXPECT(started == DL_OK);
        ++begun;
        begun.notify_one();
      }
      waiter.join();
      EXPECT(well);
      EXPECT(dl_barrier(comm) == DL_OK);
      return 0;
    });
  }
}

TEST_CASE("groups: the failure of one does not end the others") {
  all_well({4, "auto"}, [](int rank, dl_comm*& comm) {
    dl_comm* pair = nullptr;
    EXPECT(dl_split(comm, rank / 2, 0, &pair) == DL_OK);
    EXPECT(dl_barrier(comm) == DL_OK);  // the other one has its pair, too
    if (rank == 0) dl_abort(pair);
    const auto result = dl_barrier(pair);
    const auto want = rank == 0 ? DL_ERR_ABORTED : rank == 1 ? DL_ERR_PEER_LOST : DL_OK;
    EXPECT(result == want);
    EXPECT(dl_barrier(comm) == DL_OK);
    dl_finalize(pair);
    return 0;
  });
}

// A rank's part of what a split begins with: the exchange of color, key and rank.
template <int size>
static dl_result begin_split(dl_comm* comm) {
  const std::int32_t own[] = {0, 0, dl_rank(comm)};
  std::int32_t all[3 * size];
  return guarded(comm, [&] {
    return comm->impl->collective({.collective = Collective::all_gather,
                                   .in = own,
                                   .out = all,
                                   .count = sizeof own,
                                   .dtype = DL_UINT8,
                                   .within = Within::split});
  });
}

// The victim dies then instead of bootstrap the others.
TEST_CASE("groups: a rank that dies during a split ends it for the others at once") {
  for (const char* transport : kTransports) {
    for (const int victim : {0, 1, 2}) {
      Together<2> failed;
      const auto codes = run({3, transport}, [&](int rank, dl_comm*& comm) {
        std::int32_t one = 1;
        EXPECT(dl_all_reduce(comm, &one, &one, 1, DL_INT32, DL_SUM) == DL_OK);
        if (rank == victim) {
          EXPECT(begin_split<3>(comm) == DL_OK);
          ::raise(SIGKILL);
        }
        dl_comm* group = nullptr;
        const auto before = std::chrono::steady_clock::now();
        const auto result = dl_split(comm, 0, 0, &group);
        const auto took = std::chrono::steady_clock::now() - before;
        failed.come(rank < victim ? rank : rank - 1);
        EXPECT(result == DL_ERR_PEER_LOST);
        EXPECT(took < std::chrono::seconds(20));  // of the 30 that a bootstrap has
        EXPECT(group == nullptr);
        EXPECT(dl_peer_lost(comm) == victim);
        EXPECT(dl_barrier(comm) == DL_ERR_PEER_LOST);
        return 0;
      });
      std::vector<int> wanted(3, 0);
      wanted[static_cast<std::size_t>(victim)] = 128 + SIGKILL;
      CHECK(codes == wanted);
    }
  }
}

TEST_CASE("groups: a split ends with the time limit of an operation") {
  Gate gate;
  World world{2};
  world.op_timeout_s = 4;
  const auto codes = run(world, [&gate](int rank, dl_comm*& comm) {
    if (rank == 1) {
      EXPECT(begin_split<2>(comm) == DL_OK);
      gate.pass();
      return 0;
    }
    dl_comm* group = nullptr;
    const auto before = std::chrono::steady_clock::now();
    const auto result = dl_split(comm, 0, 0, &group);
    gate.open();
    EXPECT(result == DL_ERR_TIMEOUT);
    EXPECT(std::chrono::steady_clock::now() - before < std::chrono::seconds(20));
    EXPECT(dl_barrier(comm) == DL_ERR_TIMEOUT);
    return 0;
  });
  CHECK(codes == std::vector<int>(2, 0));
}

TEST_CASE("async: C++ requests wait in their destructor, and throw the error") {
  all_well({2, "auto"}, [](int rank, dl_comm*& comm) {
    dl_finalize(std::exchange(comm, nullptr));
    return rank * 0;
  });
  auto alone = dl::Communicator::init("env://");
  std::vector<float> x(10, 2);
  {
    auto request = alone.iall_reduce(std::span<float>(x));
    dl::Request other = std::move(request);
    CHECK_FALSE(request);
    CHECK(other);
  }
  CHECK(x[0] == 2);
  std::vector<dl::Request> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(alone.ibarrier());
  CHECK(dl::Request::wait_any(requests) < 3);
  CHECK_THROWS_AS(alone.ibroadcast(std::span<float>(x), 4), dl::Error);
  auto group = alone.split(0);
  CHECK(group.valid());
  CHECK(group.size() == 1);
  CHECK_FALSE(alone.split(-1).valid());
}

TEST_CASE(
    "bucketer: whatever the buckets and the order, the sums have the bits of one all_reduce") {
  for (const char* transport : kTransports) {
    all_well({3, transport}, [](int rank, dl_comm*& comm) {
      auto world = dl::Communicator::adopt(std::exchange(comm, nullptr));
      std::mt19937 random(static_cast<unsigned>(rank));
      const std::vector<std::size_t> lengths = {70000, 1, 300, 0, 50000, 7, 120000, 10};
      std::vector<float> values(240318);
      std::vector<std::span<float>> tensors;
      for (std::size_t i = 0, at = 0; i < lengths.size(); at += lengths[i++]) {
        tensors.push_back(std::span<float>(values).subspan(at, lengths[i]));
      }
      for (const std::size_t bytes :
           {std::size_t{1}, std::size_t{4000}, std::size_t{300000}, std::size_t{1} << 30}) {
        dl::GradientBucketer<float> bucketer(world, tensors,
                                             {.bucket_bytes = bytes, .first_bucket_bytes = 100});
        for (int step = 0; step < 3; ++step) {
          for (float& v : values) v = static_cast<float>(random()) * (random() % 2 ? 1e-3f : 1e6f);
          auto whole = values;
          world.all_reduce(std::span<float>(whole));
          std::vector<std::size_t> order(lengths.size());
          std::iota(order.begin(), order.end(), std::size_t{0});
          std::shuffle(order.begin(), order.end(), random);
          if (step == 2) order.pop_back();  // finish() takes it as it is
          for (const auto i : order) bucketer.ready(i);
          bucketer.finish();
          EXPECT(std::memcmp(values.data(), whole.data(), values.size() * sizeof(float)) == 0);
        }
        bucketer.ready(2);
        for (const std::size_t wrong : {std::size_t{2}, std::size_t{8}}) {
          bool thrown = false;
          try {
            bucketer.ready(wrong);
          } catch (const dl::Error& e) {
            thrown = e.code() == DL_ERR_INVALID;
          }
          EXPECT(thrown);
        }
        bucketer.finish();
      }
      return 0;
    });
  }
}

TEST_CASE("bucketer: a failed or abandoned step does not disturb the next one") {
  all_well({2, "shm"}, [](int rank, dl_comm*& comm) {
    auto world = dl::Communicator::adopt(std::exchange(comm, nullptr));
    std::vector<float> a(10, 1), b(10, 1);
    dl::GradientBucketer<float> bucketer(world, std::vector<std::span<float>>{a, b});
    bucketer.ready(0);
    bucketer.reset();
    bucketer.ready(0);
    bucketer.ready(1);
    bucketer.finish();
    EXPECT(a[0] == 2 && b[0] == 2);
    world.barrier();
    world.abort();
    for (int step = 0; step < 2; ++step) {
      auto code = DL_OK;
      try {
        bucketer.ready(0);
        bucketer.finish();
      } catch (const dl::Error& e) {
        code = e.code();
      }
      EXPECT(code == DL_ERR_ABORTED || code == DL_ERR_PEER_LOST);  // not that it is ready already
    }
    return 0;
  });
}
