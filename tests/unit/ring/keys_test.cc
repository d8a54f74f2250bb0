// The keys that ranks share, through the C API.
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dlaunch/ring.hpp>
#include <doctest/doctest.h>

#include "held_port.h"
#include "process_world.h"
#include "ring/fair_mutex.h"
#include "ring/shared_keys.h"

using namespace dlaunch;

namespace {

// "none" where it is not there in time, "failed" for another failure.
std::string value_of(dl_comm* comm, const char* key, double timeout_s) {
  char text[32];
  std::size_t bytes = 0;
  const auto result = dl_key_get(comm, key, timeout_s, text, sizeof text, &bytes);
  if (result == DL_ERR_TIMEOUT) return "none";
  return result == DL_OK ? std::string(text, bytes) : "failed";
}

int set(dl_comm* comm, const char* key, const std::string& value) {
  return dl_key_set(comm, key, value.data(), value.size());
}

}  // namespace

TEST_CASE("keys: all ranks get a key that one has set, and sums are of all ranks") {
  all_well({3}, [](int rank, dl_comm*& comm) {
    std::int64_t sum = 0;
    for (int i = 0; i < 10; ++i) EXPECT(dl_key_add(comm, "count", rank + 1, &sum) == DL_OK);
    EXPECT(dl_barrier(comm) == DL_OK);
    EXPECT(value_of(comm, "count", 0) == "60");
    if (rank == 2) EXPECT(set(comm, "late", std::string("a\0b", 3)) == DL_OK);
    EXPECT(value_of(comm, "late", 20) == std::string("a\0b", 3));
    EXPECT(value_of(comm, "late ", 0) == "none");
    EXPECT(std::strstr(dl_last_error(comm), "key 'late ' does not exist") != nullptr);
    EXPECT(dl_key_add(comm, "late", 1, &sum) == DL_ERR_INVALID);
    // The call returns the size of a value that does not fit, and a larger buffer gets it.
    const std::string large(1 << 20, 'x');
    if (rank == 0) EXPECT(set(comm, "large", large) == DL_OK);
    std::size_t bytes = 0;
    char few[4] = {};
    EXPECT(dl_key_get(comm, "large", -1, few, 3, &bytes) == DL_OK);
    EXPECT((bytes == large.size() && few[2] == 'x' && few[3] == 0));
    EXPECT(dl_key_get(comm, "large", -1, nullptr, 0, &bytes) == DL_OK);
    EXPECT(dl_barrier(comm) == DL_OK);
    return 0;
  });
}

TEST_CASE("keys: wrong arguments and forked processes get an error, and keys still work") {
  all_well({2}, [](int rank, dl_comm*& comm) {
    std::size_t bytes = 0;
    EXPECT(dl_key_set(comm, nullptr, "x", 1) == DL_ERR_INVALID);
    EXPECT(dl_key_set(comm, "", "x", 1) == DL_ERR_INVALID);
    EXPECT(dl_key_set(comm, "k", nullptr, 1) == DL_ERR_INVALID);
    EXPECT(dl_key_set(nullptr, "k", "x", 1) == DL_ERR_INVALID);
    EXPECT(set(comm, std::string(501, 'k').c_str(), "x") == DL_ERR_INVALID);
    EXPECT(set(comm, "k", std::string((1 << 20) + 1, 'x')) == DL_ERR_INVALID);
    EXPECT(dl_key_get(comm, "k", 0, nullptr, 1, &bytes) == DL_ERR_INVALID);
    EXPECT(dl_key_get(comm, "k", 0, nullptr, 0, nullptr) == DL_ERR_INVALID);
    EXPECT(dl_key_add(comm, "k", 1, nullptr) == DL_ERR_INVALID);
    EXPECT(set(comm, std::string(500, 'k').c_str(), "") == DL_OK);
    EXPECT(end_of(start([&] { return set(comm, "k", "x") == DL_ERR_INVALID ? 0 : 1; })) == 0);
    EXPECT(value_of(comm, "k", 0) == "none");
    EXPECT(dl_barrier(comm) == DL_OK);
    return 0;
  });
}

TEST_CASE("keys: a group has keys of its own, and other threads continue while one waits") {
  all_well({2}, [](int rank, dl_comm*& comm) {
    dl_comm* group = nullptr;
    EXPECT(dl_split(comm, 0, 0, &group) == DL_OK);
    if (rank == 0) EXPECT(set(group, "k", "of the group") == DL_OK);
    EXPECT(value_of(group, "k", -1) == "of the group");
    EXPECT(value_of(comm, "k", 0) == "none");
    // In the store the name of the group is that of comm and "/1.0".
    EXPECT(set(comm, "1.0/other", "of all") == DL_OK);
    EXPECT(value_of(group, "other", 0) == "none");
    EXPECT(dl_barrier(comm) == DL_OK);
    std::string got;
    std::thread waits([&] { got = value_of(comm, "k", -1); });
    if (rank == 0) EXPECT(set(comm, "k", "of all") == DL_OK);
    waits.join();
    EXPECT(got == "of all");
    EXPECT(dl_barrier(comm) == DL_OK);
    dl_finalize(group);
    return 0;
  });
}

