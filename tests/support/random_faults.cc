// Hurts one of the ranks of a random program, over and over: kills it, makes it call dl_abort(),
// stops it for good, or for up to a second. Each other rank must get an error, in time, that names
// the lost rank, and no error about a rank that was only slow; no result may be wrong meanwhile.
// usage: random_faults [--trials N] [--seed N] [--fault kill|abort|stop|pause] [--ranks N]
//                      [--transport shm|tcp] [--groups PERMILLE] [--tell]
// The ranks meet in the current folder. Omitted options vary from trial to trial. --tell shows each
// rank's error.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "fault_trial.h"
#include "program_options.h"
#include "random_values.h"

namespace {

using namespace random_ops;

constexpr double kPausedProgram = 0.25;  // its length, without the pause
constexpr int kFaults = 4;               // the first of them need no failpoints

// The faults to draw: only a time limit reveals a stop to the others, so it takes long.
constexpr Fault kDrawn[] = {Fault::kill,  Fault::kill,  Fault::abort, Fault::pause,
                            Fault::abort, Fault::pause, Fault::stop};

// The time of the fault after all have joined, and the length of a pause.
struct Moment {
  double delay = 0, pause = 0;
};

void strike(const Trial& trial, const Moment& moment, const std::vector<pid_t>& pids,
            Shared& shared) {
  const pid_t victim = pids[static_cast<std::size_t>(trial.victim)];
  const double joined_by = monotonic_seconds() + trial.init_timeout;
  while (shared.inside < trial.ranks && monotonic_seconds() < joined_by) ::usleep(200);
  ::usleep(static_cast<useconds_t>(moment.delay * 1e6));
  shared.struck = monotonic_seconds();
  switch (trial.fault) {
    case Fault::abort:
      shared.abort_now = true;
      break;
    case Fault::stop:
      ::kill(victim, SIGSTOP);
      break;
    case Fault::pause:
      ::kill(victim, SIGSTOP);
      ::usleep(static_cast<useconds_t>(moment.pause * 1e6));
      ::kill(victim, SIGCONT);
      break;
    default:
      ::kill(victim, SIGKILL);
  }
}

struct Options {
  int trials = 10, ranks = 0, fault = -1, groups = -1;
  std::uint64_t seed = 1;
  std::string transport;
  bool tell = false;
};

bool parse(int argc, char** argv, Options& options) {
  std::string fault;
  if (!read_options(argc, argv,
                    {{"--tell", &options.tell},
                     {"--trials", &options.trials},
                     {"--ranks", &options.ranks},
                     {"--groups", &options.groups},
                     {"--seed", &options.seed},
                     {"--transport", &options.transport},
                     {"--fault", &fault}})) {
    return false;
  }
  if (!fault.empty()) {
    const auto at = std::find(kFaultNames, kFaultNames + kFaults, fault);
    options.fault = static_cast<int>(at - kFaultNames);
    if (options.fault == kFaults) return false;
  }
  return options.ranks <= kMaxRanks;
}

Trial make_trial(const Options& options, std::uint64_t seed, Moment& moment) {
  Random random(mix(seed));
  Trial trial;
  trial.seed = seed;
  trial.fault = kDrawn[random.below(std::size(kDrawn))];
  trial.ranks = 2 + random.under(3);
  trial.transport = random.chance(500) ? "shm" : "tcp";
  trial.groups_permille = random.chance(300) ? 0 : random.chance(500) ? 10 : 100;
  if (options.fault >= 0) trial.fault = static_cast<Fault>(options.fault);
  if (options.ranks > 0) trial.ranks = options.ranks;
  if (options.groups >= 0) trial.groups_permille = options.groups;
  if (!options.transport.empty()) trial.transport = options.transport == "shm" ? "shm" : "tcp";
  moment.delay = 1e-6 * random.under(150'000);
  moment.pause = 1e-6 * random.under(1'000'000);
  trial.victim = random.under(trial.ranks);
  if (trial.fault == Fault::pause) trial.seconds = kPausedProgram;
  trial.text = "random_faults --trials 1 --seed " + std::to_string(seed) + " --fault " +
               kFaultNames[static_cast<int>(trial.fault)] + " --ranks " +
               std::to_string(trial.ranks) + " --transport " + trial.transport + " --groups " +
               std::to_string(trial.groups_permille);
  return trial;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return 64;
  Totals totals;
  for (int i = 0; i < options.trials; ++i) {
    Moment moment;
    const Trial trial = make_trial(options, options.seed + static_cast<std::uint64_t>(i), moment);
    run_trial(
        trial, [](int, Shared&) {},
        [&](const auto& pids, Shared& shared) { strike(trial, moment, pids, shared); },
        options.tell, totals);
  }
  print(totals);
  return totals.bad == 0 && totals.wrong == 0 ? 0 : 1;
}
