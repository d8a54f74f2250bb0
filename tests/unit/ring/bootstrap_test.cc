// Ranks find each other and connect, or get an error.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "held_port.h"
#include "process_world.h"
#include "rendezvous/store.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

constexpr const char* kVariables[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};

int sums(int rank, dl_comm* comm, int expected) {
  int x = 1;
  EXPECT(dl_all_reduce(comm, &x, &x, 1, DL_INT32, DL_SUM) == DL_OK);
  EXPECT(x == expected);
  return 0;
}

bool says(const char* text, const char* words) {
  if (std::strstr(text, words) != nullptr) return true;
  std::fprintf(stderr, "'%s' lacks '%s'\n", text, words);
  return false;
}

// Until the rank has told the others where it can be reached.
void wait_for_address(const TempFolder& folder, int rank) {
  auto store = open_store(folder.url(), {.job_id = "default", .secret = {}, .who = "the test"},
                          steady_now() + 30s);
  REQUIRE(store);
  REQUIRE((*store)->get("ring/r1/addr/" + std::to_string(rank), steady_now() + 30s));
}

}  // namespace

TEST_CASE("bootstrap: one communicator after another, and two at once at different places") {
  const TempFolder a, b;
  all_well({2}, [&](int rank, dl_comm*& comm) {
    for (int i = 0; i < 5; ++i) {
      dl_comm* next = nullptr;
      EXPECT(join(a.url(), {2}, rank, next) == DL_OK);
      EXPECT(sums(rank, next, 2) == 0);
      dl_finalize(next);
    }
    dl_comm *one = nullptr, *two = nullptr;
    EXPECT(join(a.url(), {2}, rank, one) == DL_OK);
    EXPECT(join(b.url(), {2}, rank, two) == DL_OK);
    EXPECT(sums(rank, two, 2) == 0);
    EXPECT(sums(rank, one, 2) == 0);
    // Each communicator has its own last failure.
    EXPECT(dl_broadcast(one, &rank, 1, DL_INT32, 7) == DL_ERR_INVALID);
    EXPECT(dl_send(two, &rank, 1, DL_INT32, 9, 0) == DL_ERR_INVALID);
    EXPECT(says(dl_last_error(one), "root 7"));
    EXPECT(says(dl_last_error(two), "peer 9"));
    dl_finalize(one);
    EXPECT(sums(rank, two, 2) == 0);
    dl_finalize(two);
    return 0;
  });
}

TEST_CASE("bootstrap: several names share a port, also if one bootstrap lacks ranks") {
  const HeldPort port;
  const std::string place = "tcp://127.0.0.1:" + port.number;
  all_well({2}, [&](int rank, dl_comm*& comm) {
    World impatient{2};
    impatient.init_timeout_s = 0.3;
    dl_comm *alone = nullptr, *one = nullptr, *two = nullptr;
    const std::string other = rank == 0 ? "/mine" : "/yours";
    EXPECT(join(place + other, impatient, rank, alone) == DL_ERR_TIMEOUT);
    EXPECT(join(place + "/one", {2}, rank, one) == DL_OK);
    EXPECT(sums(rank, one, 2) == 0);
    EXPECT(join(place + "/two", {2}, rank, two) == DL_OK);
    EXPECT(sums(rank, one, 2) == 0);
    std::size_t bytes = 0;
    EXPECT(dl_key_set(one, "key", "x", 1) == DL_OK);
    EXPECT(dl_key_get(two, "key", 0, nullptr, 0, &bytes) == DL_ERR_TIMEOUT);
    dl_finalize(one);
    EXPECT(sums(rank, two, 2) == 0);
    dl_finalize(two);
    return 0;
  });
}

TEST_CASE("bootstrap: one program after another in the same place") {
  const TempFolder folder;
  // No rank waits for the others' first programs to end.
  const auto twice = [&](int rank) {
    return start([&, rank] {
      for (int program = 0; program < 2; ++program) {
        const auto body = [](int r, dl_comm*& comm) { return sums(r, comm, 3); };
        if (const int code = end_of(start_rank(folder.url(), {3}, rank, body)); code != 0) {
          return code;
        }
      }
      return 0;
    });
  };
  const pid_t pids[] = {twice(0), twice(1), twice(2)};
  for (const pid_t pid : pids) CHECK(end_of(pid) == 0);
}

