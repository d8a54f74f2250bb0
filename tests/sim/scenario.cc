#include "tests/sim/scenario.h"

#include <signal.h>

#include <algorithm>

#include <fmt/format.h>

#include "tests/sim/random.h"

namespace dlaunch::sim {
namespace {

using namespace std::chrono_literals;

constexpr const char* kHarms[] = {"kill",        "kill several", "fail",   "blame",    "end well",
                                  "stop",        "replace",      "resize", "drain",    "signal",
                                  "clock jump",  "node",         "cut",    "replay",   "leader",
                                  "spawn fails", "never runs",   "mute",   "shielded", "frozen"};
constexpr const char* kMomentNames[] = {"time",    "spawned", "asked",       "told",   "entered",
                                        "met",     "synced",  "contributed", "result", "committed",
                                        "barrier", "leaving", "finished"};
static_assert(std::size(kMomentNames) == kMoments);
constexpr int kHarmKinds = static_cast<int>(std::size(kHarms));

JobConfig job_of(Random& random) {
  JobConfig job;
  job.size = random.chance(10) ? random.between(5, 8) : random.between(1, 4);
  job.min_size = random.chance(50) ? job.size : random.between(1, job.size);
  job.max_size = random.chance(60) ? job.size : job.size + random.between(0, 3);
  job.spares = random.chance(60) ? 0 : random.between(1, 2);
  constexpr RestartScope kScopes[] = {RestartScope::worker, RestartScope::node, RestartScope::job};
  if (random.chance(35)) job.scope = random.one_of(kScopes);
  if (random.chance(10)) job.timeout = 1s + random.up_to(60s);
  if (random.chance(35)) {
    const int nodes = random.between(2, 3);
    const bool in_turn = random.chance(50);
    const int slots = JobCore::slots(job), each = (slots + nodes - 1) / nodes;
    for (Slot slot = 0; slot < slots; ++slot) {
      job.nodes.push_back(in_turn ? slot % nodes : slot / each);
    }
    if (in_turn) job.racks = {"s0.s1", "s0.s2", "s0.s1"};
  }
  job.join_timeout = 1s + random.up_to(random.chance(50) ? 5s : 60s);
  job.node_ends = job.join_timeout * 5 / 4;
  return job;
}

Pace pace_of(Random& random) {
  constexpr Duration kScales[] = {100us, 5ms, 300ms, 4s};
  return {random.one_of(kScales), random.one_of(kScales), random.one_of(kScales),
          random.one_of(kScales)};
}

Harm harm_of(Random& random) {
  constexpr Harm kOften[] = {Harm::kill, Harm::kill, Harm::kill_several, Harm::fail, Harm::blame};
  return random.chance(50) ? random.one_of(kOften) : static_cast<Harm>(random.below(kHarmKinds));
}

bool is_of_start(Harm harm) { return harm >= Harm::spawn_fails; }

Fault fault_of(Random& random, const JobConfig& job) {
  constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR1, SIGUSR2, SIGUSR2};
  Fault fault;
  fault.harm = harm_of(random);
  if (!job.nodes.empty() && random.chance(40)) {
    fault.harm = random.chance(50) ? Harm::node : Harm::cut;
    if (random.chance(30)) fault.harm = Harm::drain;
  }
  fault.lasts = random.up_to(random.chance(50) ? Duration(100ms) : Duration(20s));
  fault.number = random.between(1, job.max_size + 1);
  if (fault.harm == Harm::signal) fault.number = random.one_of(kSignals);
  if (fault.harm == Harm::node || fault.harm == Harm::cut) {
    // If all nodes are needed it should come back.
    fault.lasts = random.up_to(random.chance(70) ? job.join_timeout : 2 * job.join_timeout);
  }
  if (fault.harm == Harm::frozen) fault.lasts *= 6;  // beyond what a job waits
  if (fault.harm == Harm::jump) fault.lasts = random.up_to(random.chance(50) ? 5s : 1h);
  fault.moment =
      is_of_start(fault.harm) ? Moment::spawned : static_cast<Moment>(random.below(kMoments));
  fault.at = random.chance(50) ? Duration(0) : random.up_to(random.chance(50) ? 2ms : 500ms);
  if (fault.moment == Moment::time) fault.at = random.up_to(random.chance(50) ? 1s : 20s);
  const bool late = fault.moment == Moment::spawned || random.chance(50);
  fault.nth = random.below((late ? 2 : 4) * job.size + job.spares);
  return fault;
}

}  // namespace

Scenario scenario_of(std::uint64_t seed) {
  Random random(seed * 2 + 1);
  Scenario all;
  all.job = job_of(random);
  all.max_restarts = random.below(7);
  if (random.chance(80)) all.grace = random.up_to(5s);
  all.program = random.chance(75)   ? Program::linked
                : random.chance(50) ? Program::plain
                                    : Program::mixed;
  all.steps = random.between(1, 6);
  all.pace = pace_of(random);
  if (random.chance(15)) all.gives_up = random.chance(50) ? 100 : 30;
  const int faults = random.chance(8) ? 0 : random.between(1, random.chance(30) ? 8 : 3);
  for (int i = 0; i < faults; ++i) all.faults.push_back(fault_of(random, all.job));
  if (faults == 0) {
    all.job.timeout = {};
    all.job.join_timeout += 2 * (all.pace.boot + all.pace.wire);
  }
  all.job.restarts.limit.restarts = all.max_restarts;
  all.job.restarts.same_failures = random.chance(50) ? 0 : 2;
  all.job.restarts.seed = seed;
  all.first_leader_is_lost = faults > 0 && random.chance(3);
  all.wrote_down = random.chance(50);
  return all;
}

std::string to_string(Harm harm) { return kHarms[static_cast<int>(harm)]; }

std::string to_string(const Scenario& scenario) {
  constexpr const char* kScopes[] = {"automatic", "worker", "node", "job"};
  constexpr const char* kPrograms[] = {"linked", "plain", "mixed"};
  const auto ms = [](Duration d) { return std::chrono::duration<double, std::milli>(d).count(); };
  const JobConfig& job = scenario.job;
  std::string text = fmt::format(
      "{} workers ({} to {}), {} spares, {} restarts, scope {}, program {}, {} steps, grace {} ms, "
      "join {} ms, timeout {} ms\n",
      job.size, job.min_size, job.max_size, job.spares, scenario.max_restarts,
      kScopes[static_cast<int>(job.scope)], kPrograms[static_cast<int>(scenario.program)],
      scenario.steps, ms(scenario.grace), ms(job.join_timeout), ms(job.timeout));
  if (scenario.first_leader_is_lost) text += "the first leader is lost at its first decision\n";
  for (const Fault& fault : scenario.faults) {
    text += fmt::format("fault: {} at {} + {} ms, nth {}, number {}, for {} ms\n",
                        to_string(fault.harm), kMomentNames[static_cast<int>(fault.moment)],
                        ms(fault.at), fault.nth, fault.number, ms(fault.lasts));
  }
  return text;
}

}  // namespace dlaunch::sim
