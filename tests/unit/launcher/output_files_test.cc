// The hub writes to files and to dlaunch's own descriptors, and reports failures.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <doctest/doctest.h>

#include "tests/unit/launcher/hub_world.h"
#include "tests/unit/launcher/put.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a reader that has gone away does no harm, and a warning names it") {
  TempFolder dir;
  Hub h;
  h.plan.output.log_dir = dir.path;
  h.start();
  auto a = h.open(0);
  h.out.reading.reset();
  std::string all;
  for (int i = 0; i < 100; ++i) {
    const std::string text = std::string(10000, 'x') + "\n";
    put(a.out, text);
    all += text;
    h.turn();
  }
  put(a.err, "still here\n");
  h.turn();
  CHECK(available(h.err.reading) ==
        "dlaunch: warning: dlaunch's stdout has lost its reader; dlaunch shows nothing more there\n"
        "[0] still here\n");
  h.hub->worker_ended(0);
  bool done = false;
  h.hub->flush(Duration::max(), [&] { done = true; });
  h.turn_until([&] { return done; });
  CHECK((file_text(dir.path / "1" / "0" / "stdout") == all));
}

TEST_CASE("an output that cannot be written is reported once") {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  REQUIRE(full);
  Hub h;
  h.out_fd = full.get();
  h.start();
  auto a = h.open(0);
  for (int i = 0; i < 3; ++i) {
    put(a.out, "x\n");
    h.turn();
  }
  CHECK(
      available(h.err.reading) ==
      "dlaunch: warning: write to dlaunch's stdout: No space left on device; dlaunch shows nothing "
      "more there\n");
}

TEST_CASE("a log file that cannot be written costs one warning with its name") {
  TempFolder dir;
  Hub h;
  h.plan.output.log_dir = dir.path;
  h.plan.output.mode = OutputMode::files;
  h.start();
  auto a = h.open(0);
  rlimit before{}, small{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  small = before;
  small.rlim_cur = 10;
  ::setrlimit(RLIMIT_FSIZE, &small);
  std::string told;
  put(a.out, "0123456\n0123456\n");
  h.turn_until([&] { return (told += available(h.err.reading)).ends_with('\n'); });
  put(a.out, "0123456\n");
  h.hub->worker_ended(0);
  ::setrlimit(RLIMIT_FSIZE, &before);
  const auto path = (dir.path / "1" / "0" / "stdout").string();
  CHECK(told ==
        "dlaunch: warning: write " + path + ": File too large; the job continues without it\n");
  CHECK(h.hub->stderr_log(0) == (dir.path / "1" / "0" / "stderr").string());
  CHECK(file_text(path) == "0123456\n01");
  CHECK(h.shown().empty());
}

TEST_CASE("files get raw bytes of every rank; filter and --tee choose what is shown") {
  TempFolder dir;
  Hub h(12);
  h.plan.output.log_dir = dir.path;
  h.plan.output.tee = StreamSet::err;
  h.plan.output.only_ranks = RankSet{11};
  h.start();
  auto a = h.open(3, 7), b = h.open(11, 7);
  for (auto* w : {&a, &b}) {
    put(w->out, "bar\rbaz");
    put(w->err, "warn\n");
  }
  h.turn();
  CHECK(h.shown().empty());
  CHECK(available(h.err.reading) == "[11] warn\n");
  h.hub->worker_ended(3);
  CHECK(h.hub->stderr_tail(3, 9) == std::vector<std::string>{"warn"});
  h.turn_until([&] { return file_text(dir.path / "7" / "3" / "stdout") == "bar\rbaz"; });
  h.turn_until([&] { return file_text(dir.path / "7" / "11" / "stderr") == "warn\n"; });
}

TEST_CASE("a log folder that cannot be made is an error that names it") {
  Hub h;
  h.plan.output.log_dir = "/proc/none";
  h.start();
  const auto stdio = h.hub->open_worker(1, 0, 0);
  REQUIRE_FALSE(stdio);
  CHECK(stdio.error().what.find("/proc/none/1/0") != std::string::npos);
  // A job that runs does not end for it.
  CHECK(h.hub->open_worker(2, 0, 0));
}

TEST_CASE("the flags of descriptors that we share stay as they were") {
  Hub h;
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  const UniqueFd ours(pair[0]), theirs(pair[1]);
  h.err_fd = ours.get();
  h.start();
  auto a = h.open(0);
  put(a.out, std::string(300000, 'x').substr(0, 60000));
  put(a.err, "to a socket\n");
  h.turn();
  char text[64] = "";
  CHECK(::recv(theirs.get(), text, sizeof text - 1, MSG_DONTWAIT) > 0);
  CHECK(std::string(text) == "[0] to a socket\n");
  for (const int fd : {h.in.reading.get(), h.out.writing.get(), ours.get()}) {
    CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
  }
  // Nor do workers see non-blocking ends.
  for (const auto* fd : {&a.in, &a.out, &a.err}) {
    CHECK((::fcntl(fd->get(), F_GETFL) & O_NONBLOCK) == 0);
  }
}

TEST_CASE("raw workers get our own descriptors") {
  Hub h;
  h.plan.output.mode = OutputMode::raw;
  h.start();
  auto a = h.open(0);
  CHECK(same_target(a.out.get(), h.out.writing.get()));
  CHECK(same_target(a.err.get(), h.err.writing.get()));
  h.hub->worker_ended(0);
  CHECK(h.hub->stderr_tail(0, 3).empty());
}

TEST_CASE("the tail of stderr begins with a whole line and ends with the last") {
  Hub h;
  h.plan.output.mode = OutputMode::none;
  h.start();
  auto a = h.open(0);
  CHECK(same_target(a.out.get(), UniqueFd(::open("/dev/null", O_WRONLY)).get()));
  for (int i = 0; i < 20000; ++i) {
    put(a.err, "line " + std::to_string(i) + "\n");
    if (i % 100 == 0) h.turn();
  }
  put(a.err, "\r1%\r2%\nno newline");
  h.hub->worker_ended(0);
  const auto tail = h.hub->stderr_tail(0, 10000);
  REQUIRE(tail.size() > 100);
  CHECK(tail.front().starts_with("line 1"));
  CHECK(tail.front().size() == 10);
  CHECK(tail[tail.size() - 2] == "2%");
  CHECK(tail.back() == "no newline");
  CHECK(h.hub->stderr_tail(0, 2).size() == 2);
  h.open(0, 2);  // a new round: the old tail is gone
  CHECK(h.hub->stderr_tail(0, 2).empty());
}
