// The report as people and as programs read it.
#include "launcher/lead/report/report.h"

#include <algorithm>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/signal_name.h"
#include "job_facts.h"
#include "launcher/wire/after_traceback.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Lines = std::vector<std::string>;

Lines text(const JobFacts& f) { return render_text(f, judge(f), false); }
std::string python(const std::string& message, const std::string& traceback) {
  return nlohmann::json{
      {"message",
       {{"message", message}, {"extraInfo", {{"py_callstack", traceback}, {"timestamp", "1"}}}}}}
      .dump();
}

}  // namespace

TEST_CASE("a failure with everything that may follow it") {
  CHECK(text(facts({lost(2, exited(4, 1202, 1)),
                    says(exited(2, 1203, 7), {"loading", "disk on fire", ""}),
                    killed(3, 1204, SIGSEGV), says(exited(5, 1250, 1), {"Broken pipe"}),
                    stopped(0, 1210), stopped(1, 11210, SIGKILL)})) ==
        Lines{
            "rank 2 (pid 102 on host h) failed first: exit code 7 after 1.203 s",
            "  last lines of its stderr:",
            "    loading",
            "    disk on fire",
            "  1 ms later: rank 3 (pid 103): killed by SIGSEGV (segmentation fault)",
            "  consequences: rank 4 lost rank 2 (libdlring); rank 5 lost a connection (so its "
            "stderr says)",
            "  2 workers were sent SIGTERM; 1 had to be killed after the grace of 10 s",
        });
  CHECK(text(facts({exited(2, 1203, 7), stopped(0, 1210), stopped(1, 1211), stopped(3, 1212)})) ==
        Lines{
            "rank 2 (pid 102 on host h) failed first: exit code 7 after 1.203 s",
            "  the other 3 workers were sent SIGTERM",
        });
  CHECK(text(facts({}, JobEnding::succeeded)).empty());
  auto logged = says(exited(2, 1203, 7), {"disk on fire"});
  logged.stderr_log = "logs/1/2/stderr";
  CHECK(text(facts({logged})) ==
        Lines{
            "rank 2 (pid 102 on host h) failed first: exit code 7 after 1.203 s",
            "  last lines of its stderr:",
            "    disk on fire",
            "  all of its stderr: logs/1/2/stderr",
        });
}

TEST_CASE("how it ended") {
  auto crash = killed(0, 5, SIGSEGV);
  crash.core_dumped = true;
  CHECK(text(facts({crash})) == Lines{"rank 0 (pid 100 on host h) failed first: killed by SIGSEGV "
                                      "(segmentation fault), core dumped "
                                      "after 5 ms"});
  CHECK(text(facts({exited(0, 5, 137)})) == Lines{"rank 0 (pid 100 on host h) failed first: exit "
                                                  "code 137 (what a shell says of a command killed "
                                                  "by SIGKILL) after 5 ms"});
  CHECK(describe_signal(SIGABRT) == "SIGABRT (aborted)");
  CHECK(describe_signal(64) == "signal 64");
}

TEST_CASE("the report says that dlaunch killed a worker that hung") {
  auto hung = stopped(1, 20, SIGKILL);
  hung.hung = "in no collective for 60 s, while rank 0 waits for it in all_reduce #7";
  const auto lines = text(facts({hung, stopped(0, 30)}));
  CHECK(lines.at(0) ==
        "rank 1 (pid 101 on host h) failed first: it hung, and dlaunch killed it after 20 ms");
  CHECK(lines.at(1) == "  " + hung.hung);
  CHECK(lines.at(2) == "  the other worker was sent SIGTERM");
}

TEST_CASE("the report names --chaos as the source of a SIGKILL") {
  auto root = killed(1, 5, SIGKILL);
  root.by_chaos = true;
  CHECK(text(facts({root})) == Lines{"rank 1 (pid 101 on host h) failed first: --chaos sent it "
                                     "SIGKILL (killed) after 5 ms"});
}

