// The first worker that failed by itself: a row for each case, with workers in the order of their
// ends.
#include <cerrno>
#include <optional>

#include <doctest/doctest.h>

#include "base/exit_code.h"
#include "base/rank_set.h"
#include "job_facts.h"

using namespace dlaunch;

namespace {

const std::vector<std::string> kBrokenTraceback = {"Traceback (most recent call last):", "  recv()",
                                                   kReset[0]};
const std::vector<std::string> kNoise(20, "wandb: uploading");
constexpr const char* kException = R"({"message": {"message": "ValueError: x"}})";
constexpr const char* kBrokenPeer =
    R"({"message": {"message": "RuntimeError: Connection closed by peer [127.0.0.1]:4711"}})";

WorkerEnd with_message(WorkerEnd w, std::vector<std::string> more) {
  w.traceback->behind = std::move(more);
  return w;
}

struct Case {
  const char* name;
  std::vector<WorkerEnd> workers;
  int root;
  int exit_code;
  RankSet own_failures, consequences, stopped;
};

void check(const Case& c) {
  CAPTURE(c.name);
  const auto f = facts(c.workers);
  const auto verdict = judge(f);
  REQUIRE(verdict.root);
  CHECK(f.workers[*verdict.root].rank == c.root);
  CHECK(verdict.exit_code == c.exit_code);
  CHECK(ranks(f, verdict.own_failures) == c.own_failures);
  CHECK(ranks(f, verdict.consequences) == c.consequences);
  CHECK(ranks(f, verdict.stopped) == c.stopped);
}

}  // namespace

TEST_CASE("the earliest own failure is the root, and its code is ours") {
  const Case cases[] = {
      {"one fails, one is stopped, one had ended well",
       {exited(1, 10, 0), exited(2, 50, 7), stopped(0, 60)},
       2,
       7,
       {},
       {},
       {0}},
      {"a later failure by itself", {exited(2, 50, 7), exited(3, 51, 9)}, 2, 7, {3}, {}, {}},
      {"a crash", {killed(0, 5, SIGSEGV)}, 0, 139, {}, {}, {}},
      {"a SIGKILL from elsewhere", {killed(0, 5, SIGKILL), stopped(1, 6)}, 0, 137, {}, {}, {1}},
      {"a SIGTERM from elsewhere", {killed(0, 5, SIGTERM), stopped(1, 6)}, 0, 143, {}, {}, {1}},
  };
  for (const auto& c : cases) check(c);
}

TEST_CASE("a rank with corrupt data is the root, also when its end was slow") {
  const auto corrupt = [](WorkerEnd w, int rank) {
    w.corrupt = "all_reduce #7: other results";
    w.corrupt_rank = rank;
    return w;
  };
  const auto loses = [](WorkerEnd w, int peer) {
    w.peer_lost = peer;
    return w;
  };
  const Case cases[] = {
      {"it ends last",
       {loses(exited(0, 5, 1), 1), loses(exited(2, 6, 1), 1), corrupt(exited(1, 9, 3), 1)},
       1,
       kExitCorrupt,
       {},
       {0, 2},
       {}},
      {"dlaunch ends it",
       {loses(exited(0, 5, 1), 1), corrupt(stopped(1, 9), 1)},
       1,
       kExitCorrupt,
       {},
       {0},
       {}},
      {"none is known",
       {corrupt(exited(1, 5, 1), -1), corrupt(exited(0, 6, 1), -1)},
       1,
       kExitCorrupt,
       {0},
       {},
       {}},
      {"it exits with 0",
       {exited(0, 5, 0), corrupt(exited(1, 6, 0), 1)},
       1,
       kExitCorrupt,
       {},
       {},
       {}},
      {"all exit with 0, and none is known",
       {corrupt(exited(0, 5, 0), -1), corrupt(exited(1, 6, 0), -1)},
       0,
       kExitCorrupt,
       {1},
       {},
       {}},
  };
  for (const auto& c : cases) check(c);
  const auto named = facts(cases[1].workers), unknown = facts(cases[2].workers);
  const auto headline = [](const JobFacts& f) { return render_text(f, judge(f), false).front(); };
  CHECK(headline(named).find(" had corrupt data (all_reduce #7: other results): ") !=
        std::string::npos);
  CHECK(headline(unknown).starts_with("the ranks had different results (all_reduce #7: other "));
  CHECK(failure_kind(named.workers[1]) == FailureKind::corrupt);
  CHECK(failure_kind(unknown.workers[1]) == FailureKind::corrupt);
}

