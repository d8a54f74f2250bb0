#include "cli/ctl/options.h"

#include <doctest/doctest.h>

#include "cli/ctl/jobs.h"

using namespace dlaunch;
using namespace dlaunch::ctl;
using Command = ControlRequest::Command;

namespace {

int refused(const std::vector<std::string>& words) {
  try {
    (void)read_options(words);
  } catch (const ctl::Failure& e) {
    CHECK(e.what.find('\n') == std::string::npos);
    return e.exit_code;
  }
  return 0;
}

std::vector<RunningJob> two_jobs() {
  return {
      {"/tmp/a", {{"job_id", "first"}}}, {"/tmp/b", {{"job_id", "second"}}}, {"/tmp/c", nullptr}};
}

std::string complaint(const std::vector<RunningJob>& jobs, const std::string& id) {
  try {
    return "chose " + choose(jobs, id).folder;
  } catch (const ctl::Failure& e) {
    return std::to_string(e.exit_code) + ": " + e.what;
  }
}

}  // namespace

TEST_CASE("an error names a command or option that does not exist") {
  const auto what = [](const std::vector<std::string>& words) {
    try {
      (void)read_options(words);
    } catch (const ctl::Failure& e) {
      return e.what;
    }
    return std::string();
  };
  CHECK(what({"kill"}) == "there is no 'kill'; see --help");
  CHECK(what({"stauts"}) == "there is no 'stauts'; did you mean 'status'?; see --help");
  CHECK(what({"--jbo", "x", "status"}) == "there is no '--jbo'; did you mean '--job'?; see --help");
  CHECK(what({"top", "--intreval", "1"}) ==
        "there is no '--intreval'; did you mean '--interval'?; see --help");
  CHECK(complaint(two_jobs(), "frist").ends_with("; did you mean 'first'?"));
  CHECK(what({"--job", "x", "--verbose"}) == "there is no '--verbose'; see --help");
  CHECK(what({}).find("required") != std::string::npos);
}

TEST_CASE("the commands and their numbers") {
  CHECK(read_options({"status"}).request->command == Command::status);
  CHECK(read_options({"stop"}).request->command == Command::stop);
  CHECK_FALSE(read_options({"list"}).request);
  CHECK(read_options({"--job", "x", "wait"}).wait);
  CHECK_FALSE(read_options({"wait"}).request);
  CHECK_FALSE(read_options({"wait"}).timeout);
  CHECK(read_options({"wait", "--timeout", "2m"}).timeout == std::chrono::minutes(2));
  CHECK(read_options({"events"}).request->command == Command::events);
  CHECK_FALSE(read_options({"events"}).follow);
  CHECK(read_options({"events", "--follow"}).follow);
  CHECK(read_options({"top"}).request->command == Command::top);
  CHECK(read_options({"top"}).interval_s == 1);
  CHECK_FALSE(read_options({"top"}).once);
  CHECK(read_options({"top", "--once", "--interval", "0.2"}).interval_s == 0.2);
  CHECK(read_options({"top", "--once"}).once);
  const auto resize = read_options({"resize", "3"});
  CHECK(resize.request->command == Command::resize);
  CHECK(resize.request->number == 3);
  const auto drain = read_options({"drain", "host2"});
  CHECK(drain.request->command == Command::drain);
  CHECK(drain.request->host == "host2");
  const auto restart = read_options({"restart", "0"});
  CHECK(restart.request->command == Command::restart);
  CHECK(restart.request->number == 0);
  CHECK_FALSE(read_options({"stacks"}).request->number);
  CHECK(read_options({"stacks", "2"}).request->number == 2);
  CHECK(read_options({"tail", "2"}).lines == 10);
  CHECK(read_options({"tail", "-n", "3", "2", "-f"}).request->number == 2);
  CHECK(read_options({"tail", "-n", "3", "2", "-f"}).follow);
  CHECK(read_options({"tail", "--lines", "3", "2"}).lines == 3);
  CHECK(read_options({"stacks", "2", "--json"}).json);
  CHECK_FALSE(read_options({"status"}).json);
  CHECK(read_options({"--job", "x", "stop"}).job == "x");
  CHECK(read_options({"stop", "--job", "x"}).job == "x");
  const auto far = read_options({"--job", "x", "--leader", "h:1", "--secret-file", "s", "wait"});
  CHECK((far.leader == "h:1" && far.secret_file == "s" && !far.tls && far.wait));
  CHECK(read_options({"--help"}).say.find("resize") != std::string::npos);
  CHECK(read_options({"--version"}).say.starts_with("dlaunchctl "));
}

TEST_CASE("what makes no sense is refused in one line") {
  for (const std::vector<std::string>& words : {std::vector<std::string>{},
                                                {"dance"},
                                                {"resize"},
                                                {"drain"},
                                                {"resize", "x"},
                                                {"resize", "-1"},
                                                {"resize", "1", "2"},
                                                {"restart"},
                                                {"stop", "--json"},
                                                {"resize", "2", "--json"},
                                                {"stacks", "x"},
                                                {"tail"},
                                                {"status", "1"},
                                                {"status", "--once"},
                                                {"status", "--follow"},
                                                {"wait", "1"},
                                                {"wait", "--timeout", "soon"},
                                                {"status", "--timeout", "1"},
                                                {"status", "--leader", "h:1"},
                                                {"status", "--leader", "h:1", "--job", "x"},
                                                {"status", "--secret-file", "s"},
                                                {"status", "--tls"},
                                                {"top", "--interval", "0"},
                                                {"--job"},
                                                {"list", "--job", "x"},
                                                {"status", "stop"}}) {
    CAPTURE(words.size());
    CHECK(refused(words) == 64);
  }
}

TEST_CASE("the job is the only one, or the one named") {
  CHECK(complaint({two_jobs()[1]}, "") == "chose /tmp/b");
  CHECK(complaint(two_jobs(), "second") == "chose /tmp/b");
  CHECK(complaint(two_jobs(), "") ==
        "64: which job? Choose by --job: first, second, one that does not answer (/tmp/c)");
  CHECK(complaint(two_jobs(), "third").starts_with("69: no job has the id third; running: first"));
  CHECK(complaint({two_jobs()[0], two_jobs()[0]}, "first").starts_with("69: more than one job"));
  CHECK(complaint({}, "").starts_with("69: no job of yours is running here"));
}
