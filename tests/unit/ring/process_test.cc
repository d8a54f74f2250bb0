// A rank forks, exits or is killed: the effects on other processes.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "process_world.h"
#include "tests/unit/sanitized.h"

using namespace dlaunch;

namespace {

// Control links that this process's threads watch.
int watched_links() {
  int links = 0;
  for (const auto& info : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream file(info.path());
    for (std::string line; std::getline(file, line);) links += line.starts_with("tfd:");
  }
  return links;
}

// Until a control thread has read all that a rank said which has ended, and watches its link no
// more. A call gives it but 100 ms for that once it sees the end of the connection for data.
bool goodbye_is_read(int links_before) {
  for (int ms = 0; ms < 20'000; ++ms) {
    if (watched_links() < links_before) return true;
    ::usleep(1000);
  }
  return false;
}

}  // namespace

TEST_CASE("process: a child that outlives a killed rank does not hide its loss") {
  for (const char* transport : kTransports) {
    CAPTURE(transport);
    Gate through, over;  // a rank whose barrier is done may end those of the others by its death
    Together<2> failed;
    const auto codes = run({3, transport}, [&](int rank, dl_comm*& comm) {
      EXPECT(dl_barrier(comm) == DL_OK);
      through.open();
      if (rank == 1) {
        through.pass(3);
        start([&] {
          over.pass();
          return 0;
        });
        ::raise(SIGKILL);
      }
      const auto result = dl_barrier(comm);
      failed.come(rank / 2);
      EXPECT(result == DL_ERR_PEER_LOST);
      EXPECT(dl_peer_lost(comm) == 1);
      return 0;
    });
    over.open();
    CHECK(codes == std::vector<int>{0, 128 + SIGKILL, 0});
  }
}

namespace {
bool in_child = false;
}  // namespace
// What only a thread of the parent's knows is no leak of a child, which has no such thread.
extern "C" int __lsan_is_turned_off() { return in_child; }  // NOLINT: the name is the sanitizer's

TEST_CASE("process: calls fail in a forked child, and do not harm the parent") {
  for (const int ranks : {1, 2}) {
    for (const char* transport : kTransports) {
      all_well({ranks, transport}, [](int rank, dl_comm*& comm) {
        dl_request* request = nullptr;  // its thread is not in the child
        EXPECT(dl_ibarrier(comm, &request) == DL_OK);
        EXPECT(dl_wait(&request) == DL_OK);
        const pid_t child = start([&] {
          in_child = true;
          float x = 1;
          EXPECT(dl_all_reduce(comm, &x, &x, 1, DL_FLOAT32, DL_SUM) == DL_ERR_INVALID);
          EXPECT(std::strstr(dl_last_error(comm), "forked") != nullptr);
          EXPECT(dl_ibarrier(comm, &request) == DL_ERR_INVALID);
          EXPECT(dl_send(comm, &x, 1, DL_FLOAT32, 1 - rank, 0) == DL_ERR_INVALID);
          EXPECT(dl_rejoin(comm, 0) == DL_ERR_INVALID);
          EXPECT(dl_rank(comm) == rank);
          EXPECT(dl_peer_lost(comm) == -1);
          dl_abort(comm);
          dl_finalize(comm);
          ::exit(0);
        });
        EXPECT(end_of(child) == 0);
        EXPECT(dl_barrier(comm) == DL_OK);
        std::vector<float> x(1 << 20, 1.0f);
        EXPECT(dl_all_reduce(comm, x.data(), x.data(), x.size(), DL_FLOAT32, DL_SUM) == DL_OK);
        return 0;
      });
    }
  }
}

