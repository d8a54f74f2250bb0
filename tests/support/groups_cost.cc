// Measures the cost of a group of two ranks, and of one of four, for one of four workers of
// dlaunch: descriptors, threads and memory of an idle group, whether the cost grows over many
// groups, and the time to make one. Prints the figures; exits with 1 if a rank finds one above its
// limit.
//
//   groups_cost [--groups N] [--most-ms X]     X: the median time to make a group; 0: no limit
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "dlaunch/ring.h"

namespace {

using Clock = std::chrono::steady_clock;

int failures = 0;

void check(dl_result result, const dl_comm* comm, const char* what) {
  if (result == DL_OK) return;
  std::fprintf(stderr, "%s: %s\n", what, dl_last_error(comm));
  std::exit(2);
}

int entries(const char* folder) {
  DIR* const all = ::opendir(folder);
  int count = 0;
  while (all != nullptr && ::readdir(all) != nullptr) ++count;
  if (all != nullptr) ::closedir(all);
  return count;
}

// KiB, from /proc/self/status.
long field(const char* name) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(name)) return std::strtol(&line[std::strlen(name) + 1], nullptr, 10);
  }
  return -1;
}

struct Cost {
  long descriptors = entries("/proc/self/fd");
  long threads = entries("/proc/self/task");
  long shared_kib = field("RssShmem");
  long private_kib = field("RssAnon");
};

void limit(const char* what, double value, double most, const char* unit) {
  const bool well = value <= most;
  std::printf("%-52s %8.2f of at most %g %s%s\n", what, value, most, unit,
              well ? "" : "  TOO MUCH");
  if (well) return;
  std::fprintf(stderr, "%s: %g is more than %g %s\n", what, value, most, unit);
  ++failures;
}

using Members = std::vector<int>;

dl_comm* make(dl_comm* world, const Members& members, int tag) {
  dl_comm* group = nullptr;
  check(dl_group(world, members.data(), static_cast<int>(members.size()), tag, -1, &group), world,
        "dl_group");
  return group;
}

void right(float value, const dl_comm* group) {
  if (value == static_cast<float>(dl_size(group))) return;
  std::fprintf(stderr, "a result is wrong\n");
  std::exit(3);
}

void reduce_small(dl_comm* group) {
  float in[64], out[64];
  std::fill(std::begin(in), std::end(in), 1.0f);
  check(dl_all_reduce(group, in, out, 64, DL_FLOAT32, DL_SUM), group, "all_reduce");
  right(out[63], group);
}

void reduce_large(dl_comm* group, std::vector<float>& buffer) {
  std::fill(buffer.begin(), buffer.end(), 1.0f);
  check(dl_all_reduce(group, buffer.data(), buffer.data(), buffer.size(), DL_FLOAT32, DL_SUM),
        group, "large all_reduce");
  right(buffer.front(), group);
  right(buffer.back(), group);
}

void reduce_in_background(dl_comm* group) {
  float in[64] = {1}, out[64];
  dl_request* request = nullptr;
  check(dl_iall_reduce(group, in, out, 64, DL_FLOAT32, DL_SUM, &request), group, "iall_reduce");
  check(dl_wait(&request), group, "wait");
  right(out[0], group);
}

void send_round(dl_comm* group) {
  const int n = dl_size(group), rank = dl_rank(group), next = (rank + 1) % n,
            before = (rank + n - 1) % n;
  int told = rank, heard = -1;
  check(dl_send(group, &told, 1, DL_INT32, next, 1), group, "send");
  check(dl_recv(group, &heard, 1, DL_INT32, before, 1), group, "recv");
  right(static_cast<float>(heard - before + n), group);
}

constexpr long kPooled = 2;  // threads that the pool keeps