TEST_CASE("bootstrap: keys of a killed job do not disturb the next one") {
  const TempFolder folder;
  const auto body = [](int rank, dl_comm*& comm) { return sums(rank, comm, 3); };
  // Rank 1 never comes to the first job. That the others have been there shows in the journal.
  const pid_t first = start_rank(folder.url(), {3}, 0, body);
  const pid_t third = start_rank(folder.url(), {3}, 2, body);
  wait_for_address(folder, 0);
  wait_for_address(folder, 2);
  ::kill(first, SIGKILL);
  ::kill(third, SIGKILL);
  CHECK(end_of(first) == 128 + SIGKILL);
  CHECK(end_of(third) == 128 + SIGKILL);

  // Rank 1 is there first and finds the dead rank 0's address.
  const pid_t pids[] = {start_rank(folder.url(), {3}, 1, body),
                        start_rank(folder.url(), {3}, 2, body),
                        start_rank(folder.url(), {3}, 0, body)};
  for (const pid_t pid : pids) CHECK(end_of(pid) == 0);
}

TEST_CASE("bootstrap: a failed attempt can be made again") {
  const TempFolder folder;
  Gate come;
  const pid_t early = start([&] {
    const int rank = 0;
    dl_comm* comm = nullptr;
    World impatient{2};
    impatient.init_timeout_s = 1;
    EXPECT(join(folder.url(), impatient, rank, comm) == DL_ERR_TIMEOUT);
    EXPECT(says(dl_last_error(nullptr), "rank 1 of 2 has not arrived"));
    come.open();
    EXPECT(join(folder.url(), {2}, rank, comm) == DL_OK);
    EXPECT(sums(rank, comm, 2) == 0);
    dl_finalize(comm);
    return 0;
  });
  const pid_t late = start([&] {
    const int rank = 1;
    dl_comm* comm = nullptr;
    come.pass();
    EXPECT(join(folder.url(), {2}, rank, comm) == DL_OK);
    EXPECT(sums(rank, comm, 2) == 0);
    dl_finalize(comm);
    return 0;
  });
  CHECK(end_of(early) == 0);
  CHECK(end_of(late) == 0);
}

TEST_CASE("bootstrap: ranks that never come are named") {
  const TempFolder folder;
  std::vector<pid_t> pids;
  for (const int rank : {0, 3}) {
    pids.push_back(start([&, rank] {
      dl_comm* comm = nullptr;
      World impatient{5};
      impatient.init_timeout_s = 6;
      EXPECT(join(folder.url(), impatient, rank, comm) == DL_ERR_TIMEOUT);
      EXPECT(comm == nullptr);
      EXPECT(says(dl_last_error(nullptr), "rank 1-2,4 of 5 have not arrived"));
      return 0;
    }));
  }
  for (const pid_t pid : pids) CHECK(end_of(pid) == 0);
}

TEST_CASE("bootstrap: ranks that never come are named even if the store has ended") {
  // Rank 0 serves the store and is the first to give up. Rank 2 waits for the store to know of rank
  // 1, or, connected to all the others, for rank 3 to connect.
  struct Absence {
    std::vector<int> present;
    int ranks;
    const char* words;
  };
  for (const Absence& absence : {Absence{{0, 2}, 3, "rank 1 of 3 has not arrived"},
                                 Absence{{0, 1, 2}, 4, "rank 3 of 4 has not arrived"}}) {
    const HeldPort port;
    const std::string url = "tcp://127.0.0.1:" + port.number;
    std::vector<pid_t> pids;
    for (const int rank : absence.present) {
      pids.push_back(start([&, rank] {
        dl_comm* comm = nullptr;
        World impatient{absence.ranks};
        impatient.init_timeout_s = rank == 0 ? 6 : 9;
        const dl_result joined = join(url, impatient, rank, comm);
        EXPECT(joined != DL_OK);
        EXPECT(says(dl_last_error(nullptr), absence.words));
        return 0;
      }));
    }
    for (const pid_t pid : pids) CHECK(end_of(pid) == 0);
  }
}

TEST_CASE("bootstrap: a second process with a rank is refused by name, the job is unharmed") {
  const TempFolder folder;
  const auto body = [](int rank, dl_comm*& comm) { return sums(rank, comm, 3); };
  const pid_t one = start_rank(folder.url(), {3}, 1, body);
  wait_for_address(folder, 1);
  const pid_t twin = start([&] {
    const int rank = 1;
    dl_comm* comm = nullptr;
    EXPECT(join(folder.url(), {3}, rank, comm) == DL_ERR_INVALID);
    EXPECT(says(dl_last_error(nullptr),
                "wants to be rank 1, but that rank has joined already: rank 1 (pid "));
    return 0;
  });
  CHECK(end_of(twin) == 0);
  const pid_t zero = start_rank(folder.url(), {3}, 0, body);
  const pid_t two = start_rank(folder.url(), {3}, 2, body);
  for (const pid_t pid : {zero, one, two}) CHECK(end_of(pid) == 0);
}

