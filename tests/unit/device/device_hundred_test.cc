// Ends of a round on GPUs, a hundred times each: an error that NCCL reports, a killed peer, and a
// collective that NCCL never ends. Each time every survivor gets DL_ERR_PEER_LOST within the
// deadline. DEVICE_TRIALS sets the number of repetitions.
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>

#include "device_world.h"

using namespace dlaunch;

namespace {

constexpr int kHealthyCalls = 2;
constexpr double kDeadline = 10;  // what is noticed at once is noticed long before
constexpr double kShort = 1;      // to be waited for
constexpr double kAfter = 20;  // an abort that hangs takes 5 s of it; the rest is for the machine

int trials() {
  const char* const asked = std::getenv("DEVICE_TRIALS");
  return asked != nullptr ? std::atoi(asked) : 100;
}

// What all processes of a test count together.
struct Tally {
  std::atomic<int> played{0}, survivors{0}, lost_in_time{0}, named{0};
  std::atomic<int> calls{0};
  std::atomic<int> late{0};  // these calls do not count: see late()
  std::atomic_flag told;
  char other[300] = "";  // the first error that was not the expected one
};
// Shared with the processes that are started later.
struct Unmap {
  template <class T>
  void operator()(T* shared) const {
    ::munmap(shared, sizeof(T));
  }
};
template <class T>
std::unique_ptr<T, Unmap> make_shared_by_all() {
  void* const memory =
      ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  return std::unique_ptr<T, Unmap>(new (memory) T);
}

double seconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

// Either way of returning: when the sum is there, or when the stream has the call.
enum class Order { host, stream };

// add_up: to its end, in either order.
dl_result start_adding(dl_comm* comm, DeviceVector<float>& x) {
  return dl_all_reduce(comm, x.data(), x.data(), 100, DL_FLOAT32, DL_SUM);
}
dl_result add_up(dl_comm* comm, DeviceVector<float>& x) {
  const dl_result result = start_adding(comm, x);
  return result == DL_OK ? dl_sync(comm) : result;
}

dl_result join_in(Order order, const std::string& url, const World& world, int rank,
                  dl_comm*& comm) {
  const dl_result result = join(url, world, rank, comm);
  return result == DL_OK ? dl_set_stream_ordered(comm, order == Order::stream) : result;
}

// Counts how a survivor's call ended; `lost` is who must be named, -1: nobody.
void count(Tally& tally, dl_comm* comm, dl_result result, double seconds, double limit, int lost) {
  ++tally.survivors;
  if (result == DL_ERR_PEER_LOST && seconds < limit) ++tally.lost_in_time;
  if (result == DL_ERR_PEER_LOST && dl_peer_lost(comm) == lost) {
    ++tally.named;
  } else if (!tally.told.test_and_set()) {
    std::snprintf(tally.other, sizeof tally.other, "%s", dl_last_error(comm));
  }
}

// -- By what NCCL reports, and by what it does not

struct Seen {
  std::atomic<bool> healthy[2]{}, late[2]{};  // by rank
};
struct Lane {
  TempFolder folder;
  Together<2> come, gone;
  std::unique_ptr<Seen, Unmap> seen = make_shared_by_all<Seen>();
};

// One communicator, whose third call fails by FAKE_NCCL. False, for both ranks: the machine was too
// slow for the deadline, for one of the first two calls or for the third.
bool play(Tally& tally, const std::string& url, double limit, Order order, int rank, Lane& lane) {
  dl_comm* comm = nullptr;
  bool well = join_in(order, url, {2, "shm", 30, limit}, rank, comm) == DL_OK;
  DeviceVector<float> x(100, rank, 1);
  for (int i = 0; well && i < kHealthyCalls; ++i) well = add_up(comm, x) == DL_OK;
  lane.seen->healthy[rank] = well;
  // Both have had their two calls before one can fail.
  lane.come.come(rank);
  lane.seen->late[rank] = false;
  const bool healthy = lane.seen->healthy[0] && lane.seen->healthy[1];
  if (healthy) {
    const auto begun = std::chrono::steady_clock::now();
    const dl_result result = add_up(comm, x);
    const double seconds = seconds_since(begun);
    ++tally.calls;
    lane.seen->late[rank] = late(comm, result);
    if (lane.seen->late[rank]) {
      ++tally.late;
    } else {
      count(tally, comm, result, seconds, limit + kAfter, -1);
    }
  }
  dl_finalize(comm);
  lane.gone.come(rank);
  return healthy && !lane.seen->late[0] && !lane.seen->late[1];
}

// `lanes` worlds at once, of two ranks each, which live through one communicator after the other.
void check_by_command(const char* command, double limit, int lanes, Order order) {
  ::setenv("FAKE_NCCL", command, 1);
  const auto tally = make_shared_by_all<Tally>();
  const int each = (trials() + lanes - 1) / lanes;
  std::vector<std::unique_ptr<Lane>> worlds;
  std::vector<pid_t> processes;
  for (int i = 0; i < lanes; ++i) {
    Lane& lane = *worlds.emplace_back(std::make_unique<Lane>());
    for (int rank = 0; rank < 2; ++rank) {
      processes.push_back(start([&, rank] {
        int done = 0;
        for (int trial = 0; done < each && trial < 20 * each; ++trial) {
          const std::string url = lane.folder.url() + "/" + std::to_string(trial);
          done += play(*tally, url, limit, order, rank, lane);
        }
        if (rank == 0) tally->played += done;
        return 0;
      }));
    }
  }
  for (const pid_t process : processes) CHECK(end_of(process) == 0);
  ::unsetenv("FAKE_NCCL");
  CHECK(tally->played >= trials());
  CHECK(std::string(tally->other) == "");
  CHECK(tally->lost_in_time == tally->survivors);
  CHECK(tally->named == tally->survivors);
  CHECK(tally->survivors >= 2 * tally->played);
  CHECK(tally->survivors + tally->late == tally->calls);
  if (limit != kShort) CHECK(tally->late == 0);
  MESSAGE(std::string(command) << ": " << tally->lost_in_time.load() << " of "
                               << tally->survivors.load());
}

// -- By kill -9

constexpr int kVictim = 1, kSurvivors = 2;

struct Killing {
  Gpus gpus;
  Order order;
  TempFolder folder;
  Gate under_way, ended;
  std::string url(int trial) const { return folder.url() + "/" + std::to_string(trial); }
};

// Adds up until it fails: in stream order with many calls under way.
dl_result add_up_for_ever(Killing& killing, dl_comm* comm, int rank) {
  DeviceVector<float> x(100, gpu_of(killing.gpus, rank), 0);
  dl_result result = add_up(comm, x);
  killing.under_way.open();
  while (result == DL_OK) result = start_adding(comm, x);
  return result;
}

int survive(Killing& killing, Tally& tally, int rank) {
  for (int trial = 0; trial < trials(); ++trial) {
    dl_comm* comm = nullptr;
    EXPECT(join_in(killing.order, killing.url(trial), {3, "shm", 30, kDeadline}, rank, comm) ==
           DL_OK);
    const dl_result result = add_up_for_ever(killing, comm, rank);
    // That it was in time the parent sees, who has killed.
    count(tally, comm, result, 0, kDeadline, kVictim);
    EXPECT((fake_nccl_launches() > 0) == (killing.gpus == Gpus::own));
    killing.ended.open();
    dl_finalize(comm);
  }
  return 0;
}

void check_killed(Gpus gpus, Order order = Order::host) {
  Killing killing{.gpus = gpus, .order = order, .folder = {}, .under_way = {}, .ended = {}};
  const auto tally = make_shared_by_all<Tally>();
  std::vector<pid_t> survivors;
  for (const int rank : {0, 2}) {
    survivors.push_back(start([&, rank] { return survive(killing, *tally, rank); }));
  }
  std::mt19937 random(6);
  for (int trial = 0; trial < trials(); ++trial) {
    const pid_t victim = start([&] {
      dl_comm* comm = nullptr;
      const World world{3, "shm", 30, kDeadline};
      if (join_in(order, killing.url(trial), world, kVictim, comm) != DL_OK) return 1;
      add_up_for_ever(killing, comm, kVictim);
      return 2;
    });
    for (int rank = 0; rank < 3; ++rank) killing.under_way.pass();
    ::usleep(random() % 5000);  // into any part of any call
    ::kill(victim, SIGKILL);
    const auto begun = std::chrono::steady_clock::now();
    CHECK(end_of(victim) == 128 + SIGKILL);
    for (int i = 0; i < kSurvivors; ++i) killing.ended.pass();
    CHECK(seconds_since(begun) < kDeadline);
  }
  for (const pid_t survivor : survivors) CHECK(end_of(survivor) == 0);
  CHECK(tally->survivors == kSurvivors * trials());
  CHECK(std::string(tally->other) == "");
  CHECK(tally->lost_in_time == tally->survivors);
  CHECK(tally->named == tally->survivors);
  MESSAGE("killed: " << tally->lost_in_time.load() << " of " << tally->survivors.load());
}

}  // namespace

TEST_CASE("device failure, often: an error that NCCL reports is a lost round on all ranks") {
  for (const Order order : {Order::host, Order::stream}) {
    check_by_command("1:2:async_error", kDeadline, 5, order);
  }
}

TEST_CASE("device failure, often: a collective that NCCL never ends is a lost round in time") {
  for (const Order order : {Order::host, Order::stream}) {
    check_by_command("1:2:wedge", kShort, 25, order);
  }
}

TEST_CASE("device failure, often: a peer that is killed is named, in NCCL") {
  for (const Order order : {Order::host, Order::stream}) check_killed(Gpus::own, order);
}

TEST_CASE("device failure, often: a peer that is killed is named, through the host's memory") {
  check_killed(Gpus::shared);
}
