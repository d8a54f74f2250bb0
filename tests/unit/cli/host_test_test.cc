#include "cli/doctor/host_test.h"

#include <sched.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/temp_folder.h"

using namespace dlaunch;

TEST_CASE("a bit of memory that flips is found, in either turn") {
  std::vector<std::uint64_t> words(1000);
  for (const int turn : {0, 1}) {
    fill_pattern(words, turn);
    CHECK_FALSE(first_wrong(words, turn));
    CHECK(first_wrong(words, 1 - turn) == 0);
    words[777] ^= 1ULL << 41;
    CHECK(first_wrong(words, turn) == 777);
    words[777] ^= 1ULL << 41;
    std::swap(words[3], words[4]);  // as a bad address line does
    CHECK(first_wrong(words, turn) == 3);
  }
  CHECK(test_memory(1 << 20).empty());
  CHECK(test_memory(0).empty());
}

TEST_CASE("every step of the computation matters, and this machine's CPUs are right") {
  constexpr auto kOnce = compute(1, 1000);
  CHECK(compute(1, 1000) == kOnce);
  CHECK(compute(2, 1000) != kOnce);
  CHECK(compute(1, 999) != kOnce);
  cpu_set_t before, after;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  CHECK(test_cpus(0, 1).empty());
  REQUIRE(::sched_getaffinity(0, sizeof after, &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));
}

TEST_CASE("room for files: a failing write is a fault") {
  const TempFolder folder;
  CHECK(test_room(folder.path).empty());
  CHECK(std::filesystem::is_empty(folder.path));
  CHECK(test_room("/no/such/folder").empty());
  CHECK(test_room("/proc").find("make a file in /proc: ") == 0);
}

TEST_CASE("fewer GPUs than before") {
  const TempFolder root;
  CHECK(test_gpus(0, root.path).empty());
  CHECK(test_gpus(2, root.path) == "0 of 2 GPUs are here");
}

TEST_CASE("the messages of a host's test") {
  const auto workers = [](const char* nproc) { return host_test_words(nproc, "0")[1]; };
  CHECK(workers("1") == "2");
  CHECK(workers("5") == "5");
  CHECK(workers("200") == "8");
  CHECK(host_test_words("1", "3").back() == "3");
}