TEST_CASE("process: a forked child does not wait for operations of its parent") {
  for (const int ranks : {1, 2}) {
    for (const char* transport : kTransports) {
      all_well({ranks, transport}, [](int rank, dl_comm*& comm) {
        dl_request *requests[3] = {}, *any[2] = {};
        float x[5] = {1, 1, 1, 1, 1};
        for (int i = 0; i < 5; ++i) {
          dl_request** const request = i < 3 ? &requests[i] : &any[i - 3];
          EXPECT(dl_iall_reduce(comm, x + i, x + i, 1, DL_FLOAT32, DL_SUM, request) == DL_OK);
        }
        const pid_t child = start([&] {
          int done = 0;
          size_t index = 9;
          EXPECT(dl_test(&requests[0], &done) == DL_ERR_INVALID);
          EXPECT((done == 1 && requests[0] == nullptr));
          EXPECT(std::strstr(dl_last_error(comm), "forked") != nullptr);
          EXPECT(dl_wait_all(3, requests) == DL_ERR_INVALID);
          EXPECT((requests[1] == nullptr && requests[2] == nullptr));
          EXPECT(dl_wait_any(2, any, &index) == DL_ERR_INVALID);
          EXPECT((index == 0 && any[0] == nullptr));
          EXPECT(dl_wait(&any[1]) == DL_ERR_INVALID);
          return 0;
        });
        EXPECT(end_of(child) == 0);
        EXPECT(dl_wait_all(3, requests) == DL_OK);
        EXPECT(dl_wait_all(2, any) == DL_OK);
        EXPECT((x[0] == dl_size(comm) && x[4] == dl_size(comm)));
        return 0;
      });
    }
  }
}

TEST_CASE("process: exit() without dl_finalize is a departure, and only ranks in need of it fail") {
  for (const char* transport : kTransports) {
    CAPTURE(transport);
    const TempFolder folder;
    Gate gone, answered;
    std::vector<pid_t> pids;
    for (int started = 0; started < 3; ++started) {
      pids.push_back(
          start_rank(folder.url(), {3, transport}, started, [&](int rank, dl_comm*& comm) {
            const int links = watched_links();
            EXPECT(dl_barrier(comm) == DL_OK);
            if (rank == 1) ::exit(0);
            gone.pass();
            EXPECT(goodbye_is_read(links));
            // The two that are left can still talk to each other.
            int x = rank;
            if (rank == 0) EXPECT(dl_send(comm, &x, 1, DL_INT32, 2, 5) == DL_OK);
            EXPECT(dl_recv(comm, &x, 1, DL_INT32, 2 - rank, 5) == DL_OK);
            EXPECT(x == 2 - rank);
            if (rank == 2) {
              EXPECT(dl_send(comm, &rank, 1, DL_INT32, 0, 5) == DL_OK);
              answered.pass();  // a barrier before rank 0 has the answer would cost it that
            }
            EXPECT(dl_barrier(comm) == DL_ERR_PEER_LOST);
            EXPECT(dl_peer_lost(comm) == 1);
            EXPECT(std::strstr(dl_last_error(comm), "has left after collective #1; #2 needs it"));
            return 0;
          }));
    }
    CHECK(end_of(pids[1]) == 0);
    gone.open(2);
    CHECK(end_of(pids[0]) == 0);
    answered.open();
    CHECK(end_of(pids[2]) == 0);
  }
}

TEST_CASE("process: all exit right after their last collective, without an error") {
  for (const char* transport : kTransports) {
    CAPTURE(transport);
    for (int round = 0; round < (kSanitized ? 3 : 10); ++round) {
      const auto codes = run({4, transport}, [](int rank, dl_comm*& comm) {
        std::vector<float> x(1 << 16, 1.0f);
        for (int i = 0; i < 5; ++i) {
          EXPECT(dl_all_reduce(comm, x.data(), x.data(), x.size(), DL_FLOAT32, DL_MAX) == DL_OK);
        }
        ::exit(0);
        return 0;
      });
      REQUIRE(codes == std::vector<int>(4, 0));
    }
  }
}

TEST_CASE("process: with TLS, too, all may exit after their last collective") {
  for (int round = 0; round < 5; ++round) {
    const auto codes =
        run({.ranks = 3, .transport = "tcp", .tls = true}, [](int rank, dl_comm*& comm) {
          std::vector<float> x(1 << 16, 1.0f);
          EXPECT(dl_all_reduce(comm, x.data(), x.data(), x.size(), DL_FLOAT32, DL_MAX) == DL_OK);
          ::exit(0);
          return 0;
        });
    REQUIRE(codes == std::vector<int>(3, 0));
  }
}

TEST_CASE("process: with TLS, too, a rank that is killed is lost to all") {
  Gate through;  // what is on its way with a killed process is lost
  Together<2> failed;
  const World world{.ranks = 3, .transport = "tcp", .tls = true};
  const auto codes = run(world, [&](int rank, dl_comm*& comm) {
    EXPECT(dl_barrier(comm) == DL_OK);
    if (rank == 1) {
      through.pass(2);
      ::raise(SIGKILL);
    }
    through.open();
    const auto result = dl_barrier(comm);
    failed.come(rank / 2);
    EXPECT(result == DL_ERR_PEER_LOST);
    EXPECT(dl_peer_lost(comm) == 1);
    return 0;
  });
  CHECK(codes == std::vector<int>{0, 128 + SIGKILL, 0});
}

