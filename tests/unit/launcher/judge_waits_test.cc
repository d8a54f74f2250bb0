// A failure that may only be the end of a wait: whom the ranks waited for.
#include <algorithm>

#include <doctest/doctest.h>

#include "base/rank_set.h"
#include "job_facts.h"

using namespace dlaunch;

namespace {

const std::vector<std::string> kGaveUp = {
    "Traceback (most recent call last):", "  dist.all_reduce(x)",
    "RuntimeError: [unbound_buffer.cc:81] Timed out waiting 3000ms for recv operation to complete"};
const std::vector<std::string> kInCollective = {
    "Thread 9 (idle): \"MainThread\"", "    all_reduce (torch/distributed/distributed_c10d.py:8)",
    "    <module> (train.py:88)"};
const std::vector<std::string> kHeldByLock = {
    "Thread 9 (idle): \"MainThread\"", "    load (loader.py:17)", "    <module> (train.py:80)"};

JobFacts with_stacks(std::vector<WorkerEnd> workers, RankStacks stacks) {
  auto f = facts(std::move(workers));
  f.stacks = std::move(stacks);
  return f;
}

// The service of JAX ended this rank.
WorkerEnd ended_by_jax(int rank, int ms) {
  return says(killed(rank, ms, SIGABRT), {"*** Check failure stack trace: ***",
                                          "    @  0x7f  xla::CoordinationServiceAgent::SetError()",
                                          "    @  0x7f  tsl::PThread::ThreadFn()"});
}
// That, after a barrier timed out there.
WorkerEnd gave_up_in_jax(int rank, int ms) {
  return throws(ended_by_jax(rank, ms), ms - 4000,
                {"jax.errors.JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: step::0."});
}

TEST_CASE("a lost connection may be due to a rank that still ran, whatever its stack shows") {
  const auto f =
      with_stacks({says(exited(0, 5000, 1), kReset), stopped(1, 5500)}, {{1, kHeldByLock}});
  const auto verdict = judge(f);
  CHECK(verdict.suspects.ranks == RankSet{1});
  CHECK(ranks(f, verdict.maybe_cause) == RankSet{1});
}

}  // namespace

TEST_CASE(
    "a rank that gave up waiting is the root of exit code, and the one that did not is named") {
  const auto f = with_stacks({says(exited(0, 5000, 3), kGaveUp), says(exited(3, 5300, 1), kGaveUp),
                              stopped(2, 5500), stopped(1, 5500)},
                             {{1, kHeldByLock}, {2, kInCollective}, {3, kInCollective}});
  const auto verdict = judge(f);
  CHECK(verdict.root == 0);
  CHECK(verdict.exit_code == 3);
  CHECK(verdict.gave_up_waiting);
  CHECK(ranks(f, verdict.consequences) == RankSet{3});
  CHECK(verdict.suspects.ranks == RankSet{1});
  CHECK(verdict.suspects.only_one);
}

TEST_CASE("NCCL's counts name the rank that kept the others waiting if no stack does") {
  auto f = with_stacks({says(exited(0, 5000, 3), kGaveUp), stopped(1, 5500), stopped(2, 5500)},
                       {{1, kInCollective}, {2, kInCollective}});
  f.late_in_nccl = {1};
  f.nccl_says = "NCCL RAS: rank 1 is behind";
  const auto verdict = judge(f);
  CHECK(verdict.suspects.ranks == RankSet{1});
  CHECK_FALSE(verdict.suspects.only_one);
  const auto text = render_text(f, verdict, false);
  CHECK(std::find(text.begin(), text.end(), "  NCCL RAS: rank 1 is behind") != text.end());
  f.late_in_nccl = {0};  // that is the one that gave up
  CHECK(judge(f).suspects.ranks.empty());
  f.late_in_nccl = {1};
  f.stacks[2] = kHeldByLock;
  CHECK(judge(f).suspects.ranks == RankSet{2});  // its stack says more
}

TEST_CASE("a rank that our signal met on its way out of a wait is no suspect") {
  // Rank 2 was raising its exception when it was looked at.
  const auto raising = told(throws(exited(2, 5500, 1), 5010, kGaveUp));
  const auto f =
      with_stacks({says(exited(0, 5000, 1), kGaveUp), raising, stopped(1, 5500)},
                  {{1, kHeldByLock}, {2, {"thread 7 \"x\", running:", "  #0 f at e.c:1"}}});
  CHECK(judge(f).suspects.ranks == RankSet{1});
  CHECK(judge(f).suspects.only_one);
}

