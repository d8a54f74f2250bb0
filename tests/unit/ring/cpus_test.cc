// Ranks that may run on different CPUs, as under launchers that bind some of them.
#include "base/cpus.h"

#include <sched.h>

#include <chrono>

#include "process_world.h"
#include "ring/call/spread.h"

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

TEST_CASE("cpus: a bound thread has the CPUs of its binding") {
  CHECK(end_of(start([] { return bind_to_one() && count_cpus(own_cpus()) == 1 ? 0 : 1; })) == 0);
}

TEST_CASE("cpus: more ranks than CPUs share them evenly, and yield to ranks that need one") {
  struct Rank {
    int core;
    bool has_come;
  };
  const auto decided = [](int own, int share, const std::vector<Rank>& ranks) {
    const auto at = [&](int r) { return ranks[static_cast<std::size_t>(r)]; };
    return while_waiting(
        own, static_cast<int>(ranks.size()), share, [&](int r) { return at(r).core; },
        [&](int r) { return at(r).has_come; });
  };
  const std::vector<Rank> even = {{0, true}, {1, true}, {1, false}, {0, true}};
  CHECK(decided(0, 2, even) == Core::keep);
  CHECK(decided(3, 2, even) == Core::keep);
  CHECK(decided(1, 2, even) == Core::offer);
  const std::vector<Rank> crowd = {{0, true}, {0, false}, {0, true}, {1, true}};
  CHECK(decided(0, 2, crowd) == Core::offer);
  CHECK(decided(2, 2, crowd) == Core::leave);
  CHECK(decided(3, 2, crowd) == Core::keep);
  CHECK(decided(2, 3, crowd) == Core::offer);
}

TEST_CASE(
    "cpus: of two on one core the one whose turn it is leaves at once, the other one after a "
    "while") {
  if (count_cpus(own_cpus()) < 2) return;
  const int usable = count_cpus(own_cpus());
  const auto there = [](int core) { return [core] { return std::vector<int>{core}; }; };
  // The scheduler may move it between the look and the call.
  const auto moves_at_once = [&] {
    for (int i = 0; i < 100; ++i) {
      const int core = current_core();
      Spread spread(0);
      if (spread.move_away_from(steady_now(), core, &spread, true, there(core)) &&
          current_core() != core) {
        return true;
      }
    }
    return false;
  };
  CHECK(moves_at_once());
  CHECK(count_cpus(own_cpus()) == usable);
  CHECK_FALSE(Spread(0).move_away_from(steady_now(), -1, nullptr, true, there(-1)));

  // Until the other one has had its turn this thread stays, however often it looks.
  Spread second(0);
  const TimePoint begun = steady_now();
  bool moved = false;
  while (!moved && steady_now() - begun < std::chrono::seconds(10)) {
    const int core = current_core();
    moved = second.move_away_from(steady_now(), core, &second, false, there(core));
  }
  CHECK(moved);
  CHECK(steady_now() - begun >= std::chrono::milliseconds(2));
}

TEST_CASE("cpus: a rank moves to the core with the fewest ranks, if that helps") {
  const auto from = [](int own, std::vector<int> others, std::vector<int> allowed, int rank = 0) {
    return emptier_core(rank, own, others, allowed);
  };
  CHECK(from(0, {0}, {0, 1}) == 1);
  CHECK(from(1, {1, 0, 2}, {0, 1, 2, 3}) == 3);
  CHECK(from(3, {3, 0, 2}, {0, 1, 2, 3}) == 1);
  for (const auto& [rank, core] : {std::pair{0, 0}, {1, 2}, {2, 3}, {3, 0}}) {
    CHECK(from(1, {1, -1}, {0, 1, 2, 3}, rank) == core);  // each another one of several
  }
  CHECK(from(1, {1, 0, 2, 3}, {0, 1, 2, 3}) == -1);  // as many neighbours there
  CHECK(from(1, {1, 1, 0}, {0, 1}) == 0);            // of three that share it
  CHECK(from(1, {1, 1, 0}, {0, 1, 2}) == 2);
  CHECK(from(1, {1, 0}, {1, 6}) == 6);  // what is not allowed does not count
  CHECK(from(1, {1}, {1}) == -1);
  CHECK(from(1, {0}, {0, 1, 2}) == -1);  // alone already
}

TEST_CASE("cpus: only one of two ranks on a core leaves it") {
  const TimePoint begun = steady_now();
  const auto at = [&](int ms) { return begun + std::chrono::milliseconds(ms); };
  const int a = 0, b = 0;  // who is waited for
  const auto looks = [](Spread& spread, TimePoint now, int core, const int* whom) {
    return spread.should_move(now, 3, core, whom, false);
  };
  Spread first(0), second(1);
  CHECK(first.should_move(at(0), 3, 3, &a, true));
  CHECK_FALSE(first.should_move(at(0), 5, 3, &a, true));
  CHECK_FALSE(looks(second, at(0), 3, &a));
  CHECK_FALSE(looks(second, at(1), 3, &a));
  CHECK(looks(second, at(2), 3, &a));
  CHECK_FALSE(looks(second, at(3), 3, &a));  // the other one has its turn again
  // One elsewhere says nothing of this one; that this one has gone does.
  Spread third(0);
  CHECK_FALSE(looks(third, at(0), 3, &a));
  CHECK_FALSE(looks(third, at(1), 4, &b));
  CHECK(looks(third, at(2), 3, &a));
  Spread fourth(0);
  CHECK_FALSE(looks(fourth, at(0), 3, &a));
  CHECK_FALSE(looks(fourth, at(1), 4, &a));
  CHECK_FALSE(looks(fourth, at(2), 3, &a));
  // One look long ago says nothing about now.
  Spread rare(0);
  CHECK_FALSE(looks(rare, at(0), 3, &a));
  CHECK_FALSE(looks(rare, at(50), 3, &a));
  CHECK(looks(rare, at(52), 3, &a));
  // Where moving does not help, ever more seldom.
  Spread vain(0);
  int moves = 0;
  for (int ms = 0; ms < 1000; ++ms) moves += vain.should_move(at(ms), 3, 3, &a, true) ? 1 : 0;
  CHECK(moves == 10);
}

TEST_CASE("cpus: ranks make the same plan, although their CPUs differ") {
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