TEST_CASE("out of memory is reported with its evidence; an unexplained SIGKILL says so") {
  auto root = killed(1, 5, SIGKILL);
  CHECK(text(facts({root}))[1] ==
        "  nothing here sent this SIGKILL: a person, a supervisor, or the kernel for lack of "
        "memory (see "
        "dmesg)");
  root.oom_evidence = true;
  root.oom_text = "memory cgroup /j: out-of-memory kills rose from 0 to 1";
  CHECK(text(facts({root}))[0].find("killed by SIGKILL (out of memory) after") !=
        std::string::npos);
  CHECK(text(facts({root}))[1] ==
        "  out of memory: memory cgroup /j: out-of-memory kills rose from 0 to 1; give the job "
        "more memory "
        "or start fewer workers");
}

TEST_CASE("losses without a failed worker") {
  CHECK(text(facts({exited(1, 5, 0), lost(1, exited(0, 10, 3))}))[0] ==
        "rank 1 left early with exit code 0; rank 0 (pid 100 on host h) still needed it: exit code "
        "3 after "
        "10 ms");
  CHECK(
      text(facts({lost(1, exited(0, 10, 3)), stopped(1, 20)}))[0] ==
      "rank 0 (pid 100 on host h) lost rank 1, which had not failed here: exit code 3 after 10 ms");
  CHECK(text(facts({lost(1, exited(0, 10, 3)), lost(0, exited(1, 11, 3))}))[0] ==
        "rank 0 (pid 100 on host h) and rank 1 lost each other, though none of them had failed: "
        "exit code 3 "
        "after 10 ms");
}

TEST_CASE("a worker that we stopped while it was failing") {
  const auto f =
      facts({says(exited(0, 10, 1), {"Connection reset by peer"}),
             notes(stopped(1, 20), python("ValueError: x", "Traceback\nValueError: x"))});
  CHECK(text(f) ==
        Lines{
            "rank 1 (pid 101 on host h) failed first: killed by SIGTERM (terminated) after 20 ms",
            "  it was failing already when dlaunch sent it SIGTERM",
            "  its error:",
            "    Traceback",
            "    ValueError: x",
            "  consequences: rank 0 lost a connection (so its stderr says)",
        });
}

TEST_CASE("a failure looks as its exception does, whatever was written after it") {
  const auto failed = [](const std::string& exception, int ms, Lines tail) {
    return signature_of(
        throws(says(exited(0, 5000, 1), std::move(tail)), ms, {"  f()", exception}));
  };
  const auto x = failed("E: x 1", 4900, {"uploading"});
  CHECK(x == failed("E: x 2", 4900, {"downloading"}));
  CHECK(x != failed("E: y 1", 4900, {"uploading"}));
  const auto chain = [](const std::string& first) {
    auto end = throws(exited(0, 5000, 1), 4900, {"  f()", "E: x"});
    end.traceback->error = "E: x";
    end.traceback->first_error = first;
    return signature_of(end);
  };
  CHECK(chain("E: a 1") == chain("E: a 2"));
  CHECK(chain("E: a") != chain("E: b"));
  CHECK(failed("E: x 1", 100, {"died"}) == failed("E: y 1", 100, {"died"}));  // one of long ago
  CHECK(failed("E: x 1", 100, {"died"}) == signature_of(says(exited(0, 5000, 1), {"died", ""})));
  CHECK(signature_of(throws(stopped(0, 5000), 4900, {"  f()", "E: x"})) == 0);
}

TEST_CASE("words of a lost peer, in the lines that tell of the failure") {
  CHECK(speaks_of_others(says(exited(0, 5000, 1), {"f()", "Connection reset by peer", ""})));
  CHECK(speaks_of_others(throws(exited(0, 5000, 1), 4900, {"E: Connection closed by peer"})));
  CHECK_FALSE(speaks_of_others(says(exited(0, 5000, 1), {"no such table"})));
  CHECK_FALSE(speaks_of_others(
      throws(says(exited(0, 5000, 1), {"Broken pipe"}), 4900, {"  f()", "E: no such table"})));
}

