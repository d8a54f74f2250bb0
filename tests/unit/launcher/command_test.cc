#include "launcher/process/command.h"

#include <signal.h>

#include <optional>
#include <set>
#include <string>

#include <asio/io_context.hpp>
#include <doctest/doctest.h>

#include "launcher/node/watch/health_check.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

struct CommandShell {
  asio::io_context loop;
  std::set<pid_t> helpers;
  Command command{loop, helpers};
  std::optional<Command::End> end;

  Command::End run(const std::string& line, Duration limit = 60s, bool keep_errors = false) {
    auto asks = shell_command(line, limit);
    asks.keep_errors = keep_errors;
    REQUIRE(command.run(asks, [this](const Command::End& how) { end = how; }));
    CHECK(helpers.size() == 1);
    CHECK(command.runs());
    loop.restart();
    loop.run();
    CHECK(helpers.empty());
    CHECK_FALSE(command.runs());
    REQUIRE(end);
    return *std::exchange(end, std::nullopt);
  }
};

}  // namespace

TEST_CASE("a command's output and how it ended; one after the other") {
  CommandShell shell;
  const auto well = shell.run("echo out; echo err >&2", 60s, true);
  CHECK(well.text == "out\nerr\n");
  CHECK(describe(well, 60s).empty());
  const auto badly = shell.run("echo no; exit 3");
  CHECK(badly.text == "no\n");
  CHECK(describe(badly, 60s) == "ended with exit code 3");
  CHECK(describe(shell.run("kill -9 $$"), 60s) == "was ended by SIGKILL (killed)");
}

TEST_CASE("a command that hangs is killed with its group when its time is up") {
  CommandShell shell;
  const auto end = shell.run("echo begun; sleep 1000 & sleep 1000", 300ms);
  CHECK(end.too_late);
  CHECK(describe(end, 300ms) == "took longer than 300 ms");
}

TEST_CASE("processes that a command leaves in its group are killed, and delay nothing") {
  CommandShell shell;
  const auto end = shell.run("sleep 1000 & echo over");
  CHECK_FALSE(end.too_late);
  CHECK(end.text == "over\n");
}

TEST_CASE("a dropped command sends no report") {
  asio::io_context loop;
  std::set<pid_t> helpers;
  bool told = false;
  {
    Command command(loop, helpers);
    REQUIRE(
        command.run(shell_command("sleep 1000", 60s), [&](const Command::End&) { told = true; }));
  }
  loop.run();  // until it has been reaped
  CHECK(helpers.empty());
  CHECK_FALSE(told);
}

TEST_CASE("the result of a health check from the end of its command") {
  const auto why = [](Command::End end) { return why_unhealthy("--health-check", end, 60s); };
  CHECK(why({.text = "all is well\n", .status = 0}).empty());
  CHECK(why({.text = "looking\ndisk is full\n\n", .status = 1}) == "--health-check: disk is full");
  CHECK(why({.text = "", .status = 3}) == "--health-check ended with exit code 3");
  CHECK(why({.text = "", .status = -SIGSEGV}) ==
        "--health-check was ended by SIGSEGV (segmentation fault)");
  CHECK(why({.text = "half", .status = -SIGKILL, .too_late = true}) ==
        "--health-check took longer than 60 s");
  CHECK(why({.text = "a\x1b[2Jb", .status = 1}) == "--health-check: a\\x1b[2Jb");
  CHECK(why({.text = std::string(1000, 'x'), .status = 1}).size() < 400);
}