TEST_CASE("a host that is lost is the cause where nobody had failed by himself before") {
  JobFacts facts;
  facts.end = JobEnding::worker_failed;
  facts.lost_host = "b";
  facts.lost_ranks = {2, 3};
  facts.workers = {exited(0, 10, 0), exited(1, 500, 1), stopped(4, 600)};
  facts.ended_before_loss = 1;
  const Verdict lost = judge(facts);
  CHECK((lost.lost_host && !lost.root && lost.exit_code == 69));
  CHECK(render_text(facts, lost, false).front().starts_with("host b was lost with ranks 2-3 "));
  facts.ended_before_loss = 2;
  const Verdict failed = judge(facts);
  CHECK((!failed.lost_host && failed.root == 1u && failed.exit_code == 1));
}

TEST_CASE("of failures on two hosts the first is the root, with doubts where clocks leave any") {
  const auto on = [](WorkerEnd w, const char* host, Duration error) {
    w.host = host;
    w.clock_error = error;
    return w;
  };
  using namespace std::chrono_literals;
  JobFacts clear = facts({on(exited(0, 500, 3), "", 0ms), on(exited(2, 503, 4), "b", 2ms)});
  const Verdict first = judge(clear);
  CHECK(first.root == 0u);
  CHECK(first.maybe_first.empty());
  CHECK(render_text(clear, first, false).at(1) ==
        "  3 ms later: rank 2 (pid 102 on host b): exit code 4; the clocks of these hosts were "
        "compared to within 2 ms");
  // Each host's clock is compared with the leader's, so the errors of two others add up.
  JobFacts doubtful = facts({on(exited(1, 500, 3), "c", 2ms), on(exited(2, 503, 4), "b", 2ms),
                             on(exited(3, 503, 5), "c", 2ms), on(exited(4, 505, 6), "b", 2ms)});
  const Verdict doubt = judge(doubtful);
  CHECK(doubt.root == 0u);
  CHECK(doubt.maybe_first == std::vector<std::size_t>{1});  // on c one clock tells
  const auto text = render_text(doubtful, doubt, false);
  CHECK(text.at(1).ends_with("to within 4 ms, so this may have been the first"));
  CHECK(text.at(2) == "  3 ms later: rank 3 (pid 103): exit code 5");
  CHECK(render_json(doubtful, doubt).find("\"maybe_first\"") != std::string::npos);
  // What a peer had told the other of explains it, whatever the clocks say.
  JobFacts told =
      facts({on(exited(1, 500, 3), "c", 2ms), lost(1, on(exited(2, 501, 4), "b", 2ms))});
  CHECK(judge(told).maybe_first.empty());
}