TEST_CASE("keys: a wait for a key of a lost rank ends with an error") {
  const auto codes = run({2}, [](int rank, dl_comm*& comm) {
    if (rank == 1) ::_exit(9);
    std::size_t bytes = 0;
    EXPECT(dl_key_get(comm, "never", -1, nullptr, 0, &bytes) == DL_ERR_PEER_LOST);
    EXPECT(dl_peer_lost(comm) == 1);
    EXPECT(set(comm, "k", "x") == DL_ERR_PEER_LOST);
    return 0;
  });
  CHECK(codes == std::vector<int>{0, 9});
}

TEST_CASE("keys: a world of one rank has keys, too") {
  const TempFolder folder;
  const pid_t one =
      start_rank("file://" + folder.path.string(), {1}, 0, [](int rank, dl_comm*& comm) {
        EXPECT(set(comm, "k", "v") == DL_OK);
        EXPECT(value_of(comm, "k", 0) == "v");
        return 0;
      });
  CHECK(end_of(one) == 0);
  const HeldPort port;
  const pid_t host =
      start_rank("tcp://127.0.0.1:" + port.number, {1}, 0, [](int rank, dl_comm*& comm) {
        dl_comm* group = nullptr;
        EXPECT(dl_split(comm, 0, 0, &group) == DL_OK);
        EXPECT(set(group, "k", "of the group") == DL_OK);
        EXPECT(set(comm, "k", "v") == DL_OK);
        EXPECT(value_of(comm, "k", 0) == "v");
        EXPECT(value_of(group, "k", 0) == "of the group");
        dl_finalize(group);
        return 0;
      });
  CHECK(end_of(host) == 0);
  const pid_t alone = start([] {
    const int rank = 0;
    dl_comm* comm = nullptr;
    for (const char* name : {"RANK", "WORLD_SIZE", "DLAUNCH_RDZV"}) ::unsetenv(name);
    EXPECT(dl_init(nullptr, nullptr, &comm) == DL_OK);
    std::int64_t sum = 0;
    EXPECT(set(comm, "k", "v") == DL_OK);
    EXPECT(value_of(comm, "k", 0) == "v");
    EXPECT(value_of(comm, "other", 0.05) == "none");
    EXPECT(dl_key_add(comm, "n", 5, &sum) == DL_OK);
    EXPECT(dl_key_add(comm, "n", -7, &sum) == DL_OK);
    EXPECT((sum == -2 && value_of(comm, "n", 0) == "-2"));
    EXPECT(dl_key_add(comm, "k", 1, &sum) == DL_ERR_INVALID);
    dl_finalize(comm);
    return 0;
  });
  CHECK(end_of(alone) == 0);
}

TEST_CASE("keys: a thread that takes the lock again and again leaves turns to others") {
  constexpr int kTurns = 30, kMost = 10 * kTurns;
  FairMutex mutex;
  std::atomic<int> turns = 0;
  std::atomic<bool> wanted = false;  // by the other thread
  std::thread other([&] {
    while (turns < kTurns) {
      wanted = true;
      const std::lock_guard lock(mutex);
      wanted = false;
      ++turns;
    }
  });
  // On a busy machine the other thread begins late, or stands still for seconds. Only turns in
  // which it wants the lock count.
  for (int i = 0; turns < kTurns && i < kMost;) {
    if (wanted) ++i;
    const std::lock_guard lock(mutex);
    ::usleep(1000);
  }
  const int meanwhile = turns;
  other.join();
  CHECK(meanwhile == kTurns);
}

TEST_CASE("keys: a store that cannot be reached does not mean that a key is missing") {
  const HeldPort port;
  JobView job;
  job.size = 2;
  job.store_url = "tcp://127.0.0.1:" + port.number;
  AbortFlag abort;
  SharedKeys keys(job, abort, std::chrono::milliseconds(50));
  const auto got = keys.get("k", Duration::zero());
  REQUIRE(!got);
  CHECK(got.error().code == Errc::io);
  CHECK(got.error().what.find("not reached") != std::string::npos);
}

TEST_CASE("keys: in C++ as strings, of any length") {
  all_well({2}, [](int rank, dl_comm*& comm) {
    auto world = dl::Communicator::adopt(std::exchange(comm, nullptr));
    const std::string large(5000, 'x');
    if (rank == 1) world.key_set("large", large);
    EXPECT(world.key_get("large") == large);
    EXPECT(world.key_add("n", 2) >= 2);
    bool late = false;
    try {
      (void)world.key_get("never", 0.01);
    } catch (const dl::Timeout&) {
      late = true;
    }
    EXPECT(late);
    world.barrier();
    EXPECT(world.key_get("n", 0) == "4");
    return 0;
  });
}
