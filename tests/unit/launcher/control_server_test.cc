#include "launcher/lead/control/control_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include <doctest/doctest.h>

#include "base/clock.h"
#include "base/socket.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

// A server that repeats what it is asked, at once or when the test says so.
struct World {
  World() {
    path = folder.path / "control";
    auto opened =
        ControlServer::open(loop, path, 100, [this](const std::string& request, auto reply) {
          requests.push_back(request);
          if (!later) return reply("you said: " + request);
          replies.push_back(std::move(reply));
        });
    REQUIRE(opened);
    server = std::move(*opened);
  }

  UniqueFd connect() const {
    auto socket = connect_unix_path(path, SOCK_STREAM);
    REQUIRE(socket);
    return std::move(*socket);
  }
  // All that comes until the end; "(silence)" if nothing does for a while.
  std::string answer(const UniqueFd& socket, Duration patience = 20s) {
    const TimePoint deadline = steady_now() + patience;
    std::string text;
    while (steady_now() < deadline) {
      loop.run_for(1ms);
      // All that is there: to a reader that is slow an answer is not written to its end.
      char bytes[4096];
      ssize_t n = 0;
      while ((n = ::recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
        text.append(bytes, static_cast<std::size_t>(n));
      }
      if (n == 0 || errno != EAGAIN) return text;
    }
    return text + "(silence)";
  }

  TempFolder folder;
  std::string path;
  asio::io_context loop;
  bool later = false;
  std::vector<std::string> requests;
  std::vector<ControlServer::Reply> replies;
  std::unique_ptr<ControlServer> server;
};

void send_text(const UniqueFd& socket, const std::string& text, bool all = true) {
  ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
  if (all) ::shutdown(socket.get(), SHUT_WR);
}

}  // namespace

TEST_CASE("a request ends with its connection's end, and each has its own answer") {
  World world;
  const auto one = world.connect(), other = world.connect();
  send_text(one, "ha", false);
  send_text(other, "ho");
  CHECK(world.answer(other) == "you said: ho");
  CHECK(world.answer(one, 50ms) == "(silence)");
  send_text(one, "lf");
  CHECK(world.answer(one) == "you said: half");
  CHECK(world.requests == std::vector<std::string>{"ho", "half"});
}

TEST_CASE("an answer may come later, or never, and may be long") {
  World world;
  world.later = true;
  const auto one = world.connect(), other = world.connect();
  send_text(one, "1");
  send_text(other, "2");
  const TimePoint deadline = steady_now() + 20s;
  while (world.replies.size() < 2 && steady_now() < deadline) world.loop.run_for(1ms);
  REQUIRE(world.replies.size() == 2);
  CHECK(world.answer(one, 50ms) == "(silence)");
  world.replies[1](std::string(3 << 20, 'x'));
  CHECK(world.answer(other).size() == std::size_t{3} << 20);
  world.replies.clear();
  CHECK(world.answer(one) == "");  // dropped
}

TEST_CASE("too long a request is not read to its end") {
  World world;
  const auto socket = world.connect();
  send_text(socket, std::string(5000, 'x'), false);
  CHECK(world.answer(socket).starts_with("you said: xxx"));
  REQUIRE(world.requests.size() == 1);
  CHECK(world.requests[0].size() > 100);
  CHECK(world.requests[0].size() < 2000);
}

TEST_CASE("silent clients are accepted up to a limit, and dropped later") {
  World world;
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 128; ++i) crowd.push_back(world.connect());
  const auto late = world.connect();
  CHECK(world.answer(late) == "");
  CHECK(world.answer(crowd[0], 50ms) == "(silence)");
  for (const auto& socket : crowd) CHECK(world.answer(socket) == "");
  CHECK(world.requests.empty());
  const auto next = world.connect();
  send_text(next, "now");
  CHECK(world.answer(next) == "you said: now");
}

TEST_CASE("another user is not answered") {
  if (::geteuid() != 0) return;
  World world;
  fs::permissions(world.folder.path, fs::perms::all);
  fs::permissions(world.path, fs::perms::all);
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const UniqueFd reading(ends[0]), writing(ends[1]);
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    if (::setuid(65534) != 0) ::_exit(2);
    auto socket = connect_unix_path(world.path, SOCK_STREAM);
    if (!socket) ::_exit(3);
    send_text(*socket, "me too");
    char byte = 0;
    ::_exit(::recv(socket->get(), &byte, 1, 0) > 0 ? 1 : 0);
  }
  int status = -1;
  const TimePoint deadline = steady_now() + 20s;
  while (::waitpid(stranger, &status, WNOHANG) == 0 && steady_now() < deadline) {
    world.loop.run_for(1ms);
  }
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(world.requests.empty());
}