TEST_CASE("what ended after a signal of ours did not fail by itself, unless it shows so") {
  const Case cases[] = {
      {"by that signal, by a code for it, by any code, by SIGKILL after the grace",
       {exited(0, 5, 7), stopped(1, 6), told(exited(2, 7, 143)), told(exited(3, 8, 1)),
        told(killed(4, 9, SIGTERM), SIGKILL), stopped(5, 10, SIGKILL)},
       0,
       7,
       {},
       {},
       {1, 2, 3, 4, 5}},
      {"by an earlier one of our signals than the last, or when it wrote to who was gone",
       {exited(0, 5, 7), told(killed(1, 6, SIGINT)), told(killed(2, 7, SIGHUP)),
        told(killed(3, 8, SIGQUIT)), told(killed(4, 9, SIGPIPE))},
       0,
       7,
       {},
       {},
       {1, 2, 3, 4}},
      {"a crash meanwhile, or a SIGKILL that was not ours",
       {exited(0, 5, 7), told(killed(1, 6, SIGSEGV)), told(killed(2, 7, SIGKILL))},
       0,
       7,
       {1, 2},
       {},
       {}},
      {"an error file of its own",
       {exited(0, 5, 7), notes(told(exited(1, 6, 1)), kException)},
       0,
       7,
       {1},
       {},
       {}},
      {"an exception from after our signal is the answer to it",
       {exited(0, 5, 7), says(told(exited(1, 6, 1)), kTraceback)},
       0,
       7,
       {},
       {},
       {1}},
      {"all had our signal before we saw them end: an exit code speaks",
       {stopped(0, 5), told(exited(1, 6, 3)), stopped(2, 7)},
       1,
       3,
       {},
       {},
       {0, 2}},
      {"nothing speaks", {stopped(0, 5), stopped(1, 6)}, 0, 143, {}, {}, {1}},
  };
  for (const auto& c : cases) check(c);
}

TEST_CASE("a worker that lost a peer according to libdlring is a consequence") {
  const Case cases[] = {
      {"though it ended first",
       {lost(2, exited(0, 10, 1)), lost(2, exited(1, 11, 1)), killed(2, 12, SIGSEGV)},
       2,
       139,
       {},
       {0, 1},
       {}},
      {"though nobody caught the exception",
       {lost(2, killed(0, 10, SIGABRT)), killed(2, 12, SIGSEGV)},
       2,
       139,
       {},
       {0},
       {}},
      {"whenever it ended",
       {killed(2, 1, SIGSEGV), lost(2, exited(0, 60000, 1))},
       2,
       139,
       {},
       {0},
       {}},
      {"in a chain",
       {lost(1, exited(0, 10, 1)), lost(2, exited(1, 11, 1)), exited(2, 12, 5)},
       2,
       5,
       {},
       {0, 1},
       {}},
      {"we stopped the peer while its exception was on its way out",
       {lost(1, exited(0, 10, 3)), notes(stopped(1, 12), kException)},
       1,
       3,
       {},
       {0},
       {}},
      {"or while it exited",
       {lost(1, exited(0, 10, 3)), told(exited(1, 12, 4))},
       1,
       4,
       {},
       {0},
       {}},
      {"the peer's own connection broke",
       {lost(1, exited(0, 10, 3)), says(exited(1, 12, 4), kReset)},
       1,
       4,
       {},
       {0},
       {}},
  };
  for (const auto& c : cases) check(c);
}

TEST_CASE("a worker that hung is the cause, though the signal was ours") {
  auto hung = stopped(1, 20, SIGKILL);
  hung.hung = "in no collective";
  check({"alone", {hung, stopped(0, 30)}, 1, 137, {}, {}, {0}});
  check({"a peer missed it", {lost(1, exited(0, 10, 3)), hung}, 1, 137, {}, {0}, {}});
  auto thrown = told(exited(1, 20, 5));
  thrown.hung = hung.hung;
  check({"it ended by itself then", {thrown, stopped(0, 30)}, 1, 5, {}, {}, {0}});
}

TEST_CASE("a lost peer that had left early is named") {
  const auto f = facts({exited(1, 5, 0), lost(1, exited(0, 10, 3)), lost(1, exited(2, 11, 1))});
  const auto verdict = judge(f);
  CHECK(verdict.left_early == 1);
  CHECK(verdict.root == 1u);
  CHECK(verdict.exit_code == 3);
  CHECK(verdict.consequences == std::vector<std::size_t>{2});
  // Through another that lost it.
  const auto chain =
      judge(facts({exited(2, 5, 0), lost(1, exited(0, 10, 3)), lost(2, exited(1, 11, 4))}));
  CHECK(chain.left_early == 2);
  CHECK(chain.root == 2u);
}

