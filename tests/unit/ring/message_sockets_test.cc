// Ranks that share memory open a socket for messages when two of them first need it.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "process_world.h"
#include "tests/unit/process_state.h"

using namespace dlaunch;

TEST_CASE("message sockets: a message opens one on its two ranks and none on others") {
  all_well({5, "shm"}, [](int rank, dl_comm*& comm) {
    const long before = open_sockets();
    EXPECT(dl_barrier(comm) == DL_OK);
    int x = rank;
    if (rank == 1) EXPECT(dl_send(comm, &x, 1, DL_INT32, 3, 0) == DL_OK);
    if (rank == 3) {
      EXPECT(dl_recv(comm, &x, 1, DL_INT32, 1, 0) == DL_OK);
      EXPECT(x == 1);
    }
    EXPECT(dl_barrier(comm) == DL_OK);
    EXPECT(open_sockets() - before == (rank == 1 || rank == 3 ? 1 : 0));
    return 0;
  });
}

TEST_CASE("message sockets: all pairs at once, both ways, from two threads each") {
  all_well({6, "shm"}, [](int rank, dl_comm*& comm) {
    std::vector<int> in(6, -1);
    std::vector<dl_request*> requests;
    for (int peer = 0; peer < 6; ++peer) {
      if (peer == rank) continue;
      EXPECT(dl_isend(comm, &rank, 1, DL_INT32, peer, 5, &requests.emplace_back()) == DL_OK);
      EXPECT(dl_irecv(comm, &in[static_cast<std::size_t>(peer)], 1, DL_INT32, peer, 5,
                      &requests.emplace_back()) == DL_OK);
    }
    for (dl_request*& request : requests) EXPECT(dl_wait(&request) == DL_OK);
    for (int peer = 0; peer < 6; ++peer) {
      EXPECT(in[static_cast<std::size_t>(peer)] == (peer == rank ? -1 : peer));
    }
    return 0;
  });
}

TEST_CASE("message sockets: a receive from any rank gets one to a rank that sends first") {
  all_well({4, "shm"}, [](int rank, dl_comm*& comm) {
    int x = rank, sum = 0;
    if (rank != 2) EXPECT(dl_send(comm, &x, 1, DL_INT32, 2, 0) == DL_OK);
    for (int i = 0; rank == 2 && i < 3; ++i) {
      int source = -1;
      EXPECT(dl_recv_any(comm, &x, 1, DL_INT32, 0, &source) == DL_OK);
      EXPECT(x == source);
      sum += x;
    }
    EXPECT(sum == (rank == 2 ? 4 : 0));
    return 0;
  });
}

TEST_CASE("message sockets: a rank that stands still holds up no message among the others") {
  all_well({3, "shm"}, [](int rank, dl_comm*& comm) {
    const int own = ::getpid();
    int pids[3] = {};
    EXPECT(dl_all_gather(comm, &own, pids, 1, DL_INT32) == DL_OK);
    if (rank == 2) {
      ::raise(SIGSTOP);
      return 0;
    }
    while (state_of(pids[2]) != 'T') ::usleep(1000);
    int x = rank;
    if (rank == 0) EXPECT(dl_send(comm, &x, 1, DL_INT32, 1, 0) == DL_OK);
    if (rank == 1) EXPECT(dl_recv(comm, &x, 1, DL_INT32, 0, 0) == DL_OK);
    if (rank == 1) EXPECT(dl_send(comm, &x, 1, DL_INT32, 0, 0) == DL_OK);
    if (rank == 0) EXPECT(dl_recv(comm, &x, 1, DL_INT32, 1, 0) == DL_OK);
    if (rank == 0) ::kill(pids[2], SIGCONT);
    return 0;
  });
}

TEST_CASE("message sockets: a rank that dies before any other has one to it is named") {
  for (const bool higher : {false, true}) {
    const int dies = higher ? 2 : 0;
    Gate met;
    Together<2> failed;
    auto codes = run({3, "shm"}, [&](int rank, dl_comm*& comm) {
      EXPECT(dl_barrier(comm) == DL_OK);
      met.open();
      if (rank == dies) {
        met.pass(3);
        ::raise(SIGKILL);
      }
      int x = 0;
      const dl_result done = rank == 1 ? dl_recv(comm, &x, 1, DL_INT32, dies, 0)
                                       : dl_send(comm, &x, 1, DL_INT32, dies, 0);
      // Before the loss is known the kernel takes what a send gives it.
      const dl_result next = done == DL_OK ? dl_recv(comm, &x, 1, DL_INT32, dies, 0) : done;
      failed.come(rank == 1 ? 0 : 1);
      EXPECT(next == DL_ERR_PEER_LOST);
      EXPECT(dl_peer_lost(comm) == dies);
      return 0;
    });
    CHECK(codes[static_cast<std::size_t>(dies)] == 128 + SIGKILL);
    codes[static_cast<std::size_t>(dies)] = 0;
    CHECK(codes == std::vector<int>{0, 0, 0});
  }
}

TEST_CASE("message sockets: after a burst of deaths the others get errors without any") {
  Gate met;
  auto codes = run({12, "auto"}, [&](int rank, dl_comm*& comm) {
    EXPECT(dl_barrier(comm) == DL_OK);
    met.open(12);
    met.pass(12);
    if (rank % 3 == 1) ::raise(SIGKILL);
    EXPECT(dl_barrier(comm) == DL_ERR_PEER_LOST);
    return 0;
  });
  for (std::size_t r = 0; r < codes.size(); ++r) {
    CHECK(codes[r] == (r % 3 == 1 ? 128 + SIGKILL : 0));
  }
}

TEST_CASE("message sockets: without room for more descriptors the error says so on both ranks") {
  all_well({3, "shm"}, [](int rank, dl_comm*& comm) {
    int x = 0;
    if (rank == 0) EXPECT(dl_send(comm, &x, 1, DL_INT32, 2, 0) == DL_OK);
    if (rank == 2) EXPECT(dl_recv(comm, &x, 1, DL_INT32, 0, 0) == DL_OK);
    if (rank == 0) {
      const rlimit none{0, 0};
      ::setrlimit(RLIMIT_NOFILE, &none);
    }
    EXPECT(dl_barrier(comm) == DL_OK);
    if (rank == 2) return 0;
    const dl_result done =
        rank == 0 ? dl_send(comm, &x, 1, DL_INT32, 1, 0) : dl_recv(comm, &x, 1, DL_INT32, 0, 0);
    EXPECT(done == DL_ERR_IO);
    EXPECT(std::string(dl_last_error(comm)).find("ulimit -n") != std::string::npos);
    return 0;
  });
}