TEST_CASE("a cause that is known needs no suspect") {
  const auto f = with_stacks(
      {says(exited(0, 5000, 1), kGaveUp), says(exited(1, 5400, 7), kTraceback), stopped(2, 5500)},
      {{1, kHeldByLock}, {2, kInCollective}});
  const auto verdict = judge(f);
  CHECK(verdict.root == 1);
  CHECK(verdict.exit_code == 7);
  CHECK_FALSE(verdict.gave_up_waiting);
  CHECK(verdict.suspects.ranks.empty());
  CHECK(ranks(f, verdict.consequences) == RankSet{0});
}

TEST_CASE("a time-out of any kind is the root's own, but a suspect is looked for") {
  const auto slow = says(exited(0, 5000, 1), {"barrier: no answer, timed out"});
  auto f = with_stacks({slow, stopped(1, 5500), stopped(2, 5500)},
                       {{1, kHeldByLock}, {2, kInCollective}});
  CHECK_FALSE(judge(f).gave_up_waiting);
  CHECK(judge(f).suspects.ranks == RankSet{1});
  // All others waited: for this one.
  f.stacks[1] = kInCollective;
  CHECK(judge(f).suspects.ranks.empty());
}

TEST_CASE("a rank that JAX ends because the first one has ended may be the suspect") {
  const auto f =
      with_stacks({gave_up_in_jax(0, 9000), told(gave_up_in_jax(2, 9001)), ended_by_jax(1, 9001)},
                  {{1, kHeldByLock}, {2, kInCollective}});
  const auto verdict = judge(f);
  CHECK(verdict.root == 0);
  CHECK(verdict.gave_up_waiting);
  CHECK(verdict.suspects.ranks == RankSet{1});
  CHECK(verdict.suspects.only_one);
  CHECK(ranks(f, verdict.consequences) == RankSet{1});
  CHECK(ranks(f, verdict.stopped) == RankSet{2});
}

TEST_CASE("a rank that JAX ends before those that gave up may be the suspect, too") {
  const auto raising = std::vector<std::string>{"thread 7 \"x\", running:", "  #0 f at e.c:1"};
  auto f = with_stacks({ended_by_jax(1, 9000), gave_up_in_jax(0, 9001), gave_up_in_jax(2, 9002)},
                       {{0, raising}, {1, kHeldByLock}, {2, kInCollective}});
  const auto verdict = judge(f);
  CHECK(verdict.root == 1);  // rank 0
  CHECK(verdict.gave_up_waiting);
  CHECK(verdict.suspects.ranks == RankSet{1});
  CHECK(verdict.suspects.only_one);
  CHECK(ranks(f, verdict.consequences) == RankSet{1, 2});

  // Our signal came to the others before their own ends.
  f.workers = {ended_by_jax(1, 9000), told(gave_up_in_jax(0, 9001)), told(gave_up_in_jax(2, 9002))};
  CHECK(judge(f).suspects.ranks == RankSet{1});
  CHECK(judge(f).maybe_cause.empty());

  // Without a rank that gave up, JAX may have ended the first one for any reason.
  f.workers = {ended_by_jax(1, 9000), told(ended_by_jax(0, 9001)), stopped(2, 9002)};
  f.stacks.erase(0);
  CHECK(judge(f).suspects.ranks.empty());
}

TEST_CASE("words that give up a wait for other ranks") {
  const char* const kWords[] = {
      "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out "
      "waiting 1800000ms for recv operation to complete",
      "  what():  [Rank 0] NCCL watchdog thread terminated with exception: [Rank 0] Watchdog "
      "caught "
      "collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
      "Timeout(ms)=3000) ran for 3054 milliseconds before timing out.",
      "torch.distributed.DistStoreError: Timed out after 4 seconds waiting for clients. 1/2 "
      "clients "
      "joined.",
      "torch.distributed.DistStoreError: wait timeout after 3000ms, keys: /default_pg/0//cuda//0",
      "RuntimeError: Socket Timeout",
      "TimeoutError: The client socket has timed out after 3s while trying to connect to (h, 1).",
      "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: a::0.",
      "tensorflow.python.framework.errors_impl.DeadlineExceededError: Deadline Exceeded"};
  for (const char* words : kWords) {
    CAPTURE(words);
    const auto f = facts(
        {says(killed(0, 5000, SIGABRT), {words, "frame #0: f", "frame #1: g"}), stopped(1, 5500)});
    CHECK(judge(f).gave_up_waiting);
    CHECK(may_follow_from_wait(f.workers[0]));
  }
  CHECK_FALSE(may_follow_from_wait(says(exited(0, 5000, 1), {"ValueError: bad batch"})));
  CHECK_FALSE(may_follow_from_wait(says(killed(0, 5000, SIGSEGV), {"Socket Timeout"})));
  CHECK_FALSE(may_follow_from_wait(says(told(exited(0, 5000, 1)), {"Socket Timeout"})));
  CHECK_FALSE(may_follow_from_wait(says(exited(0, 5000, 0), {"Socket Timeout"})));
}
