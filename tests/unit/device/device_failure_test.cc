// Calls on device memory fail: by an error that NCCL reports or does not report, or by the death of
// a rank. The calls of all ranks end in time, with an error. DEVICE_TRIALS=100 repeats each of
// them.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "device_world.h"

using namespace dlaunch;

namespace {

constexpr int kWorldSize = 3;
constexpr double kShort = 4, kLong = 60;  // limits of calls: to be waited for, and not
constexpr std::chrono::duration<double> kLongerThanShort(1.5 * kShort);

int trials() {
  const char* const asked = std::getenv("DEVICE_TRIALS");
  return asked != nullptr ? std::atoi(asked) : 1;
}

// In place of 0, by a rank whose call was late() when its time was up.
constexpr int kSlow = 77;

// Plays until no rank was too slow, three times at most; then that is a failure.
std::vector<int> not_slow(const std::function<std::vector<int>()>& play) {
  std::vector<int> codes;
  for (int i = 0; i < 3; ++i) {
    codes = play();
    if (std::find(codes.begin(), codes.end(), kSlow) == codes.end()) break;
  }
  return codes;
}

struct Fault {
  const char* command;    // FAKE_NCCL
  int killed = -1;        // this rank kills itself in place of its third call
  dl_result expected;     // of every rank that lives
  const char* text = "";  // in the error of rank 0
  Gpus gpus = Gpus::own;
  bool late = false;  // nothing but the deadline ends it
};

// Where the ranks of a trial wait for each other: with their two calls, and for the one that dies.
struct Stops {
  Together<kWorldSize> done;
  Gate dying;
};

// Three calls; the third fails everywhere. Then the communicator is over, in time, and the
// process can make another one.
int suffer(const Fault& fault, const std::string& next_url, Stops& stops, int rank,
           dl_comm*& comm) {
  DeviceVector<float> x(100, gpu_of(fault.gpus, rank), 1);
  const bool early = std::string(fault.command).find("init") != std::string::npos;
  for (int i = 0; i < (early ? 0 : 2); ++i) {
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), 100, DL_FLOAT32, DL_SUM) == DL_OK);
  }
  // A rank that is done with a call says nothing of the others: nobody fails before all are.
  stops.done.come(rank);
  // What NCCL reports waits but a moment for the news of a death.
  if (rank == fault.killed) {
    stops.dying.open(kWorldSize);
    ::raise(SIGKILL);
  }
  if (fault.killed >= 0) stops.dying.pass();
  const auto begun = std::chrono::steady_clock::now();
  const dl_result result = dl_all_reduce(comm, x.data(), x.data(), 100, DL_FLOAT32, DL_SUM);
  const std::string told = dl_last_error(comm);
  const bool slow = fault.late && fault.expected == DL_ERR_PEER_LOST && late(comm, result);
  EXPECT((slow || result == fault.expected));
  if (fault.killed >= 0) EXPECT(dl_peer_lost(comm) == fault.killed);
  if (rank == 0 && !slow) EXPECT(told.find(fault.text) != std::string::npos);
  EXPECT(dl_all_reduce(comm, x.data(), x.data(), 100, DL_FLOAT32, DL_SUM) == result);
  dl_finalize(comm);
  comm = nullptr;
  // 5 s for an abort that hangs; the rest is for a machine under load.
  EXPECT(std::chrono::steady_clock::now() - begun < std::chrono::seconds(30));
  if (fault.killed >= 0) return 0;
  ::unsetenv("FAKE_NCCL");
  EXPECT(join(next_url, {kWorldSize, "shm", 30, 30}, rank, comm) == DL_OK);
  DeviceVector<float> y(100, gpu_of(fault.gpus, rank), 1);
  EXPECT(dl_all_reduce(comm, y.data(), y.data(), 100, DL_FLOAT32, DL_SUM) == DL_OK);
  EXPECT(y[99] == kWorldSize);
  return slow ? kSlow : 0;
}

std::vector<int> play(const Fault& fault) {
  const TempFolder next;
  Stops stops;
  return run({kWorldSize, "shm", 30, fault.late ? kShort : kLong}, [&](int rank, dl_comm*& comm) {
    return suffer(fault, next.url(), stops, rank, comm);
  });
}

void check(const Fault& fault) {
  for (int trial = 0; trial < trials(); ++trial) {
    CAPTURE(trial);
    ::setenv("FAKE_NCCL", fault.command, 1);
    const auto codes = not_slow([&] { return play(fault); });
    ::unsetenv("FAKE_NCCL");
    for (int rank = 0; rank < kWorldSize; ++rank) {
      CAPTURE(rank);
      CHECK(codes[static_cast<std::size_t>(rank)] == (rank == fault.killed ? 128 + SIGKILL : 0));
    }
  }
}

}  // namespace

TEST_CASE("device failure: an error that NCCL reports on one rank ends the call on all") {
  check({.command = "1:2:async_error", .expected = DL_ERR_PEER_LOST, .text = "NCCL: remote"});
}