TEST_CASE("a lost connection that no failure explains: who may have been at its other end") {
  const auto reset = says(exited(0, 500, 1), {"Connection reset by peer"});
  const std::string lost_connection = "  its error is about a lost connection: ";
  const auto line = [&](const JobFacts& f) {
    const auto lines = text(f);
    return lines.size() < 4 ? "" : lines[3];
  };
  CHECK(line(facts({reset, stopped(1, 510)})) ==
        lost_connection + "rank 1, still running then, may be the cause");
  const auto several =
      facts({reset, stopped(3, 510), told(exited(1, 511, 0)), stopped(2, 512), exited(4, 513, 0)});
  CHECK(line(several) ==
        lost_connection + "one of ranks 1-3, still running then, may be the cause");
  CHECK(nlohmann::json::parse(render_json(several, judge(several)))["maybe_cause"].size() == 3);
  // Who had left is a better guess.
  CHECK(line(facts({exited(1, 350, 0), reset, stopped(2, 510)})) ==
        lost_connection + "rank 1 had ended with exit code 0, 150 ms before");
  const auto left = facts({exited(1, 300, 0), exited(2, 499, 0), reset});
  CHECK(line(left) ==
        lost_connection + "ranks 1-2 had ended with exit code 0, the last of them 1 ms before");
  CHECK(nlohmann::json::parse(render_json(left, judge(left)))["left_before"].size() == 2);
  // Long ago, nobody, or of another kind.
  const auto late = says(exited(0, 5000, 1), {"Connection reset by peer"});
  CHECK(line(facts({exited(1, 2999, 0), late})).empty());
  CHECK(line(facts({reset})).empty());
  CHECK(line(facts({says(exited(0, 500, 1), {"disk on fire"}), stopped(1, 510)})) ==
        "  the other worker was sent SIGTERM");
}

TEST_CASE("a traceback is shown instead of the lines of stderr that followed it") {
  const std::string head = "rank 0 (pid 100 on host h) failed first: exit code 1 after 5 s";
  const Lines traceback = {"Traceback (most recent call last):", "  f()", "ValueError: x"};
  const Lines noise(9, "uploading");
  const auto noisy = says(exited(0, 5000, 1), noise);
  CHECK(text(facts({throws(noisy, 3000, traceback)})) ==
        Lines{head, "  its last traceback, before other lines:",
              "    Traceback (most recent call last):", "      f()", "    ValueError: x"});
  // Not one of long ago, nor where the lines that are shown have it.
  CHECK(text(facts({throws(noisy, 2999, traceback)}))[1] == "  last lines of its stderr:");
  CHECK(text(facts({throws(noisy, 4999, {})}))[1] == "  last lines of its stderr:");
  Lines tail = traceback;
  tail.insert(tail.end(), 7, "uploading");
  CHECK(text(facts({throws(says(noisy, tail), 4000, traceback)}))[1] ==
        "  last lines of its stderr:");
  tail.push_back("uploading");
  CHECK(text(facts({throws(says(noisy, tail), 4000, traceback)}))[4] == "    ValueError: x");
}

