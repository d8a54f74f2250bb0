// Runs seeds, and reports those that break a rule.
//
// usage: sim [--seeds A:B | --seed N] [--trace] [--all] [--bug NAME] [--rows]
//   --seeds A:B  from A to B - 1; default: 0:10000
//   --trace      shows the events, also if no rule is broken
//   --all        goes on after the first broken rule; shows no transcripts
//   --bug NAME   plants a bug; the test passes when a seed finds it
//   --rows       names the rows of kJobMoves that no seed reaches: of 100,000 seeds, none but the
//                signal before the start, which unit tests have

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>

#include "tests/sim/seeds.h"
#include "tests/sim/words.h"
#include "tests/sim/world.h"

namespace dlaunch::sim {
namespace {

using Counts = std::map<std::string, long>;
using Moves = std::set<JobMove>;

struct Options : Seeds {
  Options() { last = 10'000; }
  bool rows = false;
  Bug bug = Bug::none;
};

const World* g_world = nullptr;

extern "C" void on_abort(int) {
  // The process is lost anyway, so the handler may do forbidden things.
  if (g_world != nullptr) {
    for (const auto& line : g_world->transcript())
      (void)!::write(1, (line + "\n").data(), line.size() + 1);
  }
  tell_seed();
}

void show(const World& world, const Scenario& scenario) {
  std::fputs(to_string(scenario).c_str(), stdout);
  for (const auto& line : world.transcript()) std::puts(line.c_str());
}

// The same seed twice must be the same run.
bool repeats(const Scenario& scenario, std::uint64_t seed, Bug bug, const Outcome& outcome) {
  return World(scenario, seed, bug, false).run().hash == outcome.hash;
}

bool run_seed(std::uint64_t seed, const Options& options, Counts& ends, Counts& wrongs,
              Moves& moves) {
  g_seed = seed;
  const Scenario scenario = scenario_of(seed);
  World world(scenario, seed, options.bug, options.trace);
  g_world = &world;
  Outcome outcome = world.run();
  g_world = nullptr;
  moves.merge(outcome.moves);
  if (seed % 64 == 0 && !repeats(scenario, seed, options.bug, outcome)) {
    outcome.wrong = "the same seed gives two different runs";
  }
  if (options.trace) show(world, scenario);
  if (outcome.wrong.empty()) {
    ++ends[words(outcome.end)];
    ends["rounds"] += outcome.rounds;
    ends["restarts"] += outcome.restarts;
    ends["happenings"] += outcome.happenings;
    return true;
  }
  if (options.bug != Bug::none) {
    fmt::print("seed {} finds it: {}\n", seed, outcome.wrong);
    return false;
  }
  if (options.all) {
    if (++wrongs[outcome.wrong] == 1) fmt::print("seed {}: {}\n", seed, outcome.wrong);
    return false;
  }
  if (!options.trace) {
    World again(scenario, seed, options.bug, true);
    (void)again.run();
    show(again, scenario);
  }
  fmt::print("seed {}: {}\nreplay it with --seed {} --trace\n", seed, outcome.wrong, seed);
  return false;
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    if (take_option(argc, argv, i, options) || take_bug(argc, argv, i, kBugs, options.bug))
      continue;
    if (std::strcmp(argv[i], "--rows") != 0) return false;
    options.rows = true;
  }
  return options.first < options.last;
}

void name_missing_rows(const Moves& moves) {
  for (const auto& row : kJobMoves) {
    if (moves.contains(row)) continue;
    fmt::print("no seed reaches row {} of kJobMoves (state {}, event {}, to {})\n",
               &row - kJobMoves.data() + 1, static_cast<int>(row.from), static_cast<int>(row.on),
               static_cast<int>(row.to));
  }
}

int run(const Options& options) {
  Counts ends, wrongs;
  Moves moves;
  for (std::uint64_t seed = options.first; seed < options.last; ++seed) {
    if (run_seed(seed, options, ends, wrongs, moves) || options.all) continue;
    return options.bug == Bug::none ? 1 : 0;
  }
  for (const auto& [wrong, count] : wrongs) fmt::print("{} seeds: {}\n", count, wrong);
  if (!wrongs.empty()) return 1;
  if (options.bug != Bug::none) {
    fmt::print("no seed finds the bug '{}'\n", to_string(options.bug));
    return 1;
  }
  fmt::print("{} seeds break no rule:", options.last - options.first);
  for (const auto& [end, count] : ends) fmt::print(" {} {};", count, end);
  fmt::print("\n");
  if (options.rows) name_missing_rows(moves);
  return 0;
}

}  // namespace
}  // namespace dlaunch::sim

int main(int argc, char** argv) {
  dlaunch::sim::Options options;
  if (!dlaunch::sim::parse(argc, argv, options)) {
    std::fputs("usage: sim [--seeds A:B | --seed N] [--trace] [--all] [--bug NAME] [--rows]\n",
               stderr);
    return 64;
  }
  ::signal(SIGABRT, dlaunch::sim::on_abort);
  return dlaunch::sim::run(options);
}
