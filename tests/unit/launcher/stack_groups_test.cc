// Equal stacks make one group, and the groups show the rank that the others wait for.
#include "launcher/wire/stack_groups.h"

#include <doctest/doctest.h>

#include "launcher/wire/stack_lines.h"

using namespace dlaunch;

namespace {

using Lines = std::vector<std::string>;

// Of PyTorch on Gloo, in Debian's Python, whose own symbols are stripped.
const Lines kWaitsInC10d = {
    "thread 9 \"python3\", sleeping:",
    "  #0 __futex_abstimed_wait_common at ./nptl/futex-internal.c:57",
    "  #1 pthread_cond_wait at ./nptl/pthread_cond_wait.c:503",
    "  #2 c10d::Work::wait(std::chrono::duration<long, std::ratio<1l, 1000l> >) in "
    "/usr/lib/x86_64-linux-gnu/libtorch_cpu.so.1.13.0",
    "  #3 0x7fcdbbba9b4d in /usr/lib/x86_64-linux-gnu/libtorch_python.so.1.13.0",
    "  #4 0x547b95 in /usr/bin/python3.11",
    "  #5 _PyObject_MakeTpCall in /usr/bin/python3.11",
    "  #6 _PyEval_EvalFrameDefault in /usr/bin/python3.11",
    "  #7 __libc_start_main at ../csu/libc-start.c:360",
    "thread 10 \"python3\", sleeping:",
    "  #0 epoll_wait at ../sysdeps/unix/sysv/linux/epoll_wait.c:30",
    "  #1 gloo::transport::tcp::Loop::run() in /usr/lib/libgloo.so.0.5.0"};
const Lines kInLock = {"thread 11 \"python3\", sleeping:",
                       "  #0 __futex_abstimed_wait_common at ./nptl/futex-internal.c:57",
                       "  #1 __new_sem_wait_slow64.constprop.0 at ./nptl/sem_waitcommon.c:183",
                       "  #2 PyThread_acquire_lock_timed in /usr/bin/python3.11",
                       "  #3 0x5899ae in /usr/bin/python3.11",
                       "  #4 PyObject_Vectorcall in /usr/bin/python3.11",
                       "  #5 _PyEval_EvalFrameDefault in /usr/bin/python3.11",
                       "thread 12 \"python3\", sleeping:",
                       "  #0 epoll_wait at ../sysdeps/unix/sysv/linux/epoll_wait.c:30",
                       "  #1 gloo::transport::tcp::Loop::run() in /usr/lib/libgloo.so.0.5.0"};

Lines with_python(const Lines& frames, const Lines& native) {
  Lines lines = {"Thread 9 (idle): \"MainThread\""};
  for (const auto& frame : frames) lines.push_back("    " + frame);
  lines.insert(lines.end(), native.begin(), native.end());
  return lines;
}

Lines mpi(const std::string& innermost, const std::string& call, int line) {
  return {"thread 5 \"prog\", running:", "  #0 " + innermost + " in /usr/lib/libopen-pal.so.40",
          "  #1 " + call + " in /usr/lib/libmpi.so.40.30.4",
          "  #2 main at prog.c:" + std::to_string(line),
          "  #3 __libc_start_main at ../csu/libc-start.c:360"};
}
Lines at(const std::string& innermost) {
  return {"thread 5 \"prog\", sleeping:", "  #0 " + innermost, "  #1 load(int) at data/loader.c:17",
          "  #2 main at prog.c:3"};
}

std::string words(const RankStacks& stacks) {
  std::string text;
  for (const auto& group : group_stacks(stacks)) {
    text += (text.empty() ? "" : "; ") + in_words(group);
  }
  return text;
}

Suspects suspects(const RankStacks& stacks, const RankSet& gave_up, int size) {
  return find_suspects(group_stacks(stacks), gave_up, size);
}

}  // namespace

TEST_CASE("Python frames and their C functions make one place") {
  const Lines waiting = with_python(
      {"all_reduce (/lib/python3/dist-packages/torch/distributed/distributed_c10d.py:8)",
       "step (/home/u/train.py:88)", "<module> (/home/u/train.py:100)"},
      kWaitsInC10d);
  const Lines locked =
      with_python({"load (/home/u/loader.py:17)", "<module> (/home/u/train.py:90)"}, kInLock);
  RankStacks stacks = {{1, locked}};
  for (const int rank : {0, 2, 3, 4, 5, 6, 7}) stacks[rank] = waiting;
  CHECK(words(stacks) ==
        "ranks 0,2-7: in all_reduce, train.py:88; rank 1: in lock.acquire, loader.py:17");
  const auto groups = group_stacks(stacks);
  CHECK(groups[0].waits);
  CHECK(groups[0].frames == Lines{"all_reduce (torch/distributed/distributed_c10d.py:8)",
                                  "step (/home/u/train.py:88)", "<module> (/home/u/train.py:100)"});
  CHECK_FALSE(groups[1].waits);
  CHECK(groups[1].frames ==
        Lines{"lock.acquire", "load (/home/u/loader.py:17)", "<module> (/home/u/train.py:90)"});
}