TEST_CASE("of a chain of exceptions the first and the last are shown") {
  const std::string head = "rank 0 (pid 100 on host h) failed first: exit code 1 after 5 s";
  const std::string during = "During handling of the above exception, another exception occurred:";
  const Lines first = {"Traceback (most recent call last):", "  f()", "ValueError: a"};
  const Lines last = {"Traceback (most recent call last):", "  g()", "KeyError: b"};
  auto root = throws(says(exited(0, 5000, 1), Lines(3, "noise")), 4999, last);
  root.traceback->error = last.back();
  root.traceback->first = first;
  root.traceback->first_error = first.back();
  const Lines quoted_first = {"  its first exception, which a later one hides:",
                              "    Traceback (most recent call last):", "      f()",
                              "    ValueError: a"};
  Lines expected = {head};
  expected.insert(expected.end(), quoted_first.begin(), quoted_first.end());
  Lines whole = expected;
  whole.insert(whole.end(),
               {"  its last exception, raised while it handled that one or because of it:",
                "    Traceback (most recent call last):", "      g()", "    KeyError: b"});
  CHECK(text(facts({root})) == whole);
  root.traceback->between = 1;
  CHECK(text(facts({root}))[5] == "  its last exception, after 1 other in between:");
  root.traceback->between = 3;
  CHECK(text(facts({root}))[5] == "  its last exception, after 3 others in between:");
  // The lines of stderr that are quoted anyway may show all of it, or the last part only.
  root.traceback->between = 0;
  Lines tail = first;
  tail.insert(tail.end(), {"", during, ""});
  tail.insert(tail.end(), last.begin(), last.end());
  root.stderr_tail = tail;
  CHECK(text(facts({root}))[1] == "  last lines of its stderr:");
  tail.insert(tail.end(), 8, "noise");
  root.stderr_tail = tail;
  CHECK(text(facts({root})) == whole);
  // The same message again is not the first exception.
  root.traceback->first_error = root.traceback->error = "E: same";
  root.stderr_tail = {during, "", "Traceback (most recent call last):", "E: same"};
  CHECK(text(facts({root}))[1] == quoted_first[0]);
  // In a file of PyTorch's, too.
  std::string file;
  for (const auto& line : first) file += line + "\n";
  file += "\n" + during + "\n\n";
  for (const auto& line : last) file += line + "\n";
  const auto left = notes(says(exited(0, 5000, 1), {"noise"}), python("KeyError: b", file));
  CHECK(text(facts({left})) == whole);
}

TEST_CASE("lines that the terminal shows just above are not quoted again") {
  const Lines traceback = {"Traceback (most recent call last):", "  f()", "E: x"};
  auto root = throws(says(exited(1, 5000, 1), traceback), 4999, traceback);
  const auto lines = [&](bool shown) {
    const auto f = facts({root});
    return render_text(f, judge(f), false, [&](int rank, const Lines& asked) {
      CHECK(rank == 1);
      CHECK(asked.size() <= 10);
      CHECK(asked.back() == root.stderr_tail.back());
      return shown;
    });
  };
  CHECK(lines(false) == text(facts({root})));
  CHECK(lines(true) == Lines{text(facts({root}))[0], "  its stderr ends with the lines above"});
  root.stderr_tail.insert(root.stderr_tail.begin(), 20, "before");
  root.stderr_tail.emplace_back();
  root.stderr_log = "log";
  CHECK(lines(true).at(1) == "  its stderr ends with the lines above");
  CHECK(lines(true).at(2) == "  all of its stderr: log");
  // A chain begins further up.
  root.traceback->first = {"Traceback (most recent call last):", "  g()", "E: first"};
  root.traceback->first_error = "E: first";
  CHECK(lines(true).at(4) == "    E: first");
  CHECK(lines(true).at(5) ==
        "  its last exception, raised while it handled that one or because "
        "of it, stands in the lines above");
  // What a file says was perhaps never printed.
  root.error_file = python("E: y", "Traceback\nE: y");
  CHECK(lines(true).at(1) == "  its error:");
}

TEST_CASE("a Python error file is shown instead of stderr, whatever its shape") {
  const auto root = says(exited(0, 5, 1), {"noise"});
  const std::string head = "rank 0 (pid 100 on host h) failed first: exit code 1 after 5 ms";
  CHECK(text(facts({notes(root, python("E: x", "Traceback\n  f()\nE: x\n"))})) ==
        Lines{head, "  its error:", "    Traceback", "      f()", "    E: x"});
  for (const char* plain : {R"({"message": "plain"})", R"({"message": {"message": "plain"}})",
                            R"({"message": {"message": "plain", "extraInfo": 3}})"}) {
    CHECK(text(facts({notes(root, plain)})) == Lines{head, "  its error:", "    plain"});
  }
  for (const char* odd :
       {"not json", "[]", "{}", R"({"message": 7})", R"({"message": {"extraInfo": 3}})",
        R"({"message": {"message": [], "extraInfo": {"py_callstack": {}}}})", "\xff\xfe"}) {
    CHECK(text(facts({notes(root, odd)})).back() == "    noise");
  }
  CHECK(text(facts({notes(root, std::string(100000, '['))})).back() == "    noise");
}

