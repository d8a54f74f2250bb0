// Flips one bit at each failpoint of data (base/failpoint.h) on each rank, in jobs that verify
// their calls: each failpoint x rank x collective that comes by it x transport x size, and as many
// kinds of jobs as DLAUNCH_VERIFY has modes. The ranks must find the flip and name the rank where
// it was, or, where the mode says so, find it without a name. No innocent rank is ever named.
// usage: corruption_faults [--only FAILPOINT] [--mode sample|results|full] [--ranks N]
//                          [--transport shm|tcp] [--calls N] [--tell]
// --calls: so many calls without a flip instead, in which no rank may find a difference.
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/failpoint.h"
#include "dlaunch/ring.h"
#include "program_options.h"

namespace {

constexpr int kMostRanks = 4;
constexpr int kCalls = 40;
// The exchange of hashes moves less than this, and a changed hash is another case.
constexpr std::size_t kLeastData = 1000;
constexpr std::size_t kSizes[] = {3000, 70'000, 3 << 20};  // bytes

// The data that a failpoint is about.
enum class Data {
  moved,     // all data
  reduced,   // results of a plane's reduction; with "full" the planes only move
  verified,  // those that each rank makes itself with "full"
};
struct Point {
  const char* name;
  const char* transport;
  Data data;
};
constexpr Point kPoints[] = {{"shm.given_data", "shm", Data::moved},
                             {"shm.reduced_data", "shm", Data::reduced},
                             {"shm.taken_data", "shm", Data::moved},
                             {"stream.taken_data", "tcp", Data::moved},
                             {"program.reduced_data", "tcp", Data::reduced},
                             {"verified.reduced_data", "shm", Data::verified},
                             {"verified.reduced_data", "tcp", Data::verified}};

enum class What { all_reduce, all_reduce_list, broadcast, all_gather };
constexpr const char* kWhat[] = {"all_reduce", "all_reduce_list", "broadcast", "all_gather"};

struct Case {
  const Point* point = nullptr;  // null: no flip
  const char* transport = "shm";
  const char* mode = "results";
  What what = What::all_reduce;
  int ranks = 3, victim = 0, hit = 1;
  std::size_t bytes = 0;
  int calls = kCalls;
};

struct Shared {
  std::atomic<int> struck{0};
  struct Rank {
    dl_result result;
    int lost;
    int calls;
    char text[500];
  } ranks[kMostRanks];
};

struct Armed {
  const char* name = nullptr;
  int hit = 0;
  std::atomic<int> hits{0};
  Shared* shared = nullptr;
} armed;

}  // namespace

namespace dlaunch {

void failpoint(const char*) {}
std::size_t failpoint_write(const char*, std::size_t bytes) { return bytes; }

void failpoint_data(const char* name, void* data, std::size_t bytes) {
  if (armed.name == nullptr || bytes < kLeastData || std::strcmp(armed.name, name) != 0) return;
  if (++armed.hits != armed.hit) return;
  armed.shared->struck = 1;
  const std::size_t bit = 8 * bytes / 3 + static_cast<std::size_t>(armed.hit);
  static_cast<unsigned char*>(data)[bit / 8] ^= static_cast<unsigned char>(1U << bit % 8);
}

}  // namespace dlaunch

namespace {

dl_result call(dl_comm* comm, const Case& of, int rank, int number, std::vector<float>& in,
               std::vector<float>& out) {
  const std::size_t count = of.bytes / sizeof(float);
  const auto ranks = static_cast<std::size_t>(of.ranks);
  in.resize(count);
  out.resize(count * ranks);
  for (std::size_t i = 0; i < count; ++i) {
    in[i] = static_cast<float>((i % 1013 + static_cast<std::size_t>(rank + number)) / 7.0);
  }
  switch (of.what) {
    case What::all_reduce:
      return dl_all_reduce(comm, in.data(), out.data(), count, DL_FLOAT32, DL_SUM);
    case What::all_reduce_list: {
      const std::size_t first = count / 3;
      const void* ins[] = {in.data(), in.data() + first};
      void* outs[] = {in.data(), in.data() + first};
      const std::size_t counts[] = {first, count - first};
      return dl_all_reduce_list(comm, 2, ins, outs, counts, DL_FLOAT32, DL_AVG);
    }
    case What::broadcast:
      return dl_broadcast(comm, in.data(), count, DL_FLOAT32, number % of.ranks);
    case What::all_gather:
      return dl_all_gather(comm, in.data(), out.data(), count, DL_FLOAT32);
  }
  return DL_ERR_INVALID;
}

void be_rank(const Case& of, int rank, const std::string& url, Shared& shared) {
  ::setenv("DLAUNCH_VERIFY", of.mode, 1);
  if (of.point != nullptr && rank == of.victim) {
    armed.shared = &shared;
    armed.hit = of.hit;
    armed.name = of.point->name;
  }
  dl_options options;
  dl_options_init(&options);
  options.rank = rank;
  options.size = of.ranks;
  options.transport = of.transport;
  options.op_timeout_s = 30;
  auto& own = shared.ranks[rank];
  dl_comm* comm = nullptr;
  own.result = dl_init(url.c_str(), &options, &comm);
  std::vector<float> in, out;
  while (own.result == DL_OK && own.calls < of.calls) {
    own.result = call(comm, of, rank, own.calls++, in, out);
  }
  if (own.result == DL_OK) own.result = dl_verify(comm);
  own.lost = dl_peer_lost(comm);
  std::snprintf(own.text, sizeof own.text, "%s", dl_last_error(comm));
  dl_finalize(comm);
}

std::string name_of(const Case& of) {
  return std::string(of.mode) + " " + of.transport + " " + kWhat[static_cast<int>(of.what)] +
         " of " + std::to_string(of.bytes) + " bytes, " +
         (of.point != nullptr ? of.point->name : "no flip") + " on rank " +
         std::to_string(of.victim) + " of " + std::to_string(of.ranks) + ", time " +
         std::to_string(of.hit);
}

struct Outcome {
  bool struck = false, found = false, named = false;
};

// False: something that must not be.
bool run(const Case& of, bool tell, Outcome& outcome) {
  char folder[] = "corruption-XXXXXX";
  if (::mkdtemp(folder) == nullptr) return false;
  const std::string url = "file://" + std::filesystem::absolute(folder).string();
  auto* const shared = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<pid_t> pids;
  std::fflush(nullptr);
  for (int rank = 0; rank < of.ranks; ++rank) {
    pids.push_back(::fork());
    if (pids.back() != 0) continue;
    be_rank(of, rank, url, *shared);
    ::_exit(0);
  }
  bool good = true;
  for (const pid_t pid : pids) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    good &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  std::filesystem::remove_all(folder);
  const auto& first = shared->ranks[0];
  outcome.struck = shared->struck != 0;
  outcome.found = first.result == DL_ERR_CORRUPT;
  outcome.named = outcome.found && shared->ranks[of.victim == 0 ? 1 : 0].lost == of.victim;
  for (int rank = 0; rank < of.ranks; ++rank) {
    const auto& own = shared->ranks[rank];
    const int lost = outcome.named && rank != of.victim ? of.victim : -1;
    good &= own.result == (outcome.found ? DL_ERR_CORRUPT : DL_OK) && own.lost == lost;
  }
  good &= outcome.struck || !outcome.found;
  if (tell || !good) {
    std::printf("%s: %s\n", name_of(of).c_str(),
                !outcome.struck  ? "not struck"
                : !outcome.found ? "not found"
                : outcome.named  ? "named"
                                 : "found");
    for (int rank = 0; rank < of.ranks && (tell || !good); ++rank) {
      const auto& own = shared->ranks[rank];
      std::printf("  rank %d: %s after %d calls, lost %d: %s\n", rank, dl_result_name(own.result),
                  own.calls, own.lost, own.text);
    }
  }
  ::munmap(shared, sizeof(Shared));
  return good;
}

bool is_full(const Case& of) { return std::strcmp(of.mode, "full") == 0; }
bool reduces(const Case& of) {
  return of.what == What::all_reduce || of.what == What::all_reduce_list;
}

// Whether such a call comes by the failpoint.
bool can_strike(const Case& of) {
  if (of.point->data == Data::moved) return true;
  return reduces(of) && is_full(of) == (of.point->data == Data::verified);
}

// Whether this mode must find a flip there.
bool must_find(const Case& of) {
  if (is_full(of)) return true;
  if (std::strcmp(of.mode, "sample") == 0) return false;
  // Before the result of a reduction goes to all ranks, a flip is one of theirs, too.
  return !reduces(of) || std::strcmp(of.point->name, "shm.taken_data") == 0 ||
         std::strcmp(of.point->name, "verified.reduced_data") == 0;
}

// Three ranks have a majority; but in a broadcast by way of others no rank can be named.
bool must_name(const Case& of) {
  if (of.ranks < 3 || !must_find(of)) return false;
  return is_full(of) || of.what != What::broadcast || of.transport[0] == 's';
}

struct Options {
  std::string only, mode, transport;
  int ranks = 0, calls = 0;
  bool tell = false;
};

bool parse(int argc, char** argv, Options& options) {
  return read_options(argc, argv,
                      {{"--tell", &options.tell},
                       {"--only", &options.only},
                       {"--mode", &options.mode},
                       {"--transport", &options.transport},
                       {"--ranks", &options.ranks},
                       {"--calls", &options.calls}});
}

std::vector<Case> cases_of(const Options& options) {
  std::vector<Case> cases;
  int number = 0;
  const auto wanted = [](const std::string& only, const char* word) {
    return only.empty() || only == word;
  };
  for (const char* mode : {"sample", "results", "full"}) {
    for (const Point& point : kPoints) {
      for (const int ranks : {2, 3}) {
        if (!wanted(options.only, point.name) || !wanted(options.mode, mode) ||
            !wanted(options.transport, point.transport) ||
            (options.ranks != 0 && options.ranks != ranks)) {
          continue;
        }
        for (const What what :
             {What::all_reduce, What::all_reduce_list, What::broadcast, What::all_gather}) {
          for (const std::size_t bytes : kSizes) {
            for (int victim = 0; victim < ranks; ++victim) {
              const Case of{.point = &point,
                            .transport = point.transport,
                            .mode = mode,
                            .what = what,
                            .ranks = ranks,
                            .victim = victim,
                            .hit = 3 + number++ % 4,
                            .bytes = bytes,
                            .calls = bytes > 1 << 20 ? kCalls / 4 : kCalls};
              if (can_strike(of)) cases.push_back(of);
            }
          }
        }
      }
    }
  }
  return cases;
}

int run_without_flips(const Options& options) {
  int bad = 0;
  for (const char* mode : {"sample", "results", "full"}) {
    for (const char* transport : {"shm", "tcp"}) {
      if (!options.mode.empty() && options.mode != mode) continue;
      if (!options.transport.empty() && options.transport != transport) continue;
      Outcome outcome;
      bad += !run({.transport = transport,
                   .mode = mode,
                   .ranks = options.ranks != 0 ? options.ranks : 2,
                   .bytes = 4096,
                   .calls = options.calls},
                  options.tell, outcome) ||
             outcome.found;
    }
  }
  std::printf("%d calls in each mode and transport, %d jobs with an alarm\n", options.calls, bad);
  return bad == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return 64;
  if (options.calls > 0) return run_without_flips(options);
  int struck = 0, found = 0, named = 0, bad = 0;
  for (const char* mode : {"sample", "results", "full"}) {
    Options of_mode = options;
    // A sample has few of these calls.
    if (options.mode != mode && (!options.mode.empty() || std::strcmp(mode, "sample") == 0))
      continue;
    of_mode.mode = mode;
    int here = 0, found_here = 0, named_here = 0;
    for (const Case& of : cases_of(of_mode)) {
      Outcome outcome;
      bool good = run(of, options.tell, outcome);
      if (outcome.struck && must_find(of) && !outcome.found) good = false;
      if (outcome.struck && must_name(of) && !outcome.named) good = false;
      if (!good) std::printf("BAD: %s\n", name_of(of).c_str());
      bad += !good;
      here += outcome.struck;
      found_here += outcome.found;
      named_here += outcome.named;
    }
    std::printf("%s: %d flips, %d found, %d named\n", mode, here, found_here, named_here);
    struck += here;
    found += found_here;
    named += named_here;
  }
  std::printf("%d flips, %d found, %d named, %d bad\n", struck, found, named, bad);
  return bad == 0 && struck > 0 ? 0 : 1;
}