TEST_CASE("py-spy alone, and native frames alone, say enough to group") {
  const Lines waiting = {"Process 9: python3 train.py",
                         "Python v3.11.2 (/usr/bin/python3.11)",
                         "",
                         "Thread 10 (idle): \"Thread-1\"",
                         "    run (threading.py:5)",
                         "Thread 9 (idle): \"MainThread\"",
                         "    all_reduce (torch/distributed/distributed_c10d.py:1541)",
                         "    <module> (train.py:10)"};
  const Lines sleeping = {"Thread 9 (idle): \"MainThread\"", "    load (train.py:4)",
                          "    <module> (train.py:9)"};
  CHECK(words({{0, waiting}, {1, sleeping}, {2, waiting}}) ==
        "ranks 0,2: in all_reduce, train.py:10; rank 1: in load, train.py:4");
  CHECK(words({{0, kWaitsInC10d}, {1, kInLock}, {2, kWaitsInC10d}}) ==
        "ranks 0,2: in c10d::Work::wait; rank 1: in lock.acquire");
  CHECK(suspects({{0, kWaitsInC10d}, {1, kInLock}}, {}, 2).ranks == RankSet{1});
}

TEST_CASE("the frames of an interpreter with debug information are not the program's") {
  CHECK(words({{1,
                {"thread 1 \"python\", sleeping:", "  #0 futex_wait at ./nptl/futex-internal.c:57",
                 "  #1 PyThread_acquire_lock_timed at Python/thread_pthread.h:483",
                 "  #2 acquire_timed at ./Modules/_threadmodule.c:98",
                 "  #3 PyObject_Vectorcall at ./Include/internal/pycore_call.h:92",
                 "  #4 _PyEval_EvalFrameDefault at Python/ceval.c:4769"}}}) ==
        "rank 1: in lock.acquire");
}

TEST_CASE("ranks that wait in one call are one group, wherever its library polls") {
  const RankStacks stacks = {{0, mpi("opal_progress", "PMPI_Barrier", 12)},
                             {1, at("nanosleep in /lib/x86_64-linux-gnu/libc.so.6")},
                             {2, mpi("mca_btl_vader_poll", "PMPI_Barrier", 12)},
                             {3, mpi("0x7f00a1", "PMPI_Barrier", 12)}};
  CHECK(words(stacks) ==
        "ranks 0,2-3: in PMPI_Barrier, prog.c:12; rank 1: in nanosleep, loader.c:17");
  const auto found = suspects(stacks, {}, 4);
  CHECK(found.ranks == RankSet{1});
  CHECK(found.only_one);
}

TEST_CASE("the call of an accelerator waits if a thread of it exchanges data") {
  Lines lines = {"thread 5 \"python\", sleeping:",
                 "  #0 syscall in /lib/libc.so.6",
                 "  #1 tsl::BlockUntilReady(tsl::AsyncValue*) in /x/xla_extension.so",
                 "  #2 main at train.py:3",
                 "thread 6 \"python\", sleeping:",
                 "  #0 epoll_wait in /lib/libc.so.6",
                 "  #1 gloo::transport::tcp::Loop::run() in /x/xla_extension.so"};
  CHECK_FALSE(group_stacks({{0, lines}})[0].waits);
  lines.insert(lines.end(), {"thread 7 \"python\", sleeping:", "  #0 poll in /lib/libc.so.6",
                             "  #1 gloo::transport::tcp::UnboundBuffer::waitRecv(int*) in "
                             "/x/xla_extension.so"});
  CHECK(group_stacks({{0, lines}})[0].waits);
}

TEST_CASE("a stopped process does not wait, wherever it was stopped") {
  Lines stopped = mpi("opal_progress", "PMPI_Barrier", 12);
  stopped.insert(stopped.begin(), std::string(kStoppedLine));
  const auto groups = group_stacks({{1, stopped}});
  CHECK(groups[0].stopped);
  CHECK_FALSE(groups[0].waits);
  CHECK(groups[0].place == "stopped by a signal, in PMPI_Barrier, prog.c:12");
}

