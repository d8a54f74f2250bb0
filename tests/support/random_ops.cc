// The ranks do the same random operations and compare each result with the right one. Run it under
// dlaunch, or with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
// usage: random_ops [--seed N] [--seconds S] [--ops N] [--max-bytes N] [--groups PERMILLE]
//                   [--skip N] [--trace] [--any-order] [--announce]
// --skip leaves out the steps before step N, except those that make groups; --trace prints each
// step; --announce prints "joined" once all have met; --any-order reduces only floats that are
// exact in every order, for ranks of several hosts.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "random_run.h"

namespace {

using namespace random_ops;

constexpr std::uint64_t kMostTold = 5;

struct Options {
  Shape shape;
  Limits limits;
  bool announce = false;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--announce") {
      options.announce = true;
      continue;
    }
    if (word == "--trace" || word == "--any-order") {
      (word == "--trace" ? options.limits.trace : options.shape.any_order) = true;
      continue;
    }
    if (++i == argc) return false;
    const double value = std::strtod(argv[i], nullptr);
    const std::uint64_t whole = std::strtoull(argv[i], nullptr, 10);
    if (word == "--seed") {
      options.shape.seed = whole;
    } else if (word == "--seconds") {
      options.limits.seconds = value;
    } else if (word == "--ops") {
      options.limits.steps = whole;
    } else if (word == "--max-bytes") {
      options.shape.max_bytes = whole;
    } else if (word == "--groups") {
      options.shape.groups_permille = static_cast<int>(whole);
    } else if (word == "--skip") {
      options.limits.skip = whole;
    } else {
      return false;
    }
  }
  return options.limits.steps != UINT64_MAX || options.limits.seconds < 1e9;
}

std::string replay(const Options& options, int ranks, const char* transport) {
  return "DLAUNCH_TRANSPORT=" + std::string(transport) + " dlaunch --nproc " +
         std::to_string(ranks) + " random_ops --seed " + std::to_string(options.shape.seed) +
         " --max-bytes " + std::to_string(options.shape.max_bytes) + " --groups " +
         std::to_string(options.shape.groups_permille) +
         (options.shape.any_order ? " --any-order" : "");
}

int fail(const char* what, const dl_comm* comm) {
  std::fprintf(stderr, "FAILED on rank %d in %s: %s\n", dl_rank(comm), what, dl_last_error(comm));
  return 1;
}

int be_rank(dl_comm* world, Options options) {
  options.shape.ranks = dl_size(world);
  const std::string how = replay(options, options.shape.ranks, dl_transport(world));
  void* shared = nullptr;
  if (dl_alloc(world, kSharedBytes, &shared) != DL_OK) return fail("dl_alloc", world);
  std::uint64_t told = 0;
  Run run(
      world, options.shape, options.limits,
      [&](const std::string& what) {
        if (++told > kMostTold) return;
        std::fprintf(stderr, "WRONG on rank %d: %s\nreplay: %s --ops %llu\n", dl_rank(world),
                     what.c_str(), how.c_str(), static_cast<unsigned long long>(run.steps));
      },
      shared, kSharedBytes);
  const Outcome outcome = run.run();
  if (outcome.result != DL_OK) {
    std::fprintf(stderr, "FAILED on rank %d, step %llu, group %d: %s: %s\nreplay: %s --ops %llu\n",
                 dl_rank(world), static_cast<unsigned long long>(run.steps - 1), outcome.group,
                 dl_result_name(outcome.result), outcome.text.c_str(), how.c_str(),
                 static_cast<unsigned long long>(run.steps));
    return 1;
  }
  std::uint64_t sums[] = {run.operations, run.wrong};
  if (dl_all_reduce(world, sums, sums, 2, DL_UINT64, DL_SUM) != DL_OK)
    return fail("the last all_reduce", world);
  if (dl_rank(world) == 0) {
    std::printf("%s, %d ranks, seed %llu: %llu steps, %llu operations, %llu wrong results\n",
                dl_transport(world), dl_size(world),
                static_cast<unsigned long long>(options.shape.seed),
                static_cast<unsigned long long>(run.steps),
                static_cast<unsigned long long>(sums[0]), static_cast<unsigned long long>(sums[1]));
  }
  return sums[1] == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return 64;
  dl_comm* world = nullptr;
  if (dl_init(nullptr, nullptr, &world) != DL_OK) {
    std::fprintf(stderr, "dl_init: %s\n", dl_last_error(nullptr));
    return 1;
  }
  if (options.announce) {
    std::puts("joined");
    std::fflush(stdout);
  }
  const int code = be_rank(world, options);
  dl_finalize(world);
  return code;
}