TEST_CASE("the report says that nothing explains a loss") {
  auto verdict = judge(facts({lost(1, exited(0, 10, 3)), stopped(1, 20)}));
  CHECK(verdict.root == 0u);
  CHECK(verdict.lost_unseen == 1);
  CHECK(verdict.exit_code == 3);
  verdict = judge(facts({lost(0, exited(1, 10, 3)), stopped(0, 20)}));
  CHECK((verdict.lost_unseen == 0 && !verdict.lost_each_other));
  // It ended well, but only when told to.
  CHECK(judge(facts({lost(1, exited(0, 10, 3)), told(exited(1, 20, 0))})).lost_unseen == 1);
  // A rank of another node.
  CHECK(judge(facts({lost(9, exited(0, 10, 3))})).lost_unseen == 9);
  verdict = judge(facts({lost(1, exited(0, 10, 3)), lost(0, exited(1, 11, 4))}));
  CHECK(verdict.lost_each_other);
  CHECK(verdict.root == 0u);
  CHECK(verdict.lost_unseen == -1);
  // Better explained by one whose connection broke.
  verdict =
      judge(facts({lost(1, exited(0, 10, 3)), says(exited(2, 11, 5), kReset), stopped(1, 20)}));
  CHECK(verdict.root == 1u);
  CHECK(verdict.lost_unseen == -1);
}

TEST_CASE("words of a broken connection only break ties within two seconds") {
  const auto reset = says(exited(0, 10, 1), kReset);
  const Case cases[] = {
      {"another failed soon after", {reset, exited(1, 1500, 3)}, 1, 3, {}, {0}, {}},
      {"just within", {reset, exited(1, 2010, 3)}, 1, 3, {}, {0}, {}},
      {"just not", {reset, exited(1, 2011, 3)}, 0, 1, {1}, {}, {}},
      {"another failed before", {exited(1, 5, 3), reset}, 1, 3, {}, {0}, {}},
      {"but long before", {exited(1, 5, 3), says(exited(0, 5000, 1), kReset)}, 1, 3, {0}, {}, {}},
      {"nobody else failed by itself", {reset, stopped(1, 20)}, 0, 1, {}, {}, {1}},
      {"all complain", {reset, says(exited(1, 11, 2), kReset)}, 0, 1, {}, {1}, {}},
      {"nobody caught the exception",
       {says(killed(0, 10, SIGABRT), kReset), exited(1, 20, 3)},
       1,
       3,
       {},
       {0},
       {}},
      {"a crash is a cause of its own",
       {says(killed(0, 10, SIGSEGV), kReset), exited(1, 20, 3)},
       0,
       139,
       {1},
       {},
       {}},
      {"SIGPIPE needs no words", {killed(0, 10, SIGPIPE), exited(1, 20, 3)}, 1, 3, {}, {0}, {}},
      {"not its last words",
       {says(exited(0, 10, 1), {"Broken pipe", "1", "2", "3", "4", "5", "6", "7", "8"}),
        exited(1, 20, 3)},
       0,
       1,
       {1},
       {},
       {}},
      {"the error file says it",
       {notes(exited(0, 10, 1), kBrokenPeer), exited(1, 20, 3)},
       1,
       3,
       {},
       {0},
       {}},
      {"the error file says otherwise",
       {notes(says(exited(0, 10, 1), kReset), kException), exited(1, 20, 3)},
       0,
       1,
       {1},
       {},
       {}},
  };
  for (const auto& c : cases) check(c);
}

TEST_CASE("a broken connection, as sockets, Gloo, NCCL and Python say it") {
  for (const char* words :
       {"Connection reset by peer", "Connection closed by peer [10.0.0.1]:4711",
        "Connection closed by remote peer", "the connection was closed", "Broken pipe",
        "Socket closed", "remote process exited or there was a network error", "ECONNRESET"}) {
    check({words, {says(exited(0, 10, 1), {words}), exited(1, 20, 3)}, 1, 3, {}, {0}, {}});
  }
}

