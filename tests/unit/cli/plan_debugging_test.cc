#include <doctest/doctest.h>

#include "tests/unit/cli/fake_machine.h"
#include "tests/unit/cli/scoped_env.h"

using namespace dlaunch;

namespace {

const std::string kLimits =
    ": the limits for hangs, stragglers and new workers are off in this job";

// A machine with a terminal, and with these programs in its PATH.
FakeMachine with_programs(const Words& programs) {
  FakeMachine fake;
  fake.terminal = true;
  fake.env["PATH"] = "/bin:/opt/bin";
  for (const auto& program : programs) fake.kinds["/opt/bin/" + program] = FileKind::executable;
  return fake;
}

Words command(FakeMachine& fake, const Words& words) { return fake.plan(words).command_of(0); }

}  // namespace

TEST_CASE("--stop-at-start names ranks, and no limit of time ends a job that a person debugs") {
  FakeMachine fake;
  const Plan some = fake.plan({"--nproc", "4", "--stop-at-start", "0,2-3", "p"});
  CHECK(some.debugging.stopped.ranks == RankSet{0, 2, 3});
  CHECK_FALSE(some.debugging.stopped.has(1));
  CHECK(some.hang_warning == Duration::max());
  CHECK(some.straggler == StragglerMode::off);
  CHECK(fake.plan({"--nproc", "4", "--stop-at-start", "all", "p"}).debugging.stopped.has(3));
  CHECK_FALSE(fake.plan({"p"}).debugging.active());
  CHECK(fake.built({"--stop-at-start", "all", "p"}).warnings == Words{"--stop-at-start" + kLimits});
  CHECK(fake.refused({"--nproc", "2", "--stop-at-start", "2", "p"})
            .starts_with("64 --stop-at-start: "));
  CHECK(fake.refused({"--stop-at-start", "0", "--hang-timeout", "5m", "p"}) ==
        "64 --hang-timeout has no effect with --stop-at-start: a person may stop a worker for any "
        "time");
  const ScopedEnv other_jobs("DLAUNCH_HANG_TIMEOUT", "5m");
  CHECK(fake.plan({"--stop-at-start", "0", "p"}).hang_timeout == Duration::max());
}

TEST_CASE("--debugger runs one rank under the debugger that its program needs") {
  FakeMachine both = with_programs({"gdb", "lldb"});
  const Plan plan = both.plan({"--nproc", "2", "--debugger", "1", "./train", "x"});
  CHECK(plan.command_of(0) == Words{"./train", "x"});
  CHECK(plan.command_of(1) == Words{"gdb", "-q", "-return-child-result", "--args", "./train", "x"});
  CHECK(plan.debugging.has_terminal(1));
  CHECK_FALSE(plan.debugging.has_terminal(0));
  CHECK(both.built({"--debugger", "0", "p"}).warnings == Words{"--debugger" + kLimits});
  FakeMachine lldb = with_programs({"lldb"});
  CHECK(command(lldb, {"--debugger", "0", "p"}) == Words{"lldb", "--", "p"});
  FakeMachine none = with_programs({});
  CHECK(
      none.refused({"--debugger", "0", "p"}) ==
      "64 --debugger: neither gdb nor lldb is in PATH; --debugger-command names another debugger");
}

TEST_CASE("pdb stands between Python's own options and the program") {
  FakeMachine fake = with_programs({"gdb"});
  fake.kinds["train.py"] = FileKind::plain;
  fake.kinds["./run.py"] = FileKind::executable;
  const auto debugged = [&](const Words& words) {
    Words all = {"--debugger", "0"};
    all.insert(all.end(), words.begin(), words.end());
    return command(fake, all);
  };
  CHECK(debugged({"train.py", "-x"}) == Words{"python3", "-u", "-m", "pdb", "train.py", "-x"});
  CHECK(debugged({"./run.py"}) == Words{"python3", "-u", "-m", "pdb", "./run.py"});
  CHECK(debugged({"-m", "pkg.train", "-x"}) ==
        Words{"python3", "-u", "-m", "pdb", "-m", "pkg.train", "-x"});
  CHECK(debugged({"/opt/bin/python3.12", "-W", "error", "-Xdev", "-um", "pkg"}) ==
        Words{"/opt/bin/python3.12", "-W", "error", "-Xdev", "-u", "-m", "pdb", "-m", "pkg"});
  CHECK(debugged({"python3", "-mpkg", "-c"}) == Words{"python3", "-m", "pdb", "-m", "pkg", "-c"});
  CHECK(fake.refused({"--debugger", "0", "python3", "-c", "1"}) ==
        "64 --debugger: a debugger of Python needs a script or a module, and 'python3' gets "
        "neither");
  CHECK(debugged({"--debugger-command", "gdb", "train.py"}) ==
        Words{"gdb", "-q", "-return-child-result", "--args", "python3", "-u", "train.py"});
  CHECK(debugged({"--debugger-command=-m ipdb", "train.py"}) ==
        Words{"python3", "-u", "-m", "ipdb", "train.py"});
  CHECK(debugged({"--debugger-command", "cuda-gdb --args", "p"}) ==
        Words{"cuda-gdb", "--args", "p"});
  CHECK(fake.refused({"--debugger", "0", "--debugger-command", "pdb", "p"}) ==
        "64 --debugger: 'p' is not run by Python: a debugger of Python cannot run it");
  CHECK(fake.refused({"--debugger-command", "gdb", "p"}) ==
        "64 --debugger-command has no effect without --debugger");
  CHECK(fake.refused({"--debugger", "0", "--debugger-command", " ", "p"}) ==
        "64 --debugger-command: ' ' names no debugger");
}

