#include "launcher/output/stdin_pump.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
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
  CHECK(got(*taker) == "two");
  pump.host_asks(1, true);
  settle(loop);
  CHECK(given.back() == "1:");
  CHECK(got(*taker) == "<end>");
  pump.host_asks(2, true);  // it starts another one
  CHECK(given.back() == "2:");
}

TEST_CASE("a pump without a source asks for a piece when the last one is taken") {
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
  CHECK(asked == "+");  // it has not been taken yet
  CHECK(got(*taker) == "one");
  settle(loop);
  CHECK(asked == "++");
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

TEST_CASE("a piece for a taker that has left is refused") {
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

TEST_CASE("a pipe or file is handed to one worker itself, a terminal is not") {
  asio::io_context loop;
  Ends own;
  StdinPump pump(loop, own.reading.get());
  REQUIRE(pump.can_hand_over());
  auto worker = pump.hand_over();
  REQUIRE(worker);
  put(own.writing, "one");
  settle(loop);
  char byte = 0;
  CHECK(::read(worker->get(), &byte, 1) == 1);
  worker->reset();
  const auto next = pump.hand_over();  // a worker in its place
  CHECK(::read(next->get(), &byte, 1) == 1);
  CHECK(byte == 'n');
  CHECK(got(own.reading) == "e");
  pump.close();
  CHECK(pump.unread() == 0);

  const UniqueFd written_only(::open("/dev/null", O_WRONLY | O_CLOEXEC));  // as nohup leaves it
  CHECK_FALSE(StdinPump(loop, written_only.get()).can_hand_over());
  const UniqueFd terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  REQUIRE(terminal);
  CHECK_FALSE(StdinPump(loop, terminal.get()).can_hand_over());
  CHECK_FALSE(StdinPump(loop, -1).can_hand_over());
}

TEST_CASE("the pump reads one piece ahead, and larger ones while a worker continues to read") {
  asio::io_context loop;
  Ends own;
  ::fcntl(own.writing.get(), F_SETPIPE_SZ, 1 << 20);
  StdinPump pump(loop, own.reading.get());
  const auto taker = pump.add_taker();
  REQUIRE(taker);
  put(own.writing, std::string(200 << 10, 'x'));
  settle(loop);
  const auto left = [&] {
    int bytes = 0;
    REQUIRE(::ioctl(own.reading.get(), FIONREAD, &bytes) == 0);
    return static_cast<std::size_t>(bytes);
  };
  CHECK(left() == (200 << 10) - StdinPump::kFirstPiece);
  CHECK(got(*taker).size() == StdinPump::kFirstPiece);
  settle(loop);
  CHECK(left() == (200 << 10) - 3 * StdinPump::kFirstPiece);
  pump.close();
  CHECK(pump.unread() == 2 * StdinPump::kFirstPiece);
}

TEST_CASE("bytes that no worker took count once, and bytes that one of several took do not") {
  ::signal(SIGPIPE, SIG_IGN);
  asio::io_context loop;
  Ends own;
  StdinPump pump(loop, own.reading.get());
  auto reads = pump.add_taker(), leaves = pump.add_taker();
  put(own.writing, "0123456789");
  settle(loop);
  char bytes[4];
  CHECK(::read(reads->get(), bytes, 4) == 4);
  leaves->reset();
  pump.close();
  CHECK(pump.unread() == 6);
}

TEST_CASE("a file is set back to where the workers have read it") {
  asio::io_context loop;
  const UniqueFd file(::open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
  REQUIRE(file);
  put(file, "one\ntwo\nthree\n");
  REQUIRE(::lseek(file.get(), 4, SEEK_SET) == 4);
  StdinPump pump(loop, file.get());
  const auto taker = pump.add_taker();
  settle(loop);
  char bytes[4];
  CHECK(::read(taker->get(), bytes, 4) == 4);
  CHECK(std::string(bytes, 4) == "two\n");
  pump.close();
  CHECK(pump.unread() == 0);
  CHECK(::lseek(file.get(), 0, SEEK_CUR) == 8);
}

TEST_CASE("bytes that workers leave after the end of the input are given back or counted") {
  for (const bool from_file : {true, false}) {
    CAPTURE(from_file);
    asio::io_context loop;
    Ends own;
    const UniqueFd file(::open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
    REQUIRE(file);
    const std::size_t all = 3 * StdinPump::kFirstPiece, page = StdinPump::kFirstPiece;
    put(from_file ? file : own.writing, std::string(all, 'x'));
    REQUIRE(::lseek(file.get(), 0, SEEK_SET) == 0);
    own.writing.reset();
    StdinPump pump(loop, from_file ? file.get() : own.reading.get());
    auto leaves = pump.add_taker(), reads = pump.add_taker();
    settle(loop);
    CHECK(got(*leaves).size() == page);
    CHECK(got(*reads).size() == page);
    settle(loop);
    CHECK(got(*leaves).size() == page);  // there is room again: the end of the input is read
    CHECK(got(*reads).size() == page);
    settle(loop);
    leaves->reset();
    char byte[10];
    CHECK(::read(reads->get(), byte, 10) == 10);
    pump.close();
    CHECK(pump.unread() == (from_file ? 0 : page - 10));
    CHECK(::lseek(file.get(), 0, SEEK_CUR) == static_cast<off_t>(from_file ? 2 * page + 10 : 0));
    pump.close();  // once
    CHECK(pump.unread() == (from_file ? 0 : page - 10));
  }
}
