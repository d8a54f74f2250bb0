// An elastic program of libdlring alone: counts steps together with the other ranks, and goes on in
// the next round after a loss.
//
//   rounds_worker [--steps N | --until FILE] [--step-ms MS] [--bytes N]
//                 [--hang RANK [--how WAY]]
//                 [--slow RANK [--factor F] [--when WHEN] [--period-ms MS]]
//
// --until: the last step is the first that finds that file. --hang: that rank of round 1 never
// reaches its sixth step, but computes for ever (busy), waits for a lock whose owner waits for one
// of its own (deadlock), or sleeps so that signals do not wake it (blocked, by vfork()). --bytes:
// each step adds up so many, too. --slow: in round 1 each step takes that rank F (3) times as long:
// always, because it waits for its input (input), in the first period only (start), in turn with
// the other ranks, a period each (moving), or with all of them after the first (all). Prints its
// round and rank, and at the end the number of steps that all have done.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <dlaunch/ring.hpp>

namespace {

struct Options {
  std::int64_t steps = 100;
  std::string until;
  int step_ms = 0;
  std::size_t bytes = 0;
  int hang = -1;
  std::string how = "busy";
  int slow = -1;
  double factor = 3;
  std::string when = "always";
  int period_ms = 1000;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--steps") == 0) options.steps = std::atoll(argv[i + 1]);
    if (std::strcmp(argv[i], "--until") == 0) options.until = argv[i + 1];
    if (std::strcmp(argv[i], "--step-ms") == 0) options.step_ms = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--slow") == 0) options.slow = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--factor") == 0) options.factor = std::atof(argv[i + 1]);
    if (std::strcmp(argv[i], "--when") == 0) options.when = argv[i + 1];
    if (std::strcmp(argv[i], "--period-ms") == 0) options.period_ms = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--how") == 0) options.how = argv[i + 1];
    if (std::strcmp(argv[i], "--bytes") == 0)
      options.bytes = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--hang") == 0) options.hang = std::atoi(argv[i + 1]);
  }
  if (!options.until.empty()) options.steps = std::numeric_limits<std::int64_t>::max();
  return options;
}

[[gnu::noinline]] void compute_forever() {
  for (volatile bool hangs = true; hangs;) continue;
}

[[gnu::noinline]] void deadlock() {
  std::mutex mine, other;
  const std::lock_guard held(mine);
  std::promise<void> has_other;
  std::thread([&] {
    const std::lock_guard held_there(other);
    has_other.set_value();
    const std::lock_guard never(mine);
  }).detach();
  has_other.get_future().wait();
  const std::lock_guard never(other);
}

// A parent sleeps uninterruptibly until its vfork()ed child has gone.
[[gnu::noinline]] void sleep_uninterruptibly() {
  if (::vfork() == 0) {
    while (true) ::pause();
  }
}

[[noreturn, gnu::noinline]] void hang_forever(const std::string& how) {
  if (how == "busy") compute_forever();
  if (how == "deadlock") deadlock();
  if (how == "blocked") sleep_uninterruptibly();
  std::fprintf(stderr, "rounds_worker: does not hang, or cannot %s\n", how.c_str());
  std::abort();
}

using Clock = std::chrono::steady_clock;

bool is_slow(const Options& options, const dl::Communicator& comm, Clock::time_point began) {
  if (options.slow < 0 || comm.round() != 1) return false;
  const auto period = (Clock::now() - began) / std::chrono::milliseconds(options.period_ms);
  if (options.when == "all") return period > 0;
  if (options.when == "moving") return (options.slow + period) % comm.size() == comm.rank();
  return comm.rank() == options.slow && (options.when != "start" || period == 0);
}

void work(const Options& options, bool slow) {
  const std::chrono::duration<double, std::milli> usual(options.step_ms);
  const auto more = usual * (options.factor - 1);
  std::this_thread::sleep_for(usual);
  if (!slow) return;
  if (options.when == "input") {
    std::async(std::launch::async, [more] { std::this_thread::sleep_for(more); }).wait();
  } else {
    std::this_thread::sleep_for(more);
  }
}

void say(const dl::Communicator& comm) {
  std::printf("in round %llu as %d of %d, pid %d\n", static_cast<unsigned long long>(comm.round()),
              comm.rank(), comm.size(), getpid());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  dl::Options join;
  join.elastic = 1;
  auto comm = dl::Communicator::init(nullptr, join);
  say(comm);
  const auto began = Clock::now();
  std::vector<float> data(options.bytes / sizeof(float));
  std::int64_t done[] = {0};
  while (done[0] < options.steps) {
    try {
      // A newcomer learns the others' progress here.
      std::int64_t most[] = {done[0]};
      comm.all_reduce(std::span<std::int64_t>(most), dl::Op::max);
      done[0] = most[0] + 1;
      if (done[0] == 6 && comm.round() == 1 && comm.rank() == options.hang)
        hang_forever(options.how);
      work(options, is_slow(options, comm, began));
      if (!data.empty()) comm.all_reduce(std::span<float>(data));
      const bool found = !options.until.empty() && ::access(options.until.c_str(), F_OK) == 0;
      std::int64_t over[] = {comm.round_over() ? 1 : 0, found ? 1 : 0};
      comm.all_reduce(std::span<std::int64_t>(over), dl::Op::max);
      if (over[1] != 0) break;
      if (over[0] == 0) continue;
    } catch (const dl::PeerLost&) {
    }
    comm.rejoin(static_cast<std::uint64_t>(done[0]));
    say(comm);
  }
  comm.barrier();
  std::printf("done %lld\n", static_cast<long long>(done[0]));
  return 0;
} catch (const dl::Error& error) {
  std::fprintf(stderr, "rounds_worker: %s\n", error.what());
  return 1;
}