TEST_CASE("a worker that was still dying of an exception when we stopped it is the root") {
  const auto reset = says(exited(0, 10, 1), kReset);
  const Case cases[] = {
      {"its traceback stood there; our signal hid its code",
       {reset, throws(stopped(1, 20), 8, kTraceback), stopped(2, 21)},
       1,
       1,
       {},
       {0},
       {2}},
      {"and has scrolled out of what is kept of stderr",
       {reset, says(throws(stopped(1, 20), 8, kTraceback), kNoise)},
       1,
       1,
       {},
       {0},
       {}},
      {"or was so long, or odd, that its end is not known",
       {reset, throws(stopped(1, 20), 8, {})},
       1,
       1,
       {},
       {0},
       {}},
      {"and it took until our SIGKILL to end",
       {reset, throws(stopped(1, 10020, SIGKILL), 8, kTraceback)},
       1,
       1,
       {},
       {0},
       {}},
      {"of two the first to throw, however long it took to end",
       {reset, throws(stopped(2, 15), 9, kTraceback), throws(stopped(1, 2020), 8, kTraceback)},
       1,
       1,
       {2},
       {0},
       {}},
      {"that what it wrote afterwards is of connections means nothing",
       {reset, says(throws(stopped(1, 20), 8, kTraceback), kReset)},
       1,
       1,
       {},
       {0},
       {}},
      {"its error file", {reset, notes(told(exited(1, 20, 5)), kException)}, 1, 5, {}, {0}, {}},
      {"an exception long after is no cause",
       {reset, notes(told(exited(1, 3000, 5)), kException)},
       0,
       1,
       {1},
       {},
       {}},
      {"an exception that only complains",
       {reset, notes(told(exited(1, 20, 5)), kBrokenPeer)},
       0,
       1,
       {},
       {},
       {1}},
      {"a traceback that only complains",
       {reset, throws(stopped(1, 20), 8, kBrokenTraceback)},
       0,
       1,
       {},
       {},
       {1}},
  };
  for (const auto& c : cases) check(c);
}

TEST_CASE("an exception that was logged long before the first failure did not end its worker") {
  const auto reset = says(exited(0, 9000, 1), kReset);
  const Case cases[] = {
      {"hours before", {reset, throws(stopped(1, 9020), 10, kTraceback)}, 0, 1, {}, {}, {1}},
      {"where stderr still has it",
       {reset, says(throws(stopped(1, 9020), 10, kTraceback), kTraceback)},
       0,
       1,
       {},
       {},
       {1}},
      {"just not", {reset, throws(stopped(1, 9020), 6999, kTraceback)}, 0, 1, {}, {}, {1}},
      {"just", {reset, throws(stopped(1, 9020), 7000, kTraceback)}, 1, 1, {}, {0}, {}},
      {"a worker with code 0 is no failure",
       {exited(2, 5, 0), reset, throws(stopped(1, 9020), 10, kTraceback)},
       0,
       1,
       {},
       {},
       {1}},
  };
  for (const auto& c : cases) check(c);
}

TEST_CASE("the last traceback has the last words, whatever was written after it") {
  const auto reset = says(exited(0, 10, 1), kReset);
  const Case cases[] = {
      {"of a broken connection",
       {says(throws(exited(0, 10, 1), 5, kBrokenTraceback), kNoise), exited(1, 20, 3)},
       1,
       3,
       {},
       {0},
       {}},
      {"of something else",
       {reset, says(throws(exited(1, 20, 3), 15, kTraceback), kReset)},
       1,
       3,
       {},
       {0},
       {}},
      {"which may go on behind the line that names the exception",
       {says(with_message(throws(exited(0, 10, 1), 5, kTraceback), kReset), kNoise),
        exited(1, 20, 3)},
       1,
       3,
       {},
       {0},
       {}},
      {"but not an old one",
       {says(throws(exited(0, 3000, 1), 5, kBrokenTraceback), kNoise), exited(1, 3020, 3)},
       0,
       1,
       {1},
       {},
       {}},
  };
  for (const auto& c : cases) check(c);
}