TEST_CASE("what workers wrote cannot repaint the terminal or fill it") {
  const auto f =
      facts({says(exited(0, 5, 1),
                  {"\x1b[31mred\x1b[0m\x1b[2J\a \x7f\ttab\xc2\x9b\xc2\xa7", std::string(500, 'x'),
                   std::string(238, 'y') + "\xe2\x82\xac\xe2\x82\xac"})});
  const auto lines = text(f);
  REQUIRE(lines.size() == 5);
  CHECK(lines[2] == "    red \ttab§");
  CHECK(lines[3] == "    " + std::string(240, 'x') + " …");
  CHECK(lines[4] == "    " + std::string(238, 'y') + " …");
}

TEST_CASE("nor can what another host says of a worker") {
  const std::string bad = "a\x1b[2Jb\nc";
  auto root = says(exited(0, 5, 1), {"last words"});
  root.hung = root.oom_text = root.stderr_log = bad;
  root.oom_evidence = true;
  root.flight = {{.what = bad}};
  auto failed = facts({}, JobEnding::spawn_failed);
  failed.failed_what = bad;
  auto lines = text(failed);
  for (const auto& line : text(facts({root}))) lines.push_back(line);
  int shown = 0;
  for (const auto& line : lines) {
    CHECK(line.find_first_of("\x1b\n") == line.npos);
    shown += line.find("a\\x1b[2Jb\\x0ac") != line.npos;
  }
  CHECK(shown == 5);
}

TEST_CASE("the longest report fits a small screen and says how much it left out") {
  std::vector<WorkerEnd> workers;
  auto root = exited(0, 5, 1);
  std::string traceback;
  for (int i = 0; i < 100; ++i) traceback += "line " + std::to_string(i) + "\n";
  root.error_file = python("E", traceback);
  root.oom_evidence = true;
  root.oom_text = "memory cgroup /";
  workers.push_back(root);
  for (int r = 1; r < 20; ++r) workers.push_back(exited(r, 5 + r, 2));
  for (int r = 20; r < 40; ++r) workers.push_back(lost(r % 7, exited(r, 30, 2)));
  for (int r = 40; r < 60; ++r) workers.push_back(says(exited(r, 30, 2), {"Broken pipe"}));
  for (int r = 60; r < 80; ++r) workers.push_back(stopped(r, 50));
  auto f = facts(workers);
  f.still_running = {81, 82};
  f.nproc = 83;
  f.max_restarts.restarts = 3;
  f.restarts_used = 3;
  f.why_no_restart = "all 3 restarts (--max-restarts) are used";
  const auto lines = text(f);
  CHECK(lines.size() <= 25);
  CHECK(lines[3] == "    … 88 earlier lines");
  auto has = [&](const std::string& line) {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  };
  CHECK(has("    line 99"));
  CHECK(has("  ranks 4-19 failed, too"));
  CHECK(has("  22 workers were sent SIGTERM"));
  CHECK(has("  ranks 81-82 did not die of SIGKILL (an uninterruptible sleep); left behind"));
  CHECK(has("  no restart: all 3 restarts (--max-restarts) are used"));
}

TEST_CASE("ends that no worker is to blame for") {
  auto f = facts({stopped(0, 5, SIGINT), stopped(1, 6, SIGKILL)}, JobEnding::interrupted);
  f.signal_received = SIGINT;
  CHECK(text(f) == Lines{"ended by SIGINT (interrupt) after 9 s",
                         "  all 2 workers were sent SIGINT; 1 had to be killed"});
  CHECK(text(facts({stopped(0, 5)}, JobEnding::timed_out)) ==
        Lines{"the job's --timeout passed: stopped after 9 s", "  the worker was sent SIGTERM"});
  f = facts({stopped(0, 5)}, JobEnding::timed_out);
  f.waits = Lines{"rank 1 has not entered barrier #3, where rank 0 is waiting, for 2 m"};
  CHECK(text(f) ==
        Lines{"the job's --timeout passed: stopped after 9 s",
              "  as it stood: rank 1 has not entered barrier #3, where rank 0 is waiting, for 2 m",
              "  the worker was sent SIGTERM"});
  CHECK(render_json(f, judge(f)).find("\"waits\"") != std::string::npos);
  f = facts({stopped(0, 5)}, JobEnding::given_up);
  f.given_up = "all_reduce stands still";
  f.why_no_restart = "the only restart (--max-restarts 1) is used";
  CHECK(text(f) ==
        Lines{"the workers gave up a round, though none was lost: all_reduce stands still",
              "  the worker was sent SIGTERM",
              "  no restart: the only restart (--max-restarts 1) is used"});
  f = facts({}, JobEnding::spawn_failed);
  f.failed_rank = 0;
  f.failed_what = "exec 'trian': No such file or directory";
  CHECK(text(f) == Lines{"rank 0 could not be started: exec 'trian': No such file or directory"});
}

