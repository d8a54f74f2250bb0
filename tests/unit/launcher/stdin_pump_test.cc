#include "launcher/output/stdin_pump.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/launcher/put.h"

using namespace dlaunch;

namespace {

using Words = std::vector<std::string>;

struct Ends {
  Ends() {
    int fds[2];
    REQUIRE(::pipe2(fds, O_CLOEXEC) == 0);
    reading.reset(fds[0]);
    writing.reset(fds[1]);
  }
  UniqueFd reading, writing;
};

// What is there now; "<end>" at the end.
std::string got(const UniqueFd& from) {
  ::fcntl(from.get(), F_SETFL, O_NONBLOCK);
  char bytes[4096];
  const ssize_t size = ::read(from.get(), bytes, sizeof bytes);
  if (size == 0) return "<end>";
  return size < 0 ? "" : std::string(bytes, static_cast<std::size_t>(size));
}

// All that can be done without waiting.
void settle(asio::io_context& loop) {
  loop.restart();
  while (loop.poll() > 0) continue;
}

}  // namespace

TEST_CASE("stdin goes to hosts as they ask, and no faster than the slowest of all") {
  asio::io_context loop;
  Ends own;
  StdinPump pump(loop, own.reading.get());
  Words given;
  pump.set_give([&](int host, const std::string& bytes) {
    given.push_back(std::to_string(host) + ":" + bytes);
  });
  for (const int host : {1, 2}) pump.expect(host);
  const auto taker = pump.add_taker();
  REQUIRE(taker);
  put(own.writing, "one");
  settle(loop);
  pump.host_asks(1, true);
  settle(loop);
  CHECK(given.empty());  // host 2 is to have the same
  CHECK(got(*taker).empty());
  pump.host_asks(2, true);
  settle(loop);
  CHECK(given == Words{"1:one", "2:one"});
  CHECK(got(*taker) == "one");
  put(own.writing, "two");
  pump.host_asks(1, true);
  settle(loop);
  CHECK(given.size() == 2);
  pump.host_asks(2, false);  // nobody takes it there any more
  settle(loop);
  CHECK(given.back() == "1:two");
  own.writing.reset();
  pump.host_asks(1, true);
  settle(loop);
  CHECK(given.back() == "1:");
  CHECK(got(*taker) == "two");
  CHECK(got(*taker) == "<end>");
  pump.host_asks(2, true);  // it starts one anew
  CHECK(given.back() == "2:");
}

TEST_CASE("a pump that is fed asks for a piece when the last one is taken") {
  ::signal(SIGPIPE, SIG_IGN);
  asio::io_context loop;
  StdinPump pump(loop, -1);
  std::string asked;
  pump.set_ask([&](bool wants) { asked += wants ? '+' : '-'; });
  settle(loop);
  CHECK(asked.empty());
  auto taker = pump.add_taker();
  REQUIRE(taker);
  settle(loop);
  CHECK(asked == "+");
  pump.feed("one");
  settle(loop);
  CHECK(asked == "++");
  CHECK(got(*taker) == "one");
  pump.ask_again();  // another dlaunch leads
  CHECK(asked == "+++");
  pump.feed(std::string(1 << 20, 'x'));  // more than a pipe holds
  settle(loop);
  CHECK(asked == "+++");
  taker->reset();  // it has ended
  settle(loop);
  CHECK(asked == "+++-");
  taker = pump.add_taker();
  settle(loop);
  CHECK(asked == "+++-+");
  pump.feed("");
  CHECK(got(*taker) == "<end>");
  const auto late = pump.add_taker();
  CHECK(got(*late) == "<end>");
  settle(loop);
  CHECK(asked == "+++-+");
}

TEST_CASE("what comes for a taker that has left is not wanted") {
  ::signal(SIGPIPE, SIG_IGN);
  asio::io_context loop;
  StdinPump pump(loop, -1);
  std::string asked;
  pump.set_ask([&](bool wants) { asked += wants ? '+' : '-'; });
  auto taker = pump.add_taker();
  settle(loop);
  taker->reset();
  settle(loop);
  CHECK(asked == "+");
  pump.feed("one");
  settle(loop);
  CHECK(asked == "+-");
}
