// Hurts a rank of a random program at each failpoint of the library (base/failpoint.h): kills it
// there, stops it for good, delays it, cuts its writes short, or kills it after half a write. Each
// failpoint x fault x rank x transport x 2 and 3 ranks, at its first times and at later ones. The
// others must get the errors that random_faults.cc describes, and the program must reach each
// failpoint.
// usage: failpoint_faults [--part K/N] [--sample N] [--seed N] [--hits N] [--only FAILPOINT]
//                         [--fault kill|stop|pause|tear|short] [--ranks N] [--transport shm|tcp]
//                         [--tell]
// --part: every Nth trial of all, from the Kth on. --sample: so many trials of each failpoint,
// chosen by the seed, instead of all. --hits: at the first, and at N - 1 random later times.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/failpoint.h"
#include "fault_trial.h"
#include "program_options.h"
#include "random_values.h"

namespace {

using namespace random_ops;

enum class On { both, shm, tcp };
enum class Who { all, first, others, not_last };
enum class Cores { any, one, each };  // of the host; one: ranks outnumber them

struct Failpoint {
  const char* name;
  On on = On::both;
  Who who = Who::all;
  Cores cores = Cores::any;
  bool writes = false;
  int ranks = 0;  // 0: any number
  bool afterwards = false;
  bool few = false;  // of ranks with few links (DLAUNCH_LINKS), kFewRanks
};

constexpr Failpoint kFailpoints[] = {
    {.name = "mesh.listens"},
    {.name = "file_store.locked"},
    {.name = "file_store.append", .writes = true},
    {.name = "mesh.published"},
    {.name = "mesh.address_read", .who = Who::others},
    {.name = "mesh.before_hello", .who = Who::others},
    {.name = "handshake.send", .who = Who::others, .writes = true},
    {.name = "handshake.sent", .who = Who::others},
    {.name = "listener.read", .who = Who::not_last},
    {.name = "listener.answered", .who = Who::not_last},
    {.name = "listener.proven", .who = Who::not_last},
    {.name = "mesh.connected", .who = Who::others},
    {.name = "mesh.accepted", .who = Who::not_last},
    {.name = "bootstrap.meshed"},
    {.name = "bootstrap.segments_made", .on = On::shm, .who = Who::first},
    {.name = "link_message.send", .writes = true},
    {.name = "bootstrap.segments_passed", .on = On::shm},
    {.name = "bootstrap.heard_all", .who = Who::first},
    {.name = "bootstrap.tells_verdict", .who = Who::first},
    {.name = "bootstrap.tells_own", .who = Who::others},
    {.name = "bootstrap.awaits_verdict", .who = Who::others},
    {.name = "bootstrap.agreed"},
    {.name = "communicator.planned", .on = On::tcp},
    {.name = "communicator.joined"},
    {.name = "communicator.called"},
    {.name = "regions.passed", .on = On::shm},
    {.name = "links.entered"},
    {.name = "links.goodbye"},
    {.name = "links.tell"},
    {.name = "links.frame"},
    {.name = "links.decides", .who = Who::first},
    {.name = "group.colors_told"},
    {.name = "branching.opened", .on = On::shm},
    {.name = "branching.met", .on = On::shm},
    {.name = "group.met"},
    {.name = "messenger.posted"},
    {.name = "messenger.received"},
    {.name = "socket_group.attaches"},
    {.name = "pair_sockets.connects", .on = On::tcp, .who = Who::others},
    {.name = "connections.before_hello", .on = On::tcp, .who = Who::others},
    {.name = "connections.made", .on = On::tcp, .who = Who::others},
    {.name = "pair_sockets.accepted", .on = On::tcp, .who = Who::not_last},
    {.name = "links.passes_socket", .on = On::shm, .who = Who::not_last},
    {.name = "stream.send", .writes = true},
    {.name = "stream.read"},
    {.name = "stream.header"},
    {.name = "stream.granule", .on = On::tcp},
    {.name = "stream.done", .on = On::tcp},
    {.name = "shm.arrives", .on = On::shm},
    {.name = "shm.arrived", .on = On::shm},
    {.name = "shm.last_arrived", .on = On::shm, .cores = Cores::one},
    {.name = "shm.releases", .on = On::shm, .cores = Cores::one},
    {.name = "shm.givers_there", .on = On::shm},
    {.name = "shm.staged_chunk", .on = On::shm, .cores = Cores::one},
    {.name = "shm.reduces", .on = On::shm, .cores = Cores::one},
    {.name = "shm.publishes", .on = On::shm},
    {.name = "shm.published", .on = On::shm},
    {.name = "shm.copied_result", .on = On::shm, .cores = Cores::one},
    {.name = "shm.took_block", .on = On::shm},
    {.name = "shm.offers", .on = On::shm, .cores = Cores::each, .ranks = 2},
    {.name = "shm.combines", .on = On::shm, .cores = Cores::each, .ranks = 2},
    {.name = "shm.takes_back", .on = On::shm, .cores = Cores::each, .ranks = 2},
    {.name = "shm.takes_block", .on = On::shm, .cores = Cores::each, .ranks = 2},
    {.name = "shm.takes_lent", .on = On::shm, .cores = Cores::each},
    {.name = "shm.awaits_takers", .on = On::shm, .cores = Cores::each},
    {.name = "tree.heard", .few = true},
    {.name = "tree.tells", .few = true},
    {.name = "late_links.connects", .on = On::shm, .few = true},
    {.name = "late_links.accepted", .on = On::shm, .few = true},
    {.name = "bootstrap.has_hosts", .on = On::tcp, .few = true},
    {.name = "bootstrap.shared_on_host", .on = On::tcp, .few = true},
    {.name = "pair_sockets.connects", .on = On::tcp, .few = true},
    {.name = "connections.made", .on = On::tcp, .few = true},
    {.name = "links.frame", .few = true},
    {.name = "links.tell", .few = true},
    {.name = "links.goodbye", .few = true},
    // For after the loss of another rank.
    {.name = "links.end_seen", .ranks = 3, .afterwards = true},
    {.name = "links.told_all", .ranks = 3, .afterwards = true},
    {.name = "abort_flag.raised", .ranks = 3, .afterwards = true},
    {.name = "communicator.fails", .ranks = 3, .afterwards = true},
};

constexpr int kFewRanks = 6;  // a rank has no link with the third next one

constexpr Fault kFaults[] = {Fault::kill, Fault::stop, Fault::pause, Fault::short_writes,
                             Fault::tear};
constexpr double kGoesOn = 0.4;      // s, if no rank is lost; longer than the delay
constexpr double kInitTimeout = 3;   // s, if this limit reveals the loss
constexpr double kComesThereIn = 6;  // s; the program goes on until then
constexpr useconds_t kBeforeFirstLoss_us = 20'000;
constexpr int kLatestHit = 60;
constexpr int kAttempts = 12;
constexpr int kOtherThanStop_permille = 700;
constexpr int kHalf = 2;  // divides a torn write

// The fault for this process. Set before the first thread but the main one.
struct Armed {
  const char* name = nullptr;
  Fault fault = Fault::kill;
  int hit = 0;  // 0: no fault
  useconds_t delay_us = 0;
  Shared* shared = nullptr;
  std::atomic<int> hits{0};
} armed;

bool is_listed(const char* name) {
  return std::any_of(std::begin(kFailpoints), std::end(kFailpoints),
                     [&](const Failpoint& point) { return std::strcmp(point.name, name) == 0; });
}

// True once, when its time has come.
bool comes_to(const char* name) {
  if (!is_listed(name)) {
    std::fprintf(stderr, "failpoint %s is not in the table of failpoint_faults.cc\n", name);
    std::abort();
  }
  if (armed.hit == 0 || std::strcmp(armed.name, name) != 0 || ++armed.hits != armed.hit) {
    return false;
  }
  armed.shared->struck = monotonic_seconds();
  return true;
}

void die() {
  ::kill(::getpid(), SIGKILL);
  while (true) ::pause();
}

}  // namespace

