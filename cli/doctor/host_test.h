// The test of a host before it gets workers of a running job (launcher/node/watch/health_check.h):
// a small job on this host alone, whose workers, which are this program too, test its memory and
// CPUs, look for room and, if the job asked for them, GPUs, and run a collective with each other.
// It finds only errors, not slowness. It takes about a second at most; its last line says what was
// wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/doctor/gpu_facts.h"

namespace dlaunch {

inline constexpr const char* kHostTestWorkerWord = "host-test-worker";

// The command line words of the test's job, with two to eight workers.
std::vector<std::string> host_test_words(const std::string& nproc, const std::string& gpus);

// Runs one of its workers and returns the exit code: 0: no error.
int run_host_test_worker(const std::string& gpus);

// -- Its parts; "": nothing is wrong

// Fills each word with a value that depends on its place; `turn` 1 is `turn` 0 inverted.
void fill_pattern(std::span<std::uint64_t> words, int turn);
// The first word without that value.
std::optional<std::size_t> first_wrong(std::span<const std::uint64_t> words, int turn);
std::string test_memory(std::size_t bytes);

// Integers and floating point, in steps whose results are exact.
constexpr std::uint64_t compute(std::uint64_t seed, int steps) {
  std::uint64_t mixed = seed;
  double lehmer = static_cast<double>(seed % 2147483646 + 1);
  for (int i = 0; i < steps; ++i) {
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed ^= mixed >> 27;
    lehmer *= 48271;  // below 2^47
    lehmer -= 2147483647.0 * static_cast<double>(static_cast<std::int64_t>(lehmer / 2147483647.0));
    mixed += static_cast<std::uint64_t>(lehmer);
  }
  return mixed;
}
// Tests those of our CPUs, each `of`th from `first` on, one after the other.
std::string test_cpus(int first, int of);

// Whether a file of 1 MiB has room there; a missing folder is no error.
std::string test_room(const std::string& folder);
// `root`: as in read_gpu_files ("" is the machine's own).
std::string test_gpus(int asked, const std::string& root = "");
// The bad findings among the GPU facts, with their fixes.
std::string worst_of(AllGpuFacts facts);

}  // namespace dlaunch