TEST_CASE("exit codes of our own") {
  CHECK(judge(facts({}, JobEnding::succeeded)).exit_code == 0);
  CHECK(judge(facts({}, JobEnding::timed_out)).exit_code == kExitTimeout);
  CHECK(judge(facts({stopped(0, 5)}, JobEnding::given_up)).exit_code == kExitRendezvous);
  CHECK_FALSE(judge(facts({stopped(0, 5)}, JobEnding::given_up)).root);
  auto differed = facts({stopped(0, 5)}, JobEnding::given_up);
  differed.corrupt = true;
  CHECK(judge(differed).exit_code == kExitCorrupt);
  CHECK(judge(facts({}, JobEnding::setup_failed)).exit_code == kExitCannotCreate);
  CHECK(judge(facts({}, JobEnding::worker_failed)).exit_code == kExitInternal);
  auto f = facts({stopped(0, 5), told(killed(1, 6, SIGSEGV))}, JobEnding::interrupted);
  f.signal_received = SIGTERM;
  const auto verdict = judge(f);
  CHECK(verdict.exit_code == 143);
  CHECK_FALSE(verdict.root);
  CHECK(verdict.stopped == std::vector<std::size_t>{0});
  CHECK(verdict.own_failures == std::vector<std::size_t>{1});
  f = facts({}, JobEnding::spawn_failed);
  f.failed_stage = Stage::exec;
  f.failed_errno = ENOENT;
  CHECK(judge(f).exit_code == kExitNotFound);
  f.failed_errno = EACCES;
  CHECK(judge(f).exit_code == kExitCannotExec);
  f.failed_stage = Stage::chdir;
  CHECK(judge(f).exit_code == kExitSystem);
}

TEST_CASE("whatever happened, everybody who failed stands in exactly one place") {
  // Each of three workers in each of these ways, in each order: 14^3 jobs.
  using Make = WorkerEnd (*)(int rank, int ms);
  const Make ways[] = {
      [](int r, int ms) { return exited(r, ms, 0); },
      [](int r, int ms) { return exited(r, ms, 7); },
      [](int r, int ms) { return killed(r, ms, SIGSEGV); },
      [](int r, int ms) { return killed(r, ms, SIGPIPE); },
      [](int r, int ms) { return stopped(r, ms); },
      [](int r, int ms) { return told(exited(r, ms, 0)); },
      [](int r, int ms) { return told(exited(r, ms, 1)); },
      [](int r, int ms) { return told(killed(r, ms, SIGSEGV)); },
      [](int r, int ms) { return lost((r + 1) % 3, exited(r, ms, 1)); },
      [](int r, int ms) { return lost((r + 2) % 3, stopped(r, ms)); },
      [](int r, int ms) { return says(exited(r, ms, 1), kReset); },
      [](int r, int ms) { return notes(told(exited(r, ms, 1)), kException); },
      [](int r, int ms) { return throws(stopped(r, ms), ms - 5, kTraceback); },
      [](int r, int ms) { return throws(exited(r, ms, 1), ms - 5, kBrokenTraceback); },
  };
  for (const Make a : ways) {
    for (const Make b : ways) {
      for (const Make c : ways) {
        const auto f = facts({a(0, 10), b(1, 20), c(2, 2500)});
        const auto verdict = judge(f);
        std::multiset<std::size_t> placed;
        if (verdict.root) placed.insert(*verdict.root);
        for (const auto* group : {&verdict.own_failures, &verdict.consequences, &verdict.stopped}) {
          placed.insert(group->begin(), group->end());
        }
        std::multiset<std::size_t> failed;
        for (std::size_t i = 0; i < 3; ++i) {
          if (f.workers[i].signal != 0 || f.workers[i].exit_code != 0) failed.insert(i);
        }
        CHECK(placed == failed);
        CHECK(verdict.root.has_value() == !failed.empty());
        if (verdict.root) CHECK(verdict.exit_code != 0);
      }
    }
  }
}