namespace dlaunch {

void failpoint(const char* name) {
  static thread_local bool dies_at_next = false;
  if (dies_at_next) die();
  if (!comes_to(name)) return;
  switch (armed.fault) {
    case Fault::pause:
      ::usleep(armed.delay_us);
      break;
    case Fault::stop:
      ::kill(::getpid(), SIGSTOP);
      break;
    default:
      die();
  }
}

std::size_t failpoint_write(const char* name, std::size_t bytes) {
  static std::atomic<bool> short_from_now{false}, torn{false};
  if (torn) die();  // after the half
  const std::size_t half = (bytes + kHalf - 1) / kHalf;
  if (comes_to(name)) {
    if (armed.fault == Fault::short_writes) short_from_now = true;
    if (armed.fault != Fault::tear && armed.fault != Fault::short_writes) {
      armed.hits = armed.hit - 1;
      failpoint(name);
    }
    if (armed.fault == Fault::tear) torn = true;
    if (torn) return half;
  }
  const bool cut = short_from_now && std::strcmp(armed.name, name) == 0;
  return cut ? half : bytes;
}

void failpoint_data(const char*, void*, std::size_t) {}  // corruption_faults.cc

}  // namespace dlaunch

namespace {

struct Options {
  int part = 0, parts = 1, sample = 0, hits = 1, ranks = 0;
  std::uint64_t seed = 1;
  std::string only, fault, transport;
  bool tell = false;
};

bool parse(int argc, char** argv, Options& options) {
  std::string part = "1/1";
  if (!read_options(argc, argv,
                    {{"--tell", &options.tell},
                     {"--part", &part},
                     {"--sample", &options.sample},
                     {"--hits", &options.hits},
                     {"--ranks", &options.ranks},
                     {"--seed", &options.seed},
                     {"--only", &options.only},
                     {"--fault", &options.fault},
                     {"--transport", &options.transport}})) {
    return false;
  }
  if (std::sscanf(part.c_str(), "%d/%d", &options.part, &options.parts) != 2) return false;
  --options.part;
  return options.parts > 0 && options.part >= 0 && options.part < options.parts;
}

struct Strike {
  const Failpoint* point;
  Fault fault;
  const char* transport;
  int ranks, victim, hit;
};

bool may_be(const Failpoint& point, Fault fault, const char* transport, int ranks, int victim) {
  const bool cuts = fault == Fault::short_writes || fault == Fault::tear;
  if (cuts && !point.writes) return false;
  if (point.ranks != 0 && point.ranks != ranks) return false;
  if (point.on != On::both && (point.on == On::shm) != (transport[0] == 's')) return false;
  switch (point.who) {
    case Who::all:
      return true;
    case Who::first:
      return victim == 0;
    case Who::others:
      return victim != 0;
    case Who::not_last:
      return victim != ranks - 1;
  }
  return false;
}

bool is_wanted(const Options& options, const Strike& strike) {
  const std::string fault = kFaultNames[static_cast<int>(strike.fault)];
  return (options.only.empty() || options.only == strike.point->name) &&
         (options.fault.empty() || options.fault == fault) &&
         (options.ranks == 0 || options.ranks == strike.ranks) &&
         (options.transport.empty() || options.transport == strike.transport);
}

std::vector<Strike> strikes_at(const Failpoint& point, const Options& options, Random& random) {
  std::vector<Strike> strikes;
  for (const Fault fault : kFaults) {
    for (const char* transport : {"shm", "tcp"}) {
      for (const int ranks : point.few ? std::vector{kFewRanks} : std::vector{2, 3}) {
        for (int victim = 0; victim < ranks; ++victim) {
          if (!may_be(point, fault, transport, ranks, victim)) continue;
          for (int h = 0; h < options.hits; ++h) {
            const int hit = h == 0 || point.afterwards ? 1 : 2 + random.under(kLatestHit - 1);
            const Strike strike{&point, fault, transport, ranks, victim, hit};
            if (is_wanted(options, strike)) strikes.push_back(strike);
          }
        }
      }
    }
  }
  if (options.sample == 0) return strikes;
  std::vector<Strike> chosen;
  for (int i = 0; i < options.sample && !strikes.empty(); ++i) {
    const auto drawn = [&] {
      return strikes.begin() + random.under(static_cast<int>(strikes.size()));
    };
    auto at = drawn();
    // Only a time limit reveals a stop to the others: it takes long, and is seldom drawn.
    if (at->fault == Fault::stop && random.chance(kOtherThanStop_permille)) at = drawn();
    chosen.push_back(*at);
    strikes.erase(at);
  }
  return chosen;
}

Trial trial_of(const Strike& strike, std::uint64_t seed) {
  Trial trial;
  trial.seed = seed;
  trial.fault = strike.fault;
  trial.ranks = strike.ranks;
  trial.victim = strike.victim;
  trial.transport = strike.transport;
  trial.groups_permille = 60;
  if (!is_harmless(strike.fault)) trial.init_timeout = kInitTimeout;
  if (strike.point->afterwards) {
    trial.lost_before = (strike.victim + 1) % strike.ranks;
  } else if (is_harmless(strike.fault)) {
    trial.seconds = kComesThereIn;
    trial.seconds_after = kGoesOn;
  }
  trial.text = std::string("failpoint_faults --only ") + strike.point->name + " --fault " +
               kFaultNames[static_cast<int>(strike.fault)] + " --ranks " +
               std::to_string(strike.ranks) + " --transport " + strike.transport + " --seed " +
               std::to_string(seed) + " (time " + std::to_string(strike.hit) + ")";
  return trial;
}

void arm(const Strike& strike, const Trial& trial, int rank, Shared& shared) {
  const bool alone = strike.point->cores == Cores::one;
  ::setenv("DLAUNCH_LINKS", strike.point->few ? "few" : "auto", 1);
  ::setenv("DLAUNCH_LOCAL_CORES", alone ? "1" : std::to_string(strike.ranks).c_str(), 1);
  if (rank != strike.victim) return;
  armed.name = strike.point->name;
  armed.fault = strike.fault;
  armed.hit = strike.hit;
  Random random(mix(trial.seed) + static_cast<std::uint64_t>(strike.hit));
  armed.delay_us = static_cast<useconds_t>(1000 * (1 + random.under(300)));
  armed.shared = &shared;
}

// True if the fault has struck there. Kills a rank that does not reach its failpoint, so that the
// trial ends.
bool await_strike(const Trial& trial, const std::vector<pid_t>& pids, Shared& shared) {
  const double end = monotonic_seconds() + kComesThereIn;
  double lost_at = 0;
  if (trial.lost_before >= 0) {
    while (shared.inside < trial.ranks && monotonic_seconds() < end) ::usleep(200);
    ::usleep(kBeforeFirstLoss_us);
    lost_at = monotonic_seconds();
    ::kill(pids[static_cast<std::size_t>(trial.lost_before)], SIGKILL);
  }
  while (shared.struck == 0 && monotonic_seconds() < end && !ranks_are_over(trial, shared)) {
    ::usleep(200);
  }
  if (shared.struck > 0) return true;
  if (is_harmless(trial.fault)) {
    shared.struck = lost_at;
    return false;
  }
  shared.struck = monotonic_seconds();
  ::kill(pids[static_cast<std::size_t>(trial.victim)], SIGKILL);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return 64;
  Totals totals;
  int number = 0, missed = 0;
  std::vector<const char*> never;
  Random random(mix(options.seed));
  for (const Failpoint& point : kFailpoints) {
    int tried = 0, reached = 0;
    for (const Strike& strike : strikes_at(point, options, random)) {
      if (number++ % options.parts != options.part) continue;
      ++tried;
      // Some programs do not reach it soon, or not so often.
      for (int attempt = 0, there = 0; attempt < kAttempts && there == 0; ++attempt) {
        const Trial trial = trial_of(strike, options.seed + static_cast<std::uint64_t>(attempt));
        run_trial(
            trial, [&](int rank, Shared& shared) { arm(strike, trial, rank, shared); },
            [&](const auto& pids, Shared& shared) { there = await_strike(trial, pids, shared); },
            options.tell, totals);
        reached += there;
      }
    }
    missed += tried - reached;
    if (tried > 0 && reached == 0) never.push_back(point.name);
  }
  for (const char* name : never) std::fprintf(stderr, "failpoint %s was never come to\n", name);
  if (missed > 0) std::printf("%d times a rank did not come there\n", missed);
  print(totals);
  return totals.bad == 0 && totals.wrong == 0 && never.empty() ? 0 : 1;
}
