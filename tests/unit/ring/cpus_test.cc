// Ranks that may run on different CPUs, as under launchers that bind some of them.
#include "base/cpus.h"

#include <sched.h>

#include "process_world.h"

using namespace dlaunch;

namespace {

// To one of the CPUs that it may use.
bool bind_to_one() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return false;
  int cpu = 0;
  while (!CPU_ISSET(cpu, &set)) ++cpu;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

int add_up(int rank, dl_comm* comm) {
  const int ranks = dl_size(comm);
  for (const std::size_t count : {1u, 1u << 12, 1u << 16, 1u << 18, 1u << 20}) {
    std::vector<float> x(count, 1);
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), count, DL_FLOAT32, DL_SUM) == DL_OK);
    EXPECT(x.front() == static_cast<float>(ranks) && x.back() == x.front());
  }
  return 0;
}

}  // namespace

TEST_CASE("cpus: sets are united and counted") {
  CHECK(count_cpus("") == 0);
  CHECK(count_cpus("\xff\x81") == 10);
  CHECK(united("\x01", "\x02\x80") == "\x03\x80");
  CHECK(united("\x02\x80", "") == "\x02\x80");
  CHECK(count_cpus(own_cpus()) >= 1);
  CHECK(own_cpus().back() != '\0');
}

TEST_CASE("cpus: a thread that is bound has those it is bound to") {
  CHECK(end_of(start([] { return bind_to_one() && count_cpus(own_cpus()) == 1 ? 0 : 1; })) == 0);
}

TEST_CASE("cpus: ranks plan alike, whatever each of them may run on") {
  for (const char* const transport : kTransports) {
    for (const int ranks : {2, 3}) {
      CAPTURE(transport);
      CAPTURE(ranks);
      const TempFolder folder;
      std::vector<pid_t> pids;
      for (int rank = 0; rank < ranks; ++rank) {
        pids.push_back(start([&, rank] {
          dl_comm* comm = nullptr;
          if (rank == 1) EXPECT(bind_to_one());
          EXPECT(join(folder.url(), {ranks, transport, 30, 20}, rank, comm) == DL_OK);
          EXPECT(add_up(rank, comm) == 0);
          dl_comm* group = nullptr;  // the first one alone, the others together
          EXPECT(dl_split(comm, rank == 0 ? 0 : 1, 0, &group) == DL_OK);
          EXPECT(add_up(rank, group) == 0);
          dl_finalize(group);
          dl_finalize(comm);
          return 0;
        }));
      }
      for (const pid_t pid : pids) CHECK(end_of(pid) == 0);
    }
  }
}
