// Runs federations of sites by seed, and reports those that break a rule.
//
// usage: sim_sites [--seeds A:B | --seed N] [--trace] [--all] [--bug NAME]
//   --seeds A:B  from A to B - 1; default: 0:2000
//   --trace      shows the events
//   --all        goes on after the first broken rule
//   --bug NAME   plants a bug; the test passes when a seed finds it
#include <signal.h>

#include <cstdio>
#include <map>
#include <string>

#include <fmt/format.h>

#include "tests/sim/seeds.h"
#include "tests/sim/sites/world.h"

namespace dlaunch::sim {
namespace {

struct SiteOptions : Seeds {
  SiteOptions() { last = 2000; }
  SiteBug bug = SiteBug::none;
};

extern "C" void on_abort(int) { tell_seed(); }

bool read_options(int argc, char** argv, SiteOptions& options) {
  for (int i = 1; i < argc; ++i) {
    if (take_option(argc, argv, i, options)) continue;
    if (!take_bug(argc, argv, i, kSiteBugs, options.bug)) return false;
  }
  return options.first < options.last;
}

SiteOutcome outcome_of(std::uint64_t seed, const SiteOptions& options) {
  g_seed = seed;
  auto outcome = Federation(seed, options.bug, options.trace).run();
  // The same seed twice must be the same run.
  if (seed % 64 == 0 && Federation(seed, options.bug, false).run().hash != outcome.hash) {
    outcome.wrong = "the same seed gives two different runs";
  }
  return outcome;
}

int run_seeds(const SiteOptions& options) {
  std::map<std::string, long> wrongs;
  SiteOutcome sum;
  for (std::uint64_t seed = options.first; seed < options.last; ++seed) {
    const SiteOutcome outcome = outcome_of(seed, options);
    sum.merges += outcome.merges;
    sum.foundings += outcome.foundings;
    sum.kills += outcome.kills;
    sum.messages += outcome.messages;
    if (outcome.wrong.empty()) continue;
    if (options.bug != SiteBug::none && !options.all) {
      fmt::print("seed {} finds it: {}\n", seed, outcome.wrong);
      return 0;
    }
    if (++wrongs[outcome.wrong] == 1) {
      fmt::print("seed {}: {}\nreplay it with --seed {} --trace\n", seed, outcome.wrong, seed);
    }
    if (!options.all) return 1;
  }
  for (const auto& [wrong, count] : wrongs) fmt::print("{} seeds: {}\n", count, wrong);
  if (!wrongs.empty()) return 1;
  if (options.bug != SiteBug::none) {
    fmt::print("no seed finds the bug '{}'\n", to_string(options.bug));
    return 1;
  }
  fmt::print("{} seeds break no rule: {} merges, {} foundings, {} sites killed, {} messages\n",
             options.last - options.first, sum.merges, sum.foundings, sum.kills, sum.messages);
  return 0;
}

}  // namespace
}  // namespace dlaunch::sim

int main(int argc, char** argv) {
  dlaunch::sim::SiteOptions options;
  if (!dlaunch::sim::read_options(argc, argv, options)) {
    std::fputs("usage: sim_sites [--seeds A:B | --seed N] [--trace] [--all] [--bug NAME]\n",
               stderr);
    return 64;
  }
  ::signal(SIGABRT, dlaunch::sim::on_abort);
  return dlaunch::sim::run_seeds(options);
}