TEST_CASE("process: messages sent before dl_finalize arrive; an error names the rank of others") {
  for (const char* transport : kTransports) {
    CAPTURE(transport);
    const TempFolder folder;
    Gate counted, gone;
    const pid_t sender = start_rank(folder.url(), {2, transport}, 0, [&](int rank, dl_comm*& comm) {
      const int x = 42;
      EXPECT(dl_send(comm, &x, 1, DL_INT32, 1, 0) == DL_OK);
      counted.pass();
      return 0;
    });
    const pid_t receiver =
        start_rank(folder.url(), {2, transport}, 1, [&](int rank, dl_comm*& comm) {
          int x = 0;
          const int links = watched_links();
          counted.open();
          gone.pass();
          EXPECT(goodbye_is_read(links));
          EXPECT(dl_recv(comm, &x, 1, DL_INT32, 0, 0) == DL_OK);
          EXPECT(x == 42);
          EXPECT(dl_recv(comm, &x, 1, DL_INT32, 0, 0) == DL_ERR_PEER_LOST);
          EXPECT(dl_peer_lost(comm) == 0);
          EXPECT(std::strstr(dl_last_error(comm), "rank 0") != nullptr);
          EXPECT(std::strstr(dl_last_error(comm), "it has left the job") != nullptr);
          return 0;
        });
    CHECK(end_of(sender) == 0);
    gone.open();
    CHECK(end_of(receiver) == 0);
  }
}

TEST_CASE("process: a send to a rank that has left is an error") {
  for (const char* transport : kTransports) {
    for (const bool later : {false, true}) {
      Gate counted, gone;
      all_well({2, transport}, [&](int rank, dl_comm*& comm) {
        if (rank == 0) {
          counted.pass();
          dl_finalize(std::exchange(comm, nullptr));
          gone.open();
          return 0;
        }
        const int links = watched_links(), x = 42;
        counted.open();
        gone.pass();
        EXPECT(goodbye_is_read(links));
        dl_request* sent = nullptr;
        EXPECT((later ? dl_isend(comm, &x, 1, DL_INT32, 0, 7, &sent)
                      : dl_send(comm, &x, 1, DL_INT32, 0, 7)) == DL_ERR_PEER_LOST);
        EXPECT((sent == nullptr && dl_peer_lost(comm) == 0));
        EXPECT(
            std::strstr(dl_last_error(comm), "during send to rank 0 (tag 7): it has left the job"));
        return 0;
      });
    }
  }
}

TEST_CASE("process: a rank that ends right after dl_init does not fail the dl_init of others") {
  for (int i = 0; i < 30; ++i) {
    const char* const transport = kTransports[i % 2];
    const auto codes = run({4, transport}, [i](int rank, dl_comm*& comm) {
      if (rank != i % 4) return 0;
      if (i % 3 == 0) dl_abort(comm);
      if (i % 3 == 1) ::_exit(0);
      return 0;
    });
    CHECK(codes == std::vector<int>(4, 0));
  }
}

TEST_CASE("process: each survivor reports the lost rank to the launcher") {
  const TempFolder notes;
  ::setenv("DLAUNCH_ROUND_DIR", notes.path.string().c_str(), 1);
  Gate through;
  const auto codes = run({3, "auto"}, [&](int rank, dl_comm*& comm) {
    EXPECT(dl_barrier(comm) == DL_OK);
    through.open();
    if (rank == 2) {
      through.pass(3);
      ::raise(SIGKILL);
    }
    EXPECT(dl_barrier(comm) == DL_ERR_PEER_LOST);
    return 0;
  });
  ::unsetenv("DLAUNCH_ROUND_DIR");
  CHECK(codes == std::vector<int>{0, 0, 128 + SIGKILL});
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(notes.path.string())) {
    const std::string name = entry.path().filename();
    if (name.starts_with("flight.") || name.starts_with("spans.")) continue;
    ++files;
    CHECK((name == "peer_lost.0" || name == "peer_lost.1"));
    std::ifstream file(entry.path());
    std::string lost, sentence;
    std::getline(file, lost);
    std::getline(file, sentence);
    CHECK(lost == "2");
    CHECK(sentence.find("was lost") != std::string::npos);
  }
  CHECK(files == 2);
}
