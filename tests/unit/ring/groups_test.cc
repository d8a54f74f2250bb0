// Groups of ranks that share memory. Groups share resources, but do not disturb each other.
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "process_world.h"
#include "tests/unit/sanitized.h"

namespace dlaunch {
namespace {

// All ranks: large enough for each way through shared memory, and above the caches of a chunk.
constexpr std::size_t kFloatsOfGroups[] = {1, 300, 5000, 300000};

// A reduction and a move of each size; false: a result is wrong or a call failed.
bool calls_right(dl_comm* group, int times) {
  const int n = dl_size(group), rank = dl_rank(group);
  for (int i = 0; i < times; ++i) {
    for (const std::size_t count : kFloatsOfGroups) {
      const auto base = static_cast<float>(i % 10);
      std::vector<float> in(count, base + static_cast<float>(rank)), out(count);
      if (dl_all_reduce(group, in.data(), out.data(), count, DL_FLOAT32, DL_SUM) != DL_OK) {
        return false;
      }
      const auto sum = base * static_cast<float>(n) + static_cast<float>(n * (n - 1)) / 2;
      if (out != std::vector<float>(count, sum)) return false;
      std::vector<float> all(count * static_cast<std::size_t>(n));
      if (dl_all_gather(group, in.data(), all.data(), count, DL_FLOAT32) != DL_OK) return false;
      for (int r = 0; r < n; ++r) {
        const std::size_t first = count * static_cast<std::size_t>(r);
        if (all[first] != base + static_cast<float>(r)) return false;
        if (all[first + count - 1] != base + static_cast<float>(r)) return false;
      }
    }
  }
  return true;
}

dl_comm* group_of(dl_comm* comm, const std::vector<int>& ranks, int tag) {
  dl_comm* group = nullptr;
  (void)dl_group(comm, ranks.data(), static_cast<int>(ranks.size()), tag, -1, &group);
  return group;
}

}  // namespace

TEST_CASE("groups: two groups of the same ranks work at once, in threads of their own") {
  constexpr int kRounds = kSanitized ? 3 : 6;
  for (const int ranks : {2, 3}) {
    for (const int cores : {1, 8}) {
      CAPTURE(ranks);
      CAPTURE(cores);
      all_well({.ranks = ranks, .cores = cores}, [ranks](int rank, dl_comm*& comm) {
        std::vector<int> members;
        for (int r = 0; r < ranks; ++r) members.push_back(r);
        dl_comm* const one = group_of(comm, members, 1);
        std::reverse(members.begin(), members.end());
        dl_comm* const other = group_of(comm, members, 2);
        EXPECT(one != nullptr);
        EXPECT(other != nullptr);
        bool right[3] = {};
        std::thread first([&] { right[0] = calls_right(one, kRounds); });
        std::thread second([&] { right[1] = calls_right(other, kRounds); });
        right[2] = calls_right(comm, kRounds);
        first.join();
        second.join();
        EXPECT(right[0]);
        EXPECT(right[1]);
        EXPECT(right[2]);
        dl_finalize(one);
        EXPECT(calls_right(other, 1));
        dl_finalize(other);
        EXPECT(calls_right(comm, 1));
        return 0;
      });
    }
  }
}

TEST_CASE("groups: one is made, used and freed while another is busy") {
  constexpr int kRounds = kSanitized ? 6 : 20;
  all_well({.ranks = 3}, [](int rank, dl_comm*& comm) {
    dl_comm* const busy = group_of(comm, {0, 1, 2}, 1);
    EXPECT(busy != nullptr);
    bool right = false;
    std::thread other([&] { right = calls_right(busy, kRounds); });
    for (int i = 0; i < kRounds; ++i) {
      dl_comm* const group = group_of(comm, {2, 0, 1}, 100 + i);
      EXPECT(group != nullptr);
      EXPECT(calls_right(group, 1));
      dl_finalize(group);
    }
    other.join();
    EXPECT(right);
    dl_finalize(busy);
    return 0;
  });
}

// The root of a broadcast waits for nobody: the others find in each group what it gave there,
// however far it is ahead.
TEST_CASE("groups: a rank may be ahead by many groups, and each group reads its own data") {
  constexpr int kGroups = 12;
  constexpr std::size_t kInts = 40000;  // fits what one call stages at once
  all_well({.ranks = 3}, [](int rank, dl_comm*& comm) {
    std::vector<dl_comm*> groups;
    for (int i = 0; i < kGroups; ++i) groups.push_back(group_of(comm, {0, 1, 2}, i));
    for (int i = 0; i < kGroups; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (rank != 0 && i == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      std::vector<int> x(kInts, rank == 0 ? i : -1);
      EXPECT(dl_broadcast(groups[at], x.data(), kInts, DL_INT32, 0) == DL_OK);
      EXPECT(x == std::vector<int>(kInts, i));
      std::fill(x.begin(), x.end(), -2);
    }
    for (dl_comm* group : groups) dl_finalize(group);
    return 0;
  });
}

// What rank 0 has staged before it gave up stays as it is: rank 1 may yet read it.
TEST_CASE("groups: a call that fails half-way does not disturb other groups") {
  all_well({.ranks = 3}, [](int rank, dl_comm*& comm) {
    dl_comm* const fails = group_of(comm, {0, 1, 2}, 1);
    dl_comm* const works = group_of(comm, {0, 1, 2}, 2);
    std::vector<float> x(300000, 1.0f);
    if (rank != 2) {
      EXPECT(dl_set_op_timeout(fails, 0.5) == DL_OK);
      EXPECT(dl_all_reduce(fails, x.data(), x.data(), x.size(), DL_FLOAT32, DL_SUM) != DL_OK);
    }
    dl_finalize(fails);
    EXPECT(calls_right(works, 3));
    EXPECT(calls_right(comm, 3));
    dl_finalize(works);
    return 0;
  });
}

TEST_CASE("groups: memory of dl_alloc belongs to a group, and every algorithm reads it in place") {
  for (const int cores : {1, 8}) {
    CAPTURE(cores);
    all_well({.ranks = 2, .cores = cores}, [](int rank, dl_comm*& comm) {
      dl_comm* const group = group_of(comm, {1, 0}, 1);
      constexpr std::size_t kFloats = 100000;
      void* memory = nullptr;
      EXPECT(dl_alloc(group, 2 * kFloats * sizeof(float), &memory) == DL_OK);
      auto* const in = static_cast<float*>(memory);
      float* const out = in + kFloats;
      for (int i = 0; i < 5; ++i) {
        std::fill(in, in + kFloats, static_cast<float>(rank + i));
        EXPECT(dl_all_reduce(group, in, out, kFloats, DL_FLOAT32, DL_SUM) == DL_OK);
        EXPECT(out[kFloats - 1] == static_cast<float>(1 + 2 * i));
        EXPECT(dl_all_reduce(group, in, in, kFloats, DL_FLOAT32, DL_SUM) == DL_OK);
        EXPECT(in[kFloats - 1] == static_cast<float>(1 + 2 * i));
        EXPECT(calls_right(group, 1));
      }
      dl_free(group, memory);
      dl_finalize(group);
      return 0;
    });
  }
}

TEST_CASE("groups: a group whose first rank gets no shared memory uses sockets, and says so") {
  const TempFolder folder;
  const std::string said = folder.path.string() + "/said";
  const auto body = [&](int rank, dl_comm*& comm) {
    if (std::freopen(said.c_str(), "a", stderr) == nullptr) return 99;
    if (rank == 2) {
      ::signal(SIGXFSZ, SIG_IGN);
      rlimit small{4 << 10, RLIM_INFINITY};
      EXPECT(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    }
    dl_comm* const poor = group_of(comm, {2, 0, 1}, 1);
    EXPECT(poor != nullptr);
    EXPECT(std::strcmp(dl_transport(poor), "tcp") == 0);
    EXPECT(calls_right(poor, 1));
    dl_finalize(poor);
    dl_comm* const rich = group_of(comm, {0, 1, 2}, 2);
    EXPECT(rich != nullptr);
    EXPECT(std::strcmp(dl_transport(rich), "shm") == 0);
    EXPECT(calls_right(rich, 1));
    dl_finalize(rich);
    return 0;
  };
  all_well({.ranks = 3}, body);
  std::stringstream text;
  text << std::ifstream(said).rdbuf();
  CHECK(text.str().find("a group's ranks meet over sockets: shared memory: allocate") !=
        std::string::npos);
}

// 2 never comes to the bootstrap; in the group, 3 is the number of nobody.
TEST_CASE("groups: a lost rank also ends bootstraps of groups without it") {
  Together<3> failed;
  const auto codes = run(World{.ranks = 4}, [&](int rank, dl_comm*& comm) {
    if (rank == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ::raise(SIGKILL);
    }
    const int members[] = {1, 2, 0};
    dl_comm* group = nullptr;
    const auto result = rank == 2 ? dl_barrier(comm) : dl_group(comm, members, 3, 0, -1, &group);
    const std::string said = dl_last_error(comm);
    failed.come(rank);
    EXPECT(result == DL_ERR_PEER_LOST);
    EXPECT(said.find("rank 3 ") != std::string::npos);
    EXPECT(said.find("of this group") == std::string::npos);
    return 0;
  });
  CHECK(codes == std::vector<int>{0, 0, 0, 128 + SIGKILL});
}

// As many descriptors as a process has now, and no more: with `hard`, ever.
bool allow_no_more(bool hard) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const UniqueFd next(::eventfd(0, EFD_CLOEXEC));
  limit.rlim_cur = static_cast<rlim_t>(next.get());
  if (hard) limit.rlim_max = limit.rlim_cur;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

TEST_CASE("groups: the first message raises the soft limit of descriptors") {
  all_well({.ranks = 2}, [](int rank, dl_comm*& comm) {
    dl_comm* const group = group_of(comm, {1, 0}, 1);
    EXPECT(group != nullptr);
    EXPECT(allow_no_more(false));
    int word = 7 * rank;
    const auto result = rank == 0 ? dl_recv(group, &word, 1, DL_INT32, 0, 0)
                                  : dl_send(group, &word, 1, DL_INT32, 1, 0);
    EXPECT(result == DL_OK);
    EXPECT(word == 7);
    dl_finalize(group);
    return 0;
  });
}

// Rank 0 of the group does nothing there: its control thread is asked for the socket.
TEST_CASE("groups: a rank that cannot open a socket for messages tells its peer") {
  Together<2> done;
  all_well({.ranks = 2}, [&](int rank, dl_comm*& comm) {
    dl_comm* const group = group_of(comm, {0, 1}, 1);
    EXPECT(group != nullptr);
    if (rank == 0) EXPECT(allow_no_more(true));
    EXPECT(dl_barrier(comm) == DL_OK);
    int word = 7;
    if (rank == 1) {
      EXPECT(dl_send(group, &word, 1, DL_INT32, 0, 0) == DL_ERR_IO);
      EXPECT(std::string(dl_last_error(group)).find("ulimit") != std::string::npos);
    }
    done.come(rank);
    dl_finalize(group);
    return 0;
  });
}

TEST_CASE("groups: a killed member is lost to all of its groups, and to no other group") {
  Gate made;  // the others have their groups
  const auto codes = run(World{.ranks = 4}, [&](int rank, dl_comm*& comm) {
    dl_comm* const without = rank < 2 ? group_of(comm, {0, 1}, 2) : nullptr;
    dl_comm* const with = group_of(comm, {0, 1, 3}, 1);
    if (rank != 3) made.open();
    if (rank == 3) {
      made.pass(3);
      ::raise(SIGKILL);
    }
    if (rank == 2) return 0;
    EXPECT(with != nullptr);
    EXPECT(dl_barrier(with) == DL_ERR_PEER_LOST);
    EXPECT(dl_peer_lost(with) == 2);
    EXPECT(std::string(dl_last_error(with)).find("rank 3 ") != std::string::npos);
    EXPECT(calls_right(without, 2));
    dl_finalize(with);
    dl_finalize(without);
    return 0;
  });
  CHECK(codes == std::vector<int>{0, 0, 0, 128 + SIGKILL});
}

}  // namespace dlaunch
