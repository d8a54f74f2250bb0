// The plug-in, loaded and called as NCCL does, in each version that it has.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include <doctest/doctest.h>

#include "base/nccl_record.h"
#include "tests/support/nccl_host.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;
using nccl_host::Comm;

namespace {

std::string content(const std::string& path) {
  std::ostringstream all;
  all << std::ifstream(path, std::ios::binary).rdbuf();
  return all.str();
}

// The plug-in keeps one record for its process: each case is a process of its own, as rank 5 of a
// job. Exit code 0: `act` was content.
template <class Act>
int as_rank_5(const std::string& folder, bool kernels, Act act) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("DLAUNCH_ROUND_DIR", folder.c_str(), 1);
    ::setenv("DLAUNCH_NCCL_KERNELS", kernels ? "1" : "0", 1);
    ::setenv("RANK", "5", 1);
    ::_exit(act() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("nccl plug-in: each version records what NCCL says of an operation") {
  for (const int version : {3, 4, 5}) {
    CAPTURE(version);
    const TempFolder folder;
    const auto act = [&] {
      Comm comm(NCCL_PROFILER, version, 0xfeedbeef12345678, 4, 2, "world");
      if (comm.version() != version || comm.mask() != 70) return false;
      void* const first = comm.enqueue({.func = "AllReduce", .count = 1000});
      void* const second = comm.enqueue({.func = "Broadcast", .count = 5, .root = 3});
      comm.enqueue({.func = "Recv", .count = 8, .dtype = "ncclInt64", .root = 1});
      void* const a = comm.channel_begins(first, 0);
      void* const b = comm.channel_begins(first, 1);
      comm.channel_ends(a);
      comm.channel_ends(b);
      comm.channel_begins(second, 0);
      return first != nullptr && first != second && a != nullptr;
    };
    CHECK(as_rank_5(folder.path.string(), true, act) == 0);
    const std::string bytes = content(nccl_file(folder.path.string(), 5));
    const auto comms = read_nccl(bytes);
    REQUIRE(comms.size() == 1);
    CHECK(comms[0].comm == 0xfeedbeef12345678);
    CHECK(comms[0].rank == 2);
    CHECK(comms[0].ranks == (version == 3 ? 0 : 4));
    CHECK(comms[0].name == "world");
    CHECK(comms[0].enqueued == 2);
    CHECK(comms[0].begun == 2);
    CHECK(comms[0].open == 2);
    const auto flight = read_nccl_flight(bytes);
    REQUIRE(flight.size() == 3);
    CHECK(flight[0].what == "all_reduce #1 (count 1000, float) on NCCL communicator world");
    CHECK(flight[0].state == FlightState::done);
    CHECK(flight[1].what == "broadcast #2 (count 5, float, root 3) on NCCL communicator world");
    CHECK(flight[1].state == FlightState::running);
    CHECK(flight[2].what == "recv from rank 1 (tag 0, count 8, int64) on NCCL communicator world");
    CHECK(flight[2].state == FlightState::enqueued);
  }
}

TEST_CASE("nccl plug-in: by default it asks for no kernel events") {
  const TempFolder folder;
  const auto act = [] {
    Comm comm(NCCL_PROFILER, 5, 1, 2, 0);
    return comm.mask() == 6 && comm.enqueue({}) != nullptr;
  };
  CHECK(as_rank_5(folder.path.string(), false, act) == 0);
  CHECK_FALSE(read_nccl(content(nccl_file(folder.path.string(), 5))).at(0).kernels);
}

TEST_CASE("nccl plug-in: without dlaunch it asks for no events") {
  const auto act = [] {
    ::unsetenv("DLAUNCH_ROUND_DIR");
    Comm comm(NCCL_PROFILER, 5, 1, 2, 0);
    return comm.version() == 5 && comm.mask() == 0 && comm.enqueue({}) == nullptr;
  };
  CHECK(as_rank_5("", false, act) == 0);
}

TEST_CASE("nccl plug-in: it survives that NCCL closes it, and counts on") {
  const TempFolder folder;
  const auto act = [] {
    { Comm(NCCL_PROFILER, 5, 1, 2, 0).enqueue({}); }
    Comm second(NCCL_PROFILER, 5, 2, 2, 0);
    second.enqueue({});
    return second.enqueue({}) != nullptr;
  };
  CHECK(as_rank_5(folder.path.string(), false, act) == 0);
  const auto comms = read_nccl(content(nccl_file(folder.path.string(), 5)));
  REQUIRE(comms.size() == 2);
  CHECK(comms[0].enqueued == 1);
  CHECK(comms[1].enqueued == 2);
}

TEST_CASE("nccl plug-in: of two processes with one rank the living first one is recorded") {
  const TempFolder folder;
  const std::string path = folder.path.string();
  const auto act = [&] {
    Comm comm(NCCL_PROFILER, 5, 1, 2, 0);
    comm.enqueue({});
    // Its child has the same environment, as the helpers of a worker have.
    ::setenv("PATH", "/usr/bin:/bin", 1);
    const pid_t child = ::fork();
    if (child == 0) ::execl("/proc/self/exe", "unit_profiler", "--dt-tc=second process", nullptr);
    int status = -1;
    ::waitpid(child, &status, 0);
    return status == 0 && read_nccl(content(nccl_file(path, 5))).at(0).comm == 1;
  };
  ::setenv("SECOND_PROCESS", "refused", 1);
  CHECK(as_rank_5(path, false, act) == 0);
  // The first one has ended: one after it is recorded.
  const auto later = [] {
    Comm comm(NCCL_PROFILER, 5, 3, 2, 0);
    return comm.mask() == 6;
  };
  CHECK(as_rank_5(path, false, later) == 0);
  CHECK(read_nccl(content(nccl_file(path, 5))).at(0).comm == 3);
  ::unsetenv("SECOND_PROCESS");
}

TEST_CASE("second process") {
  if (std::getenv("SECOND_PROCESS") == nullptr || std::getenv("DLAUNCH_ROUND_DIR") == nullptr) {
    return;
  }
  CHECK(Comm(NCCL_PROFILER, 5, 2, 2, 0).mask() == 0);
}

TEST_CASE("nccl plug-in: threads of NCCL and of the program at the same time") {
  const TempFolder folder;
  const auto act = [] {
    Comm one(NCCL_PROFILER, 5, 1, 2, 0), two(NCCL_PROFILER, 5, 2, 2, 0);
    const auto work = [](Comm& comm) {
      for (int i = 0; i < 20'000; ++i) {
        void* const operation = comm.enqueue({.channels = 1});
        comm.channel_ends(comm.channel_begins(operation, 0));
      }
    };
    std::thread other([&] { work(two); });
    work(one);
    other.join();
    return true;
  };
  CHECK(as_rank_5(folder.path.string(), true, act) == 0);
  const auto comms = read_nccl(content(nccl_file(folder.path.string(), 5)));
  REQUIRE(comms.size() == 2);
  for (const auto& comm : comms) {
    CHECK(comm.enqueued == 20'000);
    CHECK(comm.begun == 20'000);
    CHECK(comm.open == 0);
  }
}

// Well below 1 us with optimization on an idle machine; the limit allows for neither.
TEST_CASE("nccl plug-in: the cost of an operation") {
  const TempFolder folder;
  const auto act = [] {
    Comm comm(NCCL_PROFILER, 5, 1, 2, 0);
    constexpr int kCalls = 100'000;
    auto best = std::chrono::nanoseconds::max();
    for (int turn = 0; turn < 5; ++turn) {
      const auto began = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; ++i) comm.enqueue({});
      best = std::min<std::chrono::nanoseconds>(
          best, (std::chrono::steady_clock::now() - began) / kCalls);
    }
    std::printf("an operation costs %lld ns\n", static_cast<long long>(best.count()));
    return best < std::chrono::microseconds(20);
  };
  CHECK(as_rank_5(folder.path.string(), false, act) == 0);
}
