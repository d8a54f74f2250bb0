// The embedded store under many clients: each is a connection and a thread of its own, as a rank
// is.
//
// usage: store_clients [--clients N] [--rounds R]
//
// As in a round's bootstrap, one client sets an address that all others wait for; then all add to
// one counter. Prints the time and the needs of the server's process; exits with 1 if an answer is
// wrong or missing.
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/store_server_thread.h"
#include "rendezvous/tcp_store.h"

namespace {

using namespace dlaunch;
using Clock = std::chrono::steady_clock;

constexpr Duration kPatience = std::chrono::seconds(120);

struct Bench {
  int clients = 2000, rounds = 5;
  Endpoint endpoint;
  Secret secret;
  std::atomic<int> failed = 0;
  std::atomic<std::int64_t> sum = 0;

  void fail(const std::string& what) {
    if (failed++ == 0) std::fprintf(stderr, "store_clients: %s\n", what.c_str());
  }
};

double ms_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

// A client that fails takes part in all barriers nevertheless.
void be_client(Bench& bench, int number, std::barrier<>& all) {
  const auto by = [] { return steady_now() + kPatience; };
  auto store = open_tcp_store(
      bench.endpoint, {.job_id = "bench", .secret = bench.secret, .who = std::to_string(number)},
      by());
  if (!store) bench.fail(store.error().what);
  all.arrive_and_wait();
  for (int round = 1; round <= bench.rounds; ++round) {
    all.arrive_and_wait();
    const std::string key = "r" + std::to_string(round) + "/address";
    if (store && number == 0) {
      if (auto set = (*store)->set(key, "10.77.0.1:4711", by()); !set) bench.fail(set.error().what);
    } else if (store) {
      const auto got = (*store)->get(key, by());
      if (!got || *got != "10.77.0.1:4711") bench.fail(got ? "a wrong value" : got.error().what);
    }
    all.arrive_and_wait();
    if (store) {
      const auto added = (*store)->add("r" + std::to_string(round) + "/there", 1, by());
      if (!added) bench.fail(added.error().what);
      if (added) bench.sum += *added;
    }
    all.arrive_and_wait();
  }
}

struct Start {
  Bench* bench;
  std::barrier<>* all;
  int number;
};

// A small stack for each: there are thousands.
bool start(Start& what, pthread_t& thread) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, std::size_t{256} << 10);
  const auto run = [](void* given) -> void* {
    const auto* me = static_cast<Start*>(given);
    be_client(*me->bench, me->number, *me->all);
    return nullptr;
  };
  const bool started = pthread_create(&thread, &attributes, run, &what) == 0;
  pthread_attr_destroy(&attributes);
  return started;
}

int run(Bench& bench) {
  auto server = StoreServerThread::start({"127.0.0.1", 0}, "bench", bench.secret);
  if (!server) return std::fprintf(stderr, "%s\n", server.error().what.c_str()), 1;
  bench.endpoint = (*server)->endpoint();
  std::barrier<> all(bench.clients + 1);
  std::vector<Start> starts;
  for (int i = 0; i < bench.clients; ++i) starts.push_back({&bench, &all, i});
  std::vector<pthread_t> threads(starts.size());
  auto begun = Clock::now();
  for (std::size_t i = 0; i < starts.size(); ++i) {
    if (!start(starts[i], threads[i])) return std::fputs("too many threads\n", stderr), 77;
  }
  all.arrive_and_wait();
  std::printf("%d clients have proven themselves after %.0f ms\n", bench.clients, ms_since(begun));
  for (int round = 1; round <= bench.rounds; ++round) {
    all.arrive_and_wait();
    begun = Clock::now();
    all.arrive_and_wait();
    const double meet = ms_since(begun);
    begun = Clock::now();
    all.arrive_and_wait();
    std::printf("round %d: all know the address after %.1f ms; one addition each: %.1f ms\n", round,
                meet, ms_since(begun));
  }
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  std::printf("%ld KiB, clients and server\n", used.ru_maxrss);
  const std::int64_t n = bench.clients;
  if (bench.failed == 0 && bench.sum != bench.rounds * n * (n + 1) / 2)
    bench.fail("a lost addition");
  return bench.failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench;
  for (int i = 1; i + 1 < argc; i += 2) {
    int* const number = std::strcmp(argv[i], "--clients") == 0  ? &bench.clients
                        : std::strcmp(argv[i], "--rounds") == 0 ? &bench.rounds
                                                                : nullptr;
    if (number == nullptr || (*number = std::atoi(argv[i + 1])) < 1) {
      std::fputs("usage: store_clients [--clients N] [--rounds R]\n", stderr);
      return 64;
    }
  }
  const auto descriptors = static_cast<rlim_t>(2 * bench.clients + 64);  // both ends are ours
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, descriptors);
  limit.rlim_max = std::max(limit.rlim_max, descriptors);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    std::puts("SKIP: not so many descriptors are allowed");
    return 77;
  }
  bench.secret = Secret("store_clients' own, of this run");
  return run(bench);
}