TEST_CASE("bootstrap: ranks with different world sizes get an error that says so") {
  const TempFolder folder;
  World small{2};
  small.init_timeout_s = 2;
  const pid_t zero = start_rank(folder.url(), small, 0, [](int, dl_comm*&) { return 0; });
  const pid_t one = start([&] {
    const int rank = 1;
    dl_comm* comm = nullptr;
    EXPECT(join(folder.url(), {3}, rank, comm) == DL_ERR_MISMATCH);
    EXPECT(says(dl_last_error(nullptr), "is one of 3 ranks, rank 0 (pid "));
    EXPECT(says(dl_last_error(nullptr), "is one of 2"));
    return 0;
  });
  CHECK(end_of(one) == 0);
  CHECK(end_of(zero) == 100 + DL_ERR_TIMEOUT);
}

TEST_CASE("bootstrap: if one rank gets no shared memory, all use sockets, with one warning") {
  const TempFolder folder;
  const std::string said = folder.path.string() + "/stderr";
  const auto poor_2 = [&](const char* transport) {
    std::vector<pid_t> pids;
    for (int rank = 0; rank < 3; ++rank) {
      pids.push_back(start([&, rank, transport] {
        if (rank == 2) {
          ::signal(SIGXFSZ, SIG_IGN);
          const rlimit small{64 << 10, 64 << 10};
          ::setrlimit(RLIMIT_FSIZE, &small);
        }
        if (std::freopen(said.c_str(), "a", stderr) == nullptr) return 99;
        dl_comm* comm = nullptr;
        const dl_result joined = join(folder.url(), {3, transport}, rank, comm);
        if (joined != DL_OK) {
          return says(dl_last_error(nullptr), "transport shm: rank 2: shared memory: allocate")
                     ? static_cast<int>(joined)
                     : 99;
        }
        EXPECT(std::strcmp(dl_transport(comm), "tcp") == 0);
        EXPECT(sums(rank, comm, 3) == 0);
        dl_finalize(comm);
        return 0;
      }));
    }
    std::vector<int> codes;
    for (const pid_t pid : pids) codes.push_back(end_of(pid));
    return codes;
  };
  CHECK(poor_2("auto") == std::vector<int>(3, 0));
  std::ifstream file(said);
  std::stringstream text;
  text << file.rdbuf();
  const std::string warning = "no shared memory, using sockets instead: rank 2: shared memory";
  const auto at = text.str().find(warning);
  CHECK(at != std::string::npos);
  CHECK(text.str().find("no shared memory", at + 1) == std::string::npos);

  CHECK(poor_2("shm") == std::vector<int>(3, DL_ERR_UNSUPPORTED));
}

TEST_CASE("bootstrap: ranks that want different transports meet on sockets") {
  const TempFolder folder;
  std::vector<pid_t> pids;
  for (int started = 0; started < 3; ++started) {
    const World world{3, started == 1 ? "tcp" : "auto"};
    pids.push_back(start_rank(folder.url(), world, started, [](int rank, dl_comm*& comm) {
      EXPECT(std::strcmp(dl_transport(comm), "tcp") == 0);
      return sums(rank, comm, 3);
    }));
  }
  for (const pid_t pid : pids) CHECK(end_of(pid) == 0);
}

TEST_CASE("bootstrap: started by hand, rank 0 serves the store and the others may come first") {
  const HeldPort port;
  for (const bool environment : {false, true}) {
    CAPTURE(environment);
    std::vector<pid_t> pids;
    for (const int rank : {2, 1, 0}) {
      pids.push_back(start([&, rank] {
        dl_comm* comm = nullptr;
        if (environment) {
          const std::string values[] = {std::to_string(rank), "3", "127.0.0.1", port.number};
          for (int i = 0; i < 4; ++i) ::setenv(kVariables[i], values[i].c_str(), 1);
          EXPECT(dl_init("env://", nullptr, &comm) == DL_OK);
        } else {
          EXPECT(join("tcp://127.0.0.1:" + port.number, {3}, rank, comm) == DL_OK);
        }
        EXPECT(sums(rank, comm, 3) == 0);
        dl_finalize(comm);
        return 0;
      }));
    }
    for (const pid_t pid : pids) CHECK(end_of(pid) == 0);
  }
}
