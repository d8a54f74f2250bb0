#include "rendezvous/handshake.h"

#include <sys/socket.h>

#include <algorithm>
#include <random>
#include <thread>

#include <doctest/doctest.h>

#include "base/unique_fd.h"

using namespace dlaunch;

namespace {

const std::string kNonceA(kNonceBytes, 'a');
const std::string kNonceC(kNonceBytes, 'c');

HandshakeIdentity identity(std::string job, std::uint64_t round = 1, int from = 3, int to = 0) {
  return {.purpose = Purpose::ring_link,
          .job_id = std::move(job),
          .round = round,
          .from_rank = from,
          .to_rank = to,
          .who = "rank 3 (pid 7)"};
}

struct Outcome {
  std::string connector, acceptor;  // "" for success, else the error
  HandshakeIdentity seen;
};

// Both ends in one thread, bytes handed over one at a time.
Outcome shake(const HandshakeIdentity& self, const Secret& self_secret,
              const HandshakeIdentity& expected, const Secret& expected_secret) {
  auto c = Handshake::connector(self_secret, self, kNonceC);
  auto a = Handshake::acceptor(expected_secret, expected, kNonceA);
  Outcome outcome;
  for (int turn = 0; turn < 4; ++turn) {
    for (const char byte : c.take_output()) {
      if (!outcome.acceptor.empty()) break;
      if (auto fed = a.feed({&byte, 1}); !fed) outcome.acceptor = fed.error().what;
    }
    for (const char byte : a.take_output()) {
      if (!outcome.connector.empty()) break;
      if (auto fed = c.feed({&byte, 1}); !fed) outcome.connector = fed.error().what;
    }
  }
  if (outcome.connector.empty() && !c.done()) outcome.connector = "unfinished";
  if (outcome.acceptor.empty() && !a.done()) outcome.acceptor = "unfinished";
  outcome.seen = a.peer();
  return outcome;
}

}  // namespace

TEST_CASE("two ends with the same secret, job and round agree") {
  const Secret secret("0123456789abcdef");
  auto expected = identity("a", 1, -1, 0);
  const auto outcome = shake(identity("a"), secret, expected, secret);
  CHECK(outcome.connector == "");
  CHECK(outcome.acceptor == "");
  CHECK(outcome.seen.from_rank == 3);
  CHECK(outcome.seen.who == "rank 3 (pid 7)");
}

TEST_CASE("a peer of another job is refused by name, on both ends") {
  const auto outcome = shake(identity("b"), Secret(), identity("a", 1, -1, 0), Secret());
  CHECK(outcome.connector == "refused: this is job 'a'; rank 3 (pid 7) is of job 'b'");
  CHECK(outcome.acceptor == "this is job 'a'; rank 3 (pid 7) is of job 'b'");
}

TEST_CASE("a peer of another version is called that") {
  auto c = Handshake::connector(Secret(), identity("a"), kNonceC);
  std::string hello = c.take_output();
  ++hello[6];  // the digit of "DLN2"
  const auto version = Handshake::acceptor(Secret(), identity("a"), kNonceA).feed(hello);
  REQUIRE_FALSE(version);
  CHECK(version.error().what == "handshake: of another version of dlaunch");
  hello[5] = '?';
  const auto stranger = Handshake::acceptor(Secret(), identity("a"), kNonceA).feed(hello);
  REQUIRE_FALSE(stranger);
  CHECK(stranger.error().what == "handshake: not a dlaunch peer");
}

TEST_CASE("the acceptor learns how many connections belong to one") {
  HandshakeIdentity self = identity("a");
  self.more = 63;
  CHECK(shake(self, Secret(), identity("a", 1, -1, 0), Secret()).seen.more == 63);
}

TEST_CASE("another round, another rank and another secret are refused") {
  const Secret secret("0123456789abcdef");
  CHECK(shake(identity("a", 2), secret, identity("a", 1, -1, 0), secret).connector ==
        "refused: this is round 1; rank 3 (pid 7) is of round 2");
  CHECK(shake(identity("a", 1, 3, 5), secret, identity("a", 1, -1, 0), secret).acceptor ==
        "this is rank 0; rank 3 (pid 7) looks for rank 5");
  const auto wrong =
      shake(identity("a"), Secret("another one here"), identity("a", 1, -1, 0), secret);
  CHECK(wrong.connector == "the other side does not hold this job's secret");
  CHECK(shake(identity("a"), Secret(), identity("a", 1, -1, 0), secret).connector != "");
}

TEST_CASE("a connector that skips the check of the acceptor is refused by its proof") {
  const Secret secret("0123456789abcdef");
  auto a = Handshake::acceptor(secret, identity("a", 1, -1, 0), kNonceA);
  auto c = Handshake::connector(secret, identity("a"), kNonceC);
  REQUIRE(a.feed(c.take_output()));
  std::string proof("\x21\0\x03", 3);
  proof += std::string(kMacBytes, 'x');
  const auto fed = a.feed(proof);
  REQUIRE_FALSE(fed);
  CHECK(fed.error().code == Errc::auth);
  CHECK_FALSE(a.done());
}

TEST_CASE("garbage fails without growing, whatever it is") {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    auto a = Handshake::acceptor(Secret(), identity("a"), kNonceA);
    std::string bytes(random() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 2 == 0 && bytes.size() > 2)
      bytes[0] = static_cast<char>(bytes.size() - 2), bytes[1] = 0;
    (void)a.feed(bytes);
    CHECK_FALSE(a.done());
    CHECK(a.wanted() <= 1026);
  }
}

TEST_CASE("bytes after the handshake are not read") {
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  const UniqueFd left(pair[0]), right(pair[1]);
  const Secret secret("0123456789abcdef");
  const auto deadline = steady_now() + std::chrono::seconds(30);
  std::thread acceptor([&] {
    CHECK(handshake_accept(right.get(), secret, identity("a", 1, -1, 0), deadline));
    CHECK(::send(right.get(), "data", 4, 0) == 4);
  });
  CHECK(handshake_connect(left.get(), secret, identity("a"), deadline));
  acceptor.join();
  char buffer[8];
  CHECK(::recv(left.get(), buffer, sizeof buffer, 0) == 4);
}

TEST_CASE("a silent peer is given up at the deadline") {
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  const UniqueFd left(pair[0]), right(pair[1]);
  const auto result = handshake_accept(right.get(), Secret(), identity("a"),
                                       steady_now() + std::chrono::milliseconds(20));
  REQUIRE_FALSE(result);
  CHECK(result.error().code == Errc::timeout);
}

TEST_CASE("names from a stranger cannot change a terminal") {
  auto self = identity("b\x1b[2J\nforged line");
  self.who = "rank 3\r\x1b]0;title\x07";
  const auto outcome = shake(self, Secret(), identity("a", 1, -1, 0), Secret());
  for (const auto& text : {outcome.connector, outcome.acceptor, outcome.seen.who}) {
    CAPTURE(text);
    CHECK(std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20; }));
  }
  CHECK(outcome.acceptor ==
        "this is job 'a'; rank 3\\x0d\\x1b]0;title\\x07 is of job 'b\\x1b[2J\\x0aforged line'");

  auto c = Handshake::connector(Secret(), identity("a"), kNonceC);
  const auto refused = c.feed(std::string("\x08\0\x05\x03\0\0\0\x1b[A", 10));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().what == "refused: \\x1b[A");
}