// Threads of the pool end once they have been free for a moment. Waits until only the threads from
// the start and the pool's own are left, or until that has taken far too long.
void rest(const Cost& first) {
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (entries("/proc/self/task") > first.threads + kPooled && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void per_group(const std::string& what, const Cost& before, const Cost& after, int groups,
               double most_descriptors = 2) {
  const auto each = [&](long a, long b) { return static_cast<double>(b - a) / groups; };
  std::printf("%s\n", what.c_str());
  limit("  descriptors", each(before.descriptors, after.descriptors), most_descriptors, "each");
  limit("  threads", static_cast<double>(after.threads - before.threads), kPooled,
        "of all together");
  limit("  resident shared memory", each(before.shared_kib, after.shared_kib), 64, "KiB each");
  limit("  resident memory of its own", each(before.private_kib, after.private_kib), 64,
        "KiB each");
}

void idle_groups(dl_comm* world, const Members& members, std::vector<float>& buffer) {
  constexpr int kIdle = 20;
  const std::string of = " of " + std::to_string(members.size()) + " ranks that ";
  const Cost before;
  std::vector<dl_comm*> idle;
  for (int i = 0; i < kIdle; ++i) idle.push_back(make(world, members, i));
  per_group("a group" + of + "was never used", before, Cost(), kIdle);
  // The first group creates the shared parts, so they count for no group.
  reduce_large(idle.front(), buffer);
  const Cost shared;
  for (dl_comm* group : idle) {
    reduce_small(group);
    reduce_large(group, buffer);
    reduce_in_background(group);
  }
  rest(shared);
  per_group("a group" + of + "has reduced and rests", shared, Cost(), kIdle);
  for (dl_comm* group : idle) send_round(group);
  rest(shared);
  // A socket for each peer, and the means to wake a thread that waits for them.
  per_group("a group" + of + "has sent messages and rests", shared, Cost(), kIdle,
            static_cast<double>(members.size()));
  for (dl_comm* group : idle) dl_finalize(group);
}

void many_groups(dl_comm* world, int groups, std::vector<float>& buffer, double most_ms) {
  constexpr int kPerLarge = 8;
  const Members all = {0, 1, 2, 3};
  std::vector<double> times;
  Cost early;
  for (int i = 0; i < groups; ++i) {
    check(dl_barrier(world), world, "barrier");
    const auto begin = Clock::now();
    dl_comm* const group = make(world, all, 1000 + i);
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    reduce_small(group);
    if (i % kPerLarge == 0) reduce_large(group, buffer);
    reduce_in_background(group);
    send_round(group);
    dl_finalize(group);
    if (i == groups / 10) early = Cost();
  }
  rest(early);
  const Cost late;
  std::printf("%d groups of 4 ranks made, used and freed, from the %dth on\n", groups, groups / 10);
  limit("  more descriptors", static_cast<double>(late.descriptors - early.descriptors), 0, "");
  limit("  more threads", static_cast<double>(late.threads - early.threads), kPooled,
        "of all together");
  limit("  more shared memory", static_cast<double>(late.shared_kib - early.shared_kib), 256,
        "KiB");
  limit("  more memory of its own", static_cast<double>(late.private_kib - early.private_kib), 2048,
        "KiB");
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  std::printf("dl_group of 4 ranks: median %.3f ms, 90%% %.3f ms\n", median,
              times[times.size() * 9 / 10]);
  if (most_ms > 0) limit("  median", median, most_ms, "ms");
}

}  // namespace

int main(int argc, char** argv) {
  int groups = 1000;
  double most_ms = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--groups") == 0) groups = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--most-ms") == 0) most_ms = std::atof(argv[i + 1]);
  }
  dl_comm* world = nullptr;
  check(dl_init(nullptr, nullptr, &world), nullptr, "dl_init");
  if (dl_size(world) != 4) return 2;
  const bool tells = dl_rank(world) == 0;
  if (!tells && std::freopen("/dev/null", "w", stdout) == nullptr) return 2;
  std::vector<float> buffer(1 << 20);
  reduce_large(world, buffer);
  reduce_small(world);
  const int rank = dl_rank(world);
  idle_groups(world, {0, 1, 2, 3}, buffer);
  idle_groups(world, {rank & ~1, rank | 1}, buffer);
  many_groups(world, groups, buffer, most_ms);
  dl_finalize(world);
  return failures == 0 ? 0 : 1;
}
