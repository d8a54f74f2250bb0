// Processes with few links (DLAUNCH_LINKS=few): the library works as with a link per pair.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "process_world.h"
#include "tests/unit/sanitized.h"

namespace dlaunch {
namespace {

constexpr int kMany = 9;

struct FewInJob {
  FewInJob() { ::setenv("DLAUNCH_LINKS", "few", 1); }
  ~FewInJob() { ::unsetenv("DLAUNCH_LINKS"); }
};

// The test runs once with each.
const char* each_transport() {
  const char* transport = "auto";
  SUBCASE("shared memory") { transport = "auto"; }
  SUBCASE("tcp") { transport = "tcp"; }
  return transport;
}

// All pairs, both ways.
int talk(int rank, dl_comm*& comm) {
  std::vector<int> in(kMany, -1);
  std::vector<dl_request*> requests;
  for (int peer = 0; peer < kMany; ++peer) {
    if (peer == rank) continue;
    EXPECT(dl_isend(comm, &rank, 1, DL_INT32, peer, 5, &requests.emplace_back()) == DL_OK);
    EXPECT(dl_irecv(comm, &in[static_cast<std::size_t>(peer)], 1, DL_INT32, peer, 5,
                    &requests.emplace_back()) == DL_OK);
  }
  for (dl_request*& request : requests) EXPECT(dl_wait(&request) == DL_OK);
  for (int peer = 0; peer < kMany; ++peer) {
    if (peer != rank) EXPECT(in[static_cast<std::size_t>(peer)] == peer);
  }
  return 0;
}

int sums_up(dl_comm*& comm, std::size_t count) {
  const int rank = dl_rank(comm), ranks = dl_size(comm);
  std::vector<int> x(count, rank);
  EXPECT(dl_all_reduce(comm, x.data(), x.data(), count, DL_INT32, DL_SUM) == DL_OK);
  EXPECT(x == std::vector<int>(count, ranks * (ranks - 1) / 2));
  return 0;
}

// Starts all ranks but `absent`, lets each join by itself, and expects all to end with 0.
void each_joins(const std::function<int(const std::string& url, int rank, dl_comm*& comm)>& body,
                int absent = -1) {
  const TempFolder folder;
  Gate begin;  // all join at the same time, however long the starts of their processes take
  std::vector<pid_t> pids;
  for (int rank = 0; rank < kMany; ++rank) {
    if (rank == absent) continue;
    pids.push_back(start([&, rank] {
      begin.pass();
      dl_comm* comm = nullptr;
      return body(folder.url(), rank, comm);
    }));
  }
  begin.open(static_cast<int>(pids.size()));
  for (const pid_t pid : pids) CHECK(end_of(pid) == 0);
}

bool is_text(const char* text, const std::string& part) {
  if (std::strstr(text, part.c_str()) != nullptr) return true;
  std::fprintf(stderr, "'%s' lacks '%s'\n", text, part.c_str());
  return false;
}

}  // namespace

TEST_CASE("few ranks: collectives, messages of all pairs, groups and shared memory") {
  const FewInJob few;
  for (const char* transport : {"auto", "shm", "tcp"}) {
    CAPTURE(transport);
    all_well({kMany, transport}, [transport](int rank, dl_comm*& comm) {
      EXPECT(std::strcmp(dl_transport(comm), transport[0] == 't' ? "tcp" : "shm") == 0);
      for (const std::size_t count : {1, 3000, 300'000}) EXPECT(sums_up(comm, count) == 0);
      EXPECT(talk(rank, comm) == 0);
      // Groups of the ranks with the same remainder, of all in another order, and of pairs.
      for (const int ways : {2, 3, 1}) {
        dl_comm* group = nullptr;
        EXPECT(dl_split(comm, rank % ways, -rank, &group) == DL_OK);
        for (const std::size_t count : {1, 300'000}) EXPECT(sums_up(group, count) == 0);
        dl_finalize(group);
      }
      for (int other = 0; other < kMany; ++other) {
        if (other == rank) continue;
        const int pair[] = {std::min(rank, other), std::max(rank, other)};
        dl_comm* group = nullptr;
        EXPECT(dl_group(comm, pair, 2, 0, -1, &group) == DL_OK);
        EXPECT(sums_up(group, 100) == 0);
        dl_finalize(group);
      }
      void* memory = nullptr;
      EXPECT(dl_alloc(comm, 1 << 20, &memory) == DL_OK);
      static_cast<int*>(memory)[7] = rank;
      EXPECT(dl_all_reduce(comm, memory, memory, 1 << 18, DL_INT32, DL_SUM) == DL_OK);
      EXPECT(static_cast<int*>(memory)[7] == kMany * (kMany - 1) / 2);
      EXPECT(dl_free(comm, memory) == DL_OK);
      return 0;
    });
  }
}

TEST_CASE("few ranks: each rank learns which one was killed, whichever it is") {
  const FewInJob few;
  const char* const transport = each_transport();
  for (int victim = 0; victim < kMany; ++victim) {
    CAPTURE(victim);
    Gate through;
    const auto codes = run({kMany, transport}, [&](int rank, dl_comm*& comm) {
      EXPECT(dl_barrier(comm) == DL_OK);
      through.open();
      if (rank == victim) {
        through.pass(kMany);
        ::raise(SIGKILL);
      }
      EXPECT(dl_barrier(comm) == DL_ERR_PEER_LOST);
      EXPECT(dl_peer_lost(comm) == victim);
      EXPECT(is_text(dl_last_error(comm), "rank " + std::to_string(victim) + " (pid "));
      return 0;
    });
    for (int r = 0; r < kMany; ++r) {
      CHECK(codes[static_cast<std::size_t>(r)] == (r == victim ? 128 + SIGKILL : 0));
    }
  }
}

TEST_CASE("few ranks: several die at once, and all others name one of them") {
  const FewInJob few;
  const char* const transport = each_transport();
  std::map<int, Gate> through;  // of each that dies: all others are through
  for (const int rank : {2, 3, 7}) through[rank];
  const auto dies = [](int rank) { return rank == 2 || rank == 3 || rank == 7; };
  const auto codes = run({kMany, transport}, [&](int rank, dl_comm*& comm) {
    EXPECT(dl_barrier(comm) == DL_OK);
    for (auto& [victim, gate] : through) gate.open();
    if (dies(rank)) {
      through[rank].pass(kMany);
      ::raise(SIGKILL);
    }
    EXPECT(dl_barrier(comm) == DL_ERR_PEER_LOST);
    EXPECT(dies(dl_peer_lost(comm)));
    return 0;
  });
  for (int r = 0; r < kMany; ++r) {
    CHECK(codes[static_cast<std::size_t>(r)] == (dies(r) ? 128 + SIGKILL : 0));
  }
}

TEST_CASE("few ranks: a rank that never comes is named by all, with a link to it or without") {
  const FewInJob few;
  const char* const transport = each_transport();
  for (const int absent : {0, 5}) {
    CAPTURE(absent);
    World impatient{kMany, transport};
    impatient.init_timeout_s = 6;
    each_joins(
        [&](const std::string& url, int rank, dl_comm*& comm) {
          EXPECT(join(url, impatient, rank, comm) == DL_ERR_TIMEOUT);
          EXPECT(is_text(dl_last_error(nullptr),
                         "rank " + std::to_string(absent) + " of 9 has not arrived"));
          return 0;
        },
        absent);
  }
}

TEST_CASE("few ranks: the rank that stands still gets the blame") {
  const FewInJob few;
  const char* const transport = each_transport();
  const TempFolder folder;
  Gate through;
  std::vector<pid_t> pids;
  for (int started = 0; started < kMany; ++started) {
    pids.push_back(
        start_rank(folder.url(), {kMany, transport}, started, [&](int rank, dl_comm*& comm) {
          EXPECT(dl_barrier(comm) == DL_OK);
          if (rank == 4) {
            ::raise(SIGSTOP);
            return 0;
          }
          EXPECT(dl_set_op_timeout(comm, 4) == DL_OK);
          through.pass();
          EXPECT(dl_barrier(comm) == DL_ERR_TIMEOUT);
          EXPECT((waits_for(dl_last_error(comm), 4) || is_text(dl_last_error(comm), "rank 4")));
          return 0;
        }));
  }
  int status = 0;
  CHECK(::waitpid(pids[4], &status, WUNTRACED) == pids[4]);
  through.open(kMany);
  for (int r = 0; r < kMany; ++r) {
    if (r != 4) CHECK(end_of(pids[static_cast<std::size_t>(r)]) == 0);
  }
  ::kill(pids[4], SIGKILL);
  CHECK(end_of(pids[4]) == 128 + SIGKILL);
}

TEST_CASE("few ranks: all may exit right after their last collective") {
  const FewInJob few;
  const char* const transport = each_transport();
  for (int round = 0; round < (kSanitized ? 3 : 10); ++round) {
    const auto codes = run({kMany, transport}, [](int rank, dl_comm*& comm) {
      for (int i = 0; i < 5; ++i) EXPECT(sums_up(comm, 5000) == 0);
      ::exit(0);
      return 0;
    });
    REQUIRE(codes == std::vector<int>(kMany, 0));
  }
}

TEST_CASE(
    "few ranks: a group outlives the communicator of all, and the ranks between its members") {
  const FewInJob few;
  const char* const transport = each_transport();
  Gate gone, summed;
  const TempFolder folder;
  std::vector<pid_t> pids;
  for (int started = 0; started < kMany; ++started) {
    pids.push_back(
        start_rank(folder.url(), {kMany, transport}, started, [&](int rank, dl_comm*& comm) {
          dl_comm* group = nullptr;
          EXPECT(dl_split(comm, rank == 0 || rank == 3 || rank == 6 ? 0 : -1, 0, &group) == DL_OK);
          dl_finalize(comm);
          comm = nullptr;
          if (group == nullptr) return 0;
          gone.pass();
          EXPECT(sums_up(group, 5000) == 0);
          summed.open();
          if (rank == 3) {
            summed.pass(3);
            ::raise(SIGKILL);
          }
          EXPECT(dl_barrier(group) == DL_ERR_PEER_LOST);
          EXPECT(dl_peer_lost(group) == 1);
          dl_finalize(group);
          return 0;
        }));
  }
  for (const int r : {1, 2, 4, 5, 7, 8}) CHECK(end_of(pids[static_cast<std::size_t>(r)]) == 0);
  gone.open(3);
  for (const int r : {0, 6}) CHECK(end_of(pids[static_cast<std::size_t>(r)]) == 0);
  CHECK(end_of(pids[3]) == 128 + SIGKILL);
}

TEST_CASE("few ranks: the last message of a rank arrives before its goodbye") {
  const FewInJob few;
  const char* const transport = each_transport();
  for (int round = 0; round < (kSanitized ? 5 : 20); ++round) {
    const int from = round % kMany, to = (from + 3) % kMany;  // without a link
    const auto codes = run({kMany, transport}, [from, to](int rank, dl_comm*& comm) {
      int x = rank;
      if (rank == from) EXPECT(dl_send(comm, &x, 1, DL_INT32, to, 0) == DL_OK);
      if (rank == to) EXPECT(dl_recv(comm, &x, 1, DL_INT32, from, 0) == DL_OK);
      EXPECT(x == (rank == to ? from : rank));
      return 0;
    });
    REQUIRE(codes == std::vector<int>(kMany, 0));
  }
}

TEST_CASE("few ranks: a rank is lost after all its neighbours have left") {
  const FewInJob few;
  const char* const transport = each_transport();
  Gate gone;
  const TempFolder folder;
  std::vector<pid_t> pids;
  for (int started = 0; started < kMany; ++started) {
    pids.push_back(
        start_rank(folder.url(), {kMany, transport}, started, [&](int rank, dl_comm*& comm) {
          EXPECT(dl_barrier(comm) == DL_OK);
          if (rank != 0 && rank != 3) return 0;
          gone.pass();
          if (rank == 3) ::raise(SIGKILL);
          EXPECT(dl_recv(comm, &rank, 1, DL_INT32, 3, 0) == DL_ERR_PEER_LOST);
          EXPECT(dl_peer_lost(comm) == 3);
          return 0;
        }));
  }
  for (const int r : {1, 2, 4, 5, 6, 7, 8}) CHECK(end_of(pids[static_cast<std::size_t>(r)]) == 0);
  gone.open(2);
  CHECK(end_of(pids[0]) == 0);
  CHECK(end_of(pids[3]) == 128 + SIGKILL);
}

TEST_CASE("few ranks: more than 32 use few links by themselves, and so do their groups") {
  constexpr int kRanksOfMany = 40;
  const char* const transport = each_transport();
  all_well({kRanksOfMany, transport}, [](int rank, dl_comm*& comm) {
    EXPECT(sums_up(comm, 1000) == 0);
    dl_comm* group = nullptr;
    EXPECT(dl_split(comm, 0, -rank, &group) == DL_OK);
    EXPECT(dl_rank(group) == kRanksOfMany - 1 - rank);
    EXPECT(sums_up(group, 1000) == 0);
    dl_finalize(group);
    return 0;
  });
}

TEST_CASE("few ranks: if one rank gets no shared memory, all use sockets") {
  const FewInJob few;
  const auto codes = run({kMany}, [](int, dl_comm*&) { return 0; });
  CHECK(codes == std::vector<int>(kMany, 0));
  each_joins([](const std::string& url, int rank, dl_comm*& comm) {
    if (rank == 5) {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit small{64 << 10, 64 << 10};
      ::setrlimit(RLIMIT_FSIZE, &small);
    }
    EXPECT(join(url, {kMany}, rank, comm) == DL_OK);
    EXPECT(std::strcmp(dl_transport(comm), "tcp") == 0);
    EXPECT(sums_up(comm, 5000) == 0);
    EXPECT(talk(rank, comm) == 0);
    dl_finalize(comm);
    return 0;
  });
}

TEST_CASE("few ranks: ranks with another choice of links get an error that says so") {
  const TempFolder folder;
  World impatient{kMany};
  impatient.init_timeout_s = 5;
  const pid_t zero = start_rank(folder.url(), impatient, 0, [](int, dl_comm*&) { return 0; });
  const pid_t one = start([&] {
    const FewInJob few;
    const int rank = 1;
    dl_comm* comm = nullptr;
    EXPECT(join(folder.url(), impatient, rank, comm) == DL_ERR_MISMATCH);
    EXPECT(is_text(dl_last_error(nullptr), "have different DLAUNCH_LINKS"));
    return 0;
  });
  CHECK(end_of(one) == 0);
  CHECK(end_of(zero) == 100 + DL_ERR_TIMEOUT);
}

}  // namespace dlaunch
