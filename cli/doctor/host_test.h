// What a host is asked before it gets workers of a job that has begun
// (launcher/monitor/health_check.h): a small job on this host alone, whose workers, which are this
// program too, test its memory and CPUs, look for room and, where the job asked for them, GPUs, and
// do a collective with each other. Only what is wrong is found, not what is slow. About a second at
// most; the last line that it prints says what was wrong.
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

// The words of the command line that runs the job, of at least two workers and at most eight.
std::vector<std::string> host_test_words(const std::string& nproc, const std::string& gpus);

// One of its workers, to its exit code: 0 if nothing is wrong.
int run_host_test_worker(const std::string& gpus);

// -- Its parts; "": nothing is wrong

// Each word gets a value that depends on its place; `turn` 1 is `turn` 0 inverted.
void fill_pattern(std::span<std::uint64_t> words, int turn);
// The first word that does not have it.
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
// Those of our CPUs, each `of`th from `first` on, one after the other.
std::string test_cpus(int first, int of);

// A file of 1 MiB has room there; a folder that does not exist is no loss.
std::string test_room(const std::string& folder);
// `root` ("" is the machine's own) as read_gpu_files has it.
std::string test_gpus(int asked, const std::string& root = "");
// What is bad of what is known of them, and its fix.
std::string worst_of(AllGpuFacts facts);

}  // namespace dlaunch