TEST_CASE("debugpy needs no terminal, and serves all ranks") {
  FakeMachine fake = with_programs({});
  fake.terminal = false;
  const Plan plan = fake.plan(
      {"--nproc", "2", "--debugger", "all", "--debugger-command", "debugpy", "-m", "pkg"});
  CHECK(plan.command_of(1) == Words{"python3", "-u", "-m", "debugpy", "--listen",
                                    "127.0.0.1:${debug_port}", "--wait-for-client", "-m", "pkg"});
  CHECK_FALSE(plan.debugging.uses_terminal());
}

TEST_CASE("a debugger that needs the terminal is refused where it could not have it") {
  FakeMachine fake = with_programs({"gdb"});
  CHECK(fake.refused({"--debugger", "all", "p"}) ==
        "64 --debugger all: gdb needs a terminal for each rank; use --tmux, --debugger-command "
        "debugpy, or "
        "--stop-at-start and 'gdb -p PID' in other terminals");
  CHECK(fake.refused({"-H", "here,a", "--debugger", "0", "p"}) ==
        "64 --debugger 0: the debugger has this terminal, so all ranks must be on this host; use "
        "--stop-at-start, or --debugger-command debugpy");
  CHECK(fake.refused({"--debugger", "1", "p"}).starts_with("64 --debugger: '1'"));
  CHECK(fake.refused({"--debugger", "0", "--stop-at-start", "0", "p"}) ==
        "64 --debugger and --stop-at-start contradict each other");
  fake.terminal = false;
  CHECK(fake.refused({"--debugger", "on-failure", "p"}) ==
        "64 --debugger on-failure: dlaunch has no terminal, or runs in its background; use "
        "--stop-at-start, or --debugger-command debugpy");
}

TEST_CASE(
    "on-failure runs Python with a post-mortem, and other programs under a gdb of their own") {
  FakeMachine fake = with_programs({"gdb"});
  const Words python = command(fake, {"--debugger", "on-failure", "-m", "pkg", "x"});
  REQUIRE(python.size() == 7);
  CHECK(python[2] == "-c");
  CHECK(python[3].find("pdb.post_mortem") != std::string::npos);
  CHECK(Words(python.begin() + 4, python.end()) == Words{"-m", "pkg", "x"});
  const Words native = command(fake, {"--debugger", "on-failure", "./p", "x"});
  CHECK(native.front() == "gdb");
  CHECK(Words(native.end() - 3, native.end()) == Words{"--args", "./p", "x"});
  CHECK(command(fake, {"--debugger", "on-failure", "--debugger-command", "gdb", "-m", "pkg"})
            .front() == "gdb");
  CHECK(fake.refused({"--debugger", "on-failure", "--debugger-command", "lldb", "p"}) ==
        "64 --debugger-command lldb: only gdb and pdb open on a rank that has failed");
  CHECK(fake.refused({"--debugger", "on-failure", "--debugger-command", "pdb", "p"}) ==
        "64 --debugger-command pdb: 'p' is not run by Python");
  FakeMachine none = with_programs({});
  CHECK(none.refused({"--debugger", "on-failure", "p"}) ==
        "64 --debugger on-failure: gdb is not in PATH");
}

TEST_CASE("of several programs only those whose ranks are debugged need a debugger") {
  FakeMachine fake = with_programs({});
  const Plan plan =
      fake.plan({"--debugger", "1", "-n", "1", "./native", ":", "-n", "1", "-m", "pkg"});
  CHECK(plan.command_of(0) == Words{"./native"});
  CHECK(plan.command_of(1) == Words{"python3", "-u", "-m", "pdb", "-m", "pkg"});
}