TEST_CASE("a worker that had printed a traceback and still ran is the likely cause") {
  auto thrower = throws(stopped(1, 5000), 1000, {"Traceback", "  f()", "E: x"});
  constexpr std::string_view kCause =
      "  likely cause: rank 1 (pid 101 on host h) had printed a traceback {} before and still ran";
  Lines cause = {"", "    Traceback", "      f()", "    E: x"};
  const auto tells = [&](const JobFacts& f) {
    const auto lines = text(f);
    const auto json = nlohmann::json::parse(render_json(f, judge(f)));
    const bool named =
        std::search(lines.begin(), lines.end(), cause.begin(), cause.end()) != lines.end();
    CHECK(named == (json.contains("likely_cause") && json["likely_cause"][0] == 1));
    return named;
  };
  // What the user, or the time limit, ends explains itself unless the worker was silent for long.
  for (const auto& [silent, shown] : {std::pair(4s, "4 s"), {9s, "9 s"}, {10s, "10 s"}}) {
    thrower.silent_since_traceback = silent;
    cause[0] = fmt::format(kCause, shown);
    auto interrupted = facts({stopped(0, 5000, SIGINT), thrower}, JobEnding::interrupted);
    interrupted.signal_received = SIGINT;
    CHECK(tells(interrupted) == (silent >= kSuspicious));
    CHECK(tells(facts({stopped(0, 5000), thrower}, JobEnding::timed_out)) ==
          (silent >= kSuspicious));
  }
  thrower.silent_since_traceback = 4s;
  cause[0] = fmt::format(kCause, "4 s");
  // Another rank hung, lost a connection or waited for too long because of it.
  auto hung = stopped(0, 5000, SIGKILL);
  hung.hung = "in no collective";
  CHECK(tells(facts({hung, thrower})));
  CHECK(tells(facts({says(exited(0, 4900, 1), {"Connection reset by peer"}), thrower})));
  CHECK(tells(facts(
      {says(exited(0, 4900, 1), {"Watchdog caught collective operation timeout"}), thrower})));
  // A failure that explains itself does not.
  CHECK_FALSE(tells(facts({says(exited(0, 4900, 1), {"disk on fire"}), thrower})));
  CHECK_FALSE(tells(facts({killed(0, 4900, SIGSEGV), thrower})));
  // Nor where it had gone on.
  thrower.silent_since_traceback = {};
  CHECK_FALSE(tells(facts({stopped(0, 5000), thrower}, JobEnding::timed_out)));
}

TEST_CASE("of several likely causes the earliest is quoted, and the root refers to itself") {
  const auto thrower = [](int rank, int ms) {
    auto end = throws(stopped(rank, 5000), ms, {"Traceback", "E: " + std::to_string(rank)});
    end.silent_since_traceback = 15s - std::chrono::milliseconds(ms);
    return end;
  };
  const auto f =
      facts({thrower(0, 2000), thrower(1, 1000), thrower(2, 1500)}, JobEnding::timed_out);
  const auto lines = text(f);
  CHECK(lines.at(1).starts_with("  likely cause: rank 1 (pid 101 on host h) had printed"));
  CHECK(lines.at(3) == "    E: 1");
  CHECK(lines.at(4) == "  ranks 0,2 had done so, too");
  CHECK(nlohmann::json::parse(render_json(f, judge(f)))["likely_cause"] ==
        nlohmann::json::array({1, 2, 0}));
  auto hung = thrower(0, 1000);
  hung.signal = hung.signal_we_sent = SIGKILL;
  hung.hung = "in no collective";
  hung.stderr_tail = Lines(10, "noise");
  const auto own = text(facts({hung, stopped(1, 5000)}));
  CHECK(std::find(own.begin(), own.end(),
                  "  likely cause: it had printed a traceback 14 s before and still ran") !=
        own.end());
  CHECK(std::find(own.begin(), own.end(), "    E: 0") != own.end());
}