TEST_CASE("device failure: a rank that dies is named, whatever NCCL reports") {
  check({.command = "", .killed = 1, .expected = DL_ERR_PEER_LOST, .text = "rank 1"});
  check({.command = "0:2:async_error", .killed = 2, .expected = DL_ERR_PEER_LOST});
}

TEST_CASE("device failure: work that hangs in NCCL is a lost round when its time is up") {
  check({.command = "1:2:wedge",
         .expected = DL_ERR_PEER_LOST,
         .text = "all_reduce #3 hangs on the GPUs: all 3 ranks are in it, but ncclAllReduce",
         .late = true});
}

TEST_CASE("device failure: an abort in which NCCL hangs delays no rank") {
  check({.command = "1:2:wedge,1:0:abort_hang", .expected = DL_ERR_PEER_LOST, .late = true});
}

TEST_CASE("device failure: a refused launch ends the call on all ranks") {
  check({.command = "1:2:launch_error", .expected = DL_ERR_IO, .text = "NCCL"});
}

TEST_CASE("device failure: NCCL that does not connect ends the first call") {
  check({.command = "1:0:init_wedge",
         .expected = DL_ERR_TIMEOUT,
         .text = "all_reduce #1",
         .late = true});
  check({.command = "1:0:init_error", .expected = DL_ERR_PEER_LOST, .text = "NCCL"});
}

TEST_CASE("device failure: a rank that dies is named where its memory goes through the host's") {
  check({.command = "",
         .killed = 1,
         .expected = DL_ERR_PEER_LOST,
         .text = "rank 1",
         .gpus = Gpus::shared});
}

TEST_CASE("device failure: in stream order the time of a call begins when its stream reaches it") {
  const auto body = [](int rank, dl_comm*& comm) {
    DeviceVector<float> x(10, rank, 1);
    EXPECT(dl_set_stream_ordered(comm, 1) == DL_OK);
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), 10, DL_FLOAT32, DL_SUM) == DL_OK);
    EXPECT(dl_set_op_timeout(comm, kShort) == DL_OK);
    fake_gpu_enqueue(nullptr, [] { std::this_thread::sleep_for(kLongerThanShort); });
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), 10, DL_FLOAT32, DL_SUM) == DL_OK);
    // On a busy machine the other rank may stand still for longer than kShort. If the time began
    // too early, each try would fail.
    const dl_result result = dl_sync(comm);
    if (result == DL_ERR_TIMEOUT || result == DL_ERR_PEER_LOST) return kSlow;
    EXPECT(result == DL_OK);
    EXPECT(x[9] == 4);
    return 0;
  };
  // The first call has more time, because ranks begin at different times.
  const auto codes = not_slow([&] { return run({2, "shm", 30, kLong}, body); });
  CHECK(codes == std::vector<int>{0, 0});
}

TEST_CASE("device failure: in stream order the next call and the end return the error") {
  ::setenv("FAKE_NCCL", "1:1:wedge", 1);
  const auto body = [](int rank, dl_comm*& comm) {
    DeviceVector<float> x(10, rank, 1);
    EXPECT(dl_set_stream_ordered(comm, 1) == DL_OK);
    for (int i = 0; i < 5; ++i) {  // all but the first behind the one that stands still
      EXPECT(dl_all_reduce(comm, x.data(), x.data(), 10, DL_FLOAT32, DL_SUM) == DL_OK);
    }
    const dl_result result = dl_sync(comm);
    const std::string told = dl_last_error(comm);
    const bool slow = late(comm, result);
    EXPECT((slow || result == DL_ERR_PEER_LOST));
    EXPECT((slow || told.find("all_reduce #2 hangs on the GPUs") != std::string::npos));
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), 10, DL_FLOAT32, DL_SUM) == result);
    EXPECT(dl_last_error(comm) == told);
    float host = 0;
    EXPECT(dl_all_reduce(comm, &host, &host, 1, DL_FLOAT32, DL_SUM) == result);
    return slow ? kSlow : 0;
  };
  const auto codes = not_slow([&] { return run({2, "shm", 30, kShort}, body); });
  ::unsetenv("FAKE_NCCL");
  CHECK(codes == std::vector<int>{0, 0});
}

TEST_CASE("device failure: a frozen rank is named when the others' time is up") {
  const TempFolder folder;
  const World world{2, "shm", 30, kLong};  // for the first call: ranks begin at different times
  Gate frozen;
  const auto body = [&](int rank, dl_comm*& comm) {
    DeviceVector<float> x(10, rank, 1);
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), 10, DL_FLOAT32, DL_SUM) == DL_OK);
    if (rank == 1) {
      frozen.open();
      ::raise(SIGSTOP);
      return 0;
    }
    EXPECT(dl_set_op_timeout(comm, kShort) == DL_OK);
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), 10, DL_FLOAT32, DL_SUM) == DL_ERR_TIMEOUT);
    EXPECT(std::string(dl_last_error(comm)).find("rank 1 (no answer)") != std::string::npos);
    return 0;
  };
  const pid_t first = start_rank(folder.url(), world, 0, body);
  const pid_t second = start_rank(folder.url(), world, 1, body);
  frozen.pass();
  CHECK(end_of(first) == 0);
  ::kill(second, SIGKILL);
  end_of(second);
}
