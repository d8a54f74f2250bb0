// Runs federations of sites by seed, and reports those that break a rule.
//
// usage: sim_sites [--seeds A:B | --seed N] [--trace] [--all] [--bug NAME]
//   --seeds A:B  from A to B - 1; default: 0:2000
//   --trace      shows the events
//   --all        goes on after the first broken rule
//   --bug NAME   plants a bug; the test passes when a seed finds it
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "tests/sim/sites/world.h"

namespace dlaunch::sim {
namespace {

struct SiteOptions {
  std::uint64_t first = 0, last = 2000;
  bool trace = false, all = false;
  SiteBug bug = SiteBug::none;
};

std::optional<SiteBug> site_bug(const std::string& name) {
  for (int i = 0; i < kSiteBugs; ++i) {
    if (name == to_string(static_cast<SiteBug>(i))) return static_cast<SiteBug>(i);
  }
  return std::nullopt;
}

bool read_options(int argc, char** argv, SiteOptions& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (word == "--all") {
      options.all = true;
    } else if (word == "--trace") {
      options.trace = true;
    } else if (word == "--seed" && value != nullptr) {
      options.first = std::strtoull(argv[++i], nullptr, 10);
      options.last = options.first + 1;
    } else if (word == "--seeds" && value != nullptr && std::strchr(value, ':') != nullptr) {
      options.first = std::strtoull(argv[++i], nullptr, 10);
      options.last = std::strtoull(std::strchr(value, ':') + 1, nullptr, 10);
    } else if (word == "--bug" && value != nullptr && site_bug(value)) {
      options.bug = *site_bug(argv[++i]);
    } else {
      return false;
    }
  }
  return options.first < options.last;
}

SiteOutcome outcome_of(std::uint64_t seed, const SiteOptions& options) {
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
  return dlaunch::sim::run_seeds(options);
}