TEST_CASE("for a shell, the program below it counts") {
  Lines lines = {"thread 4 \"sh\", sleeping:", "  #0 wait4 in /lib/libc.so.6",
                 "  #1 0x55e1 in /usr/bin/dash", "below it prog (pid 5):"};
  const Lines below = mpi("opal_progress", "PMPI_Bcast", 3);
  lines.insert(lines.end(), below.begin(), below.end());
  CHECK(words({{3, lines}}) == "rank 3: in PMPI_Bcast, prog.c:3");
  // A program with a helper below it is looked at itself.
  Lines parent = at("read in /lib/libc.so.6");
  parent.insert(parent.end(), {"below it helper (pid 5):"});
  parent.insert(parent.end(), below.begin(), below.end());
  CHECK(words({{3, parent}}) == "rank 3: in read, loader.c:17");
}

TEST_CASE("a library's wrapper around the program is not a wait") {
  const Lines lines = {"Thread 9 (active): \"MainThread\"", "    busy (train.py:4)",
                       "    barrier (torch/distributed/distributed_c10d.py:1)"};
  CHECK_FALSE(group_stacks({{0, lines}})[0].waits);
}

TEST_CASE("unreadable stacks make a group without a suspect") {
  const RankStacks stacks = {{0, {"it has no process any more"}},
                             {1, {"this took too long, and dlaunch stopped it"}},
                             {2, {}}};
  CHECK(words(stacks) == "ranks 0-2: not known");
  CHECK(suspects(stacks, {3}, 4).ranks.empty());
  CHECK_FALSE(group_stacks({{0, {"thread 7 \"x\", running:", "  #0 0x7f in /x.so"}}})[0].known);
}

TEST_CASE("the suspected ranks") {
  const Lines waits = mpi("opal_progress", "PMPI_Barrier", 12);
  const Lines elsewhere = mpi("opal_progress", "PMPI_Bcast", 30);
  const Lines busy = at("0x55 in /home/u/prog");
  SUBCASE("the only survivor that does not wait, while all others gave up or wait") {
    const auto found = suspects({{1, busy}, {2, waits}}, {0, 3}, 4);
    CHECK(found.ranks == RankSet{1});
    CHECK(found.only_one);
  }
  SUBCASE("it is less certain if a rank is unaccounted for") {
    const auto found = suspects({{1, busy}, {2, waits}}, {0}, 4);
    CHECK(found.ranks == RankSet{1});
    CHECK_FALSE(found.only_one);
  }
  SUBCASE("a rank that gave up is no suspect, whatever it does on its way out") {
    const auto found = suspects({{1, busy}, {2, busy}}, {0, 2, 3}, 4);
    CHECK(found.ranks == RankSet{1});
    CHECK(found.only_one);
  }
  SUBCASE("several, if fewer than wait") {
    const auto found = suspects({{1, busy}, {3, busy}, {2, waits}}, {0}, 4);
    CHECK(found.ranks == RankSet{1, 3});
    CHECK_FALSE(found.only_one);
  }
  SUBCASE("nobody, if most do not wait") {
    CHECK(suspects({{1, busy}, {2, busy}, {3, busy}}, {0}, 4).ranks.empty());
  }
  SUBCASE("nobody, if none waits") {
    CHECK(suspects({{0, busy}, {1, at("read in /lib/libc.so.6")}}, {}, 2).ranks.empty());
  }
  SUBCASE("nobody, if all wait in one place") {
    CHECK(suspects({{0, waits}, {1, waits}, {2, waits}}, {}, 3).ranks.empty());
  }
  SUBCASE("one that waits elsewhere, but not for certain") {
    const auto found = suspects({{0, waits}, {1, elsewhere}, {2, waits}}, {}, 3);
    CHECK(found.ranks == RankSet{1});
    CHECK_FALSE(found.only_one);
  }
  SUBCASE("nobody, if two wait in two places") {
    CHECK(suspects({{0, waits}, {1, elsewhere}}, {}, 2).ranks.empty());
    CHECK(suspects({{1, elsewhere}}, {0}, 2).ranks.empty());
    CHECK(suspects({{0, waits}, {1, elsewhere}, {2, waits}, {3, elsewhere}}, {}, 4).ranks.empty());
  }
  SUBCASE("the last one in a collective that all others have given up came late") {
    for (const RankStacks& stacks : {RankStacks{{1, waits}}, RankStacks{}}) {
      const auto found = suspects(stacks, {0, 2, 3}, 4);
      CHECK(found.ranks == RankSet{1});
      CHECK_FALSE(found.only_one);
    }
  }
}