TEST_CASE("the JSON has --max-restarts as numbers") {
  auto f = facts({exited(0, 5, 1)});
  f.max_restarts.restarts = 3;
  CHECK(nlohmann::json::parse(render_json(f, judge(f)))["max_restarts"] == 3);
  CHECK_FALSE(nlohmann::json::parse(render_json(f, judge(f))).contains("max_restarts_window_s"));
  f.max_restarts.window = 1h;
  CHECK(nlohmann::json::parse(render_json(f, judge(f)))["max_restarts_window_s"] == 3600.0);
}

TEST_CASE("colour only on the headline") {
  const auto f = facts({exited(0, 5, 1), stopped(1, 6)});
  const auto plain = text(f), colored = render_text(f, judge(f), true);
  CHECK(colored[0] == "\x1b[1;31m" + plain[0] + "\x1b[0m");
  CHECK(colored[1] == plain[1]);
}

TEST_CASE("the JSON holds everything, and bytes that are no UTF-8 do not break it") {
  auto root = says(exited(2, 1203, 7), {"bad \xff byte"});
  root.error_file = R"({"message": "m"})";
  root = throws(root, 1003, {"Traceback", "E: x"});
  const auto f = facts({exited(3, 1, 0), lost(2, exited(1, 1200, 5)), root, stopped(0, 1300)});
  const auto json = nlohmann::json::parse(render_json(f, judge(f)));
  CHECK(json["exit_code"] == 7);
  CHECK(json["end"] == "worker_failed");
  CHECK(json["summary"] == text(f)[0]);
  CHECK(json["text"].size() == text(f).size());
  const auto& cause = json["root_cause"];
  CHECK(cause["rank"] == 2);
  CHECK(cause["pid"] == 102);
  CHECK(cause["ended_ns"] == 1203000000);
  CHECK(cause["error"]["message"] == "m");
  CHECK(cause["stderr_tail"][0] == "bad \xef\xbf\xbd byte");
  CHECK(cause["traceback"][1] == "E: x");
  CHECK(cause["traceback_before_s"] == 0.2);
  const auto& others = json["others"];
  REQUIRE(others.size() == 3);
  CHECK(others[0]["role"] == "succeeded");
  CHECK(others[1]["role"] == "consequence");
  CHECK(others[1]["lost_peer"] == 2);
  CHECK(others[2]["role"] == "stopped");
  CHECK(others[2]["signal_sent_by_dlaunch"] == SIGTERM);
  CHECK(nlohmann::json::parse(render_json(
            facts({exited(1, 5, 0), lost(1, exited(0, 6, 2))}),
            judge(facts({exited(1, 5, 0), lost(1, exited(0, 6, 2))}))))["left_early"] == 1);
  const auto fine = facts({exited(0, 5, 0)}, JobEnding::succeeded);
  CHECK(nlohmann::json::parse(render_json(fine, judge(fine)))["exit_code"] == 0);
}

TEST_CASE("an error file that nests as deep as it can does not break the JSON") {
  constexpr std::size_t kDepth = 500'000;
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  const auto f = facts({notes(exited(0, 5, 1), R"({"message": "m", "more": )" + deep + "}")});
  const auto json = nlohmann::json::parse(render_json(f, judge(f)));
  CHECK(json["root_cause"]["error"]["message"] == "m");
  CHECK(text(f).at(2) == "    m");
}
