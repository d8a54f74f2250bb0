#include "ring/links/links.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "base/clock.h"
#include "trio.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

void connect_hosts(UniqueFd (&ends)[2]) {
  const auto address = [](std::uint32_t host) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK + host);
    return in;
  };
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto here = address(0), there = address(1);
  socklen_t size = sizeof here;
  REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&here), size) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&here), &size) == 0);
  ends[1].reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(ends[1].get(), reinterpret_cast<sockaddr*>(&there), size) == 0);
  REQUIRE(::connect(ends[1].get(), reinterpret_cast<sockaddr*>(&here), size) == 0);
  ends[0].reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(ends[0]);
}

CallSignature call(std::uint64_t seq, Collective collective = Collective::all_reduce) {
  return signature_of({.collective = collective, .count = 5, .root = -1, .seq = seq}, 3);
}

// Drops whatever comes to the socket, so that its kernel answers nothing.
void hear_nothing(const UniqueFd& fd) {
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &drop};
  REQUIRE(::setsockopt(fd.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0);
}

}  // namespace

TEST_CASE("links: a connection that ends without a goodbye is a lost rank") {
  Trio trio(2);
  trio.kill(2);
  for (int r = 0; r < 2; ++r) {
    const Error error = trio[r].error();
    CHECK(error.code == Errc::peer_lost);
    CHECK(error.rank == 2);
    CHECK(error.what == "rank 2 was lost: its connection ended");
  }
}

TEST_CASE("links: each rank passes a loss on, so that all name the same rank") {
  Trio trio(2);
  trio.end(2, 0).reset();  // rank 1 sees nothing of it by itself
  CHECK(trio[1].error().what == trio[0].error().what);
  CHECK(trio[1].error().rank == 2);
}

TEST_CASE("links: only ranks that need a rank that left get an error, and pass it on") {
  Trio trio;
  for (int r = 0; r < 3; ++r) {
    trio[r].links->enter(1, call(1));
    trio[r].links->complete(1);
  }
  trio.leave(2);
  // Comes after the goodbye was heard or before: both must end in the same words.
  trio[0].links->enter(2, call(2));
  CHECK(trio[0].error().code == Errc::peer_lost);
  CHECK(trio[0].error().what == "rank 2 has left after collective #1; #2 needs it");
  // Rank 1 is not in collective 2, and rank 0 may end now.
  trio.leave(0);
  CHECK(trio[1].error().rank == 2);
}

TEST_CASE("links: all may leave in any order, without an error") {
  Trio trio;
  for (int r = 0; r < 3; ++r) {
    trio[r].links->enter(1, call(1));
    trio[r].links->complete(1);
  }
  for (int r = 2; r >= 0; --r) trio.leave(r);
  for (int r = 0; r < 3; ++r) CHECK_FALSE(trio[r].flag.raised());
}

TEST_CASE("links: no goodbye in the middle of a collective") {
  Trio trio;
  trio[2].links->enter(1, call(1));
  trio.leave(2);
  CHECK(trio[0].error().what == "rank 2 was lost: it ended in the middle of collective #1");
}

TEST_CASE("links: the last frames of a dead rank still count") {
  Trio trio(2);
  const auto say = [&](const LinkFrame& frame) {
    const std::string bytes = encode(frame);
    REQUIRE(::send(trio.end(2, 0).get(), bytes.data(), bytes.size(), 0) > 0);
  };
  SUBCASE("none") {
    trio[0].links->trunk()->died(2);
    CHECK(trio[0].error().rank == 2);
    CHECK(trio[1].error().what == "rank 2 was lost: its connection ended");
  }
  SUBCASE("that it leaves") {
    say({.type = LinkFrame::Type::goodbye, .rank = 2, .seq = 0, .text = ""});
    trio[0].links->trunk()->died(2);
    trio.end(2, 1).reset();
    // What rank 1 sees for itself, rank 0 has from it.
    CHECK(trio[0].error().what == trio[1].error().what);
    const auto until = steady_now() + 30s;
    while (!trio[0].links->has_left(2) && steady_now() < until) std::this_thread::yield();
    CHECK(trio[0].links->has_left(2));
  }
  SUBCASE("whom it mourns") {
    say({.type = LinkFrame::Type::abort,
         .code = Errc::peer_lost,
         .rank = 1,
         .seq = 0,
         .text = "rank 1 was lost"});
    trio[0].links->trunk()->died(2);
    CHECK(trio[0].error().rank == 1);
  }
}

TEST_CASE("links: an abort reaches all; of a rank that called dl_abort it means its loss") {
  Trio trio;
  SUBCASE("mismatch") {
    trio[1].links->abort({.code = Errc::mismatch, .what = "rank 1 and rank 2", .rank = 2});
    for (int r = 0; r < 3; ++r) {
      CHECK(trio[r].error().code == Errc::mismatch);
      CHECK(trio[r].flag.error().what == "rank 1 and rank 2");
      CHECK(trio[r].flag.error().rank == 2);
    }
  }
  SUBCASE("dl_abort") {
    trio[1].links->abort({.code = Errc::aborted, .what = "dl_abort()"});
    CHECK(trio[1].error().code == Errc::aborted);
    for (const int r : {0, 2}) {
      CHECK(trio[r].error().code == Errc::peer_lost);
      CHECK(trio[r].flag.error().rank == 1);
      CHECK(trio[r].flag.error().what == "rank 1 aborted: dl_abort()");
    }
  }
}

TEST_CASE("links: the first error stays, here and in frames to others") {
  Trio trio;
  trio[0].links->abort({.code = Errc::timeout, .what = "first"});
  trio[0].links->abort({.code = Errc::mismatch, .what = "second"});
  for (int r = 0; r < 3; ++r) CHECK(trio[r].error().what == "first");
}

TEST_CASE("links: malformed bytes end the communicator with the sender's name") {
  const std::string nonsense[] = {
      std::string(16, '\x07'),                                          // no such type
      std::string("\x01\xff\0\0\0\0\0\0", 8) + std::string(8, '\0'),    // no such error
      std::string("\x01\x05\0\0\x63\0\0\0", 8) + std::string(8, '\0'),  // rank 99
      std::string("\x05\x08\x0b\0\0\0\0\0", 8) + std::string(8, '\0'),  // half a call
  };
  for (const auto& bytes : nonsense) {
    Trio trio(2);
    std::string padded = bytes;
    padded.resize(4096, '\0');  // whatever length the header claims
    REQUIRE(::send(trio.end(2, 0).get(), padded.data(), padded.size(), 0) == 4096);
    const Error error = trio[0].error();
    CHECK(error.code == Errc::protocol);
    CHECK(error.rank == 2);
  }
}

TEST_CASE("links: a decision out of order ends the communicator with the sender's name") {
  for (const std::uint64_t second : {1UL, 3UL, 1UL << 40}) {
    LinkedRank rank;
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const UniqueFd decides(ends[1]);
    std::vector<Links::Peer> peers(2);
    peers[0] = {"rank 0", UniqueFd(ends[0])};
    auto links = Links::start(1, std::move(peers), rank.flag);
    REQUIRE(links);
    const std::string text = encode(SomeGiven{1, 0});
    const auto decide = [&](std::uint64_t number) {
      const std::string bytes = encode(
          LinkFrame{.type = LinkFrame::Type::decided, .rank = 0, .seq = number, .text = text});
      REQUIRE(::send(decides.get(), bytes.data(), bytes.size(), 0) ==
              static_cast<ssize_t>(bytes.size()));
    };
    decide(1);
    const auto given = (*links)->await_decision(1, steady_now() + 30s);
    REQUIRE(given);
    CHECK(*given == SomeGiven{1, 0});
    decide(second);
    CHECK(rank.error().code == Errc::protocol);
    CHECK(rank.error().rank == 0);
    CHECK((*links)->decided() == 1);
  }
}

TEST_CASE("links: a silent host is lost in time, one with stopped processes is not") {
  // 127.0.0.1 and 127.0.0.2 play two hosts. Rank 1 stands still: nobody reads at its end.
  UniqueFd standing[2], silent[2];
  connect_hosts(standing);
  connect_hosts(silent);
  LinkedRank rank;
  std::vector<Links::Peer> peers(3);
  peers[1] = {"rank 1", std::move(standing[0])};
  peers[2] = {"rank 2", std::move(silent[0])};
  auto links = Links::start(0, std::move(peers), rank.flag, 2s);
  REQUIRE(links);
  const auto begin = steady_now();
  SUBCASE("idle") {
    CHECK(rank.raised.wait_for(2500ms) == std::future_status::timeout);
    hear_nothing(silent[1]);
  }
  SUBCASE("with words on the way") {
    hear_nothing(silent[1]);
    (*links)->say_goodbye();
  }
  CHECK(rank.error().code == Errc::peer_lost);
  CHECK(rank.error().what == "rank 2 was lost: its host does not answer any more");
  CHECK(steady_now() - begin < 20s);
}

TEST_CASE("links: a roll call finds ranks outside the collective and ranks that do not answer") {
  Trio trio(2);
  trio[0].links->enter(5, call(5));
  trio[1].links->enter(4, call(4));
  // On a busy machine the one that does answer may be too late at first.
  const auto roll_of = [&](int rank, std::uint64_t seq) {
    RollCall roll;
    for (int i = 0; i < 10 && roll.silent != RankSet{2}; ++i) {
      roll = trio[rank].links->call_roll(seq);
    }
    CHECK(roll.silent == RankSet{2});
    return roll;
  };
  const auto begin = steady_now();
  RollCall roll = roll_of(0, 5);
  CHECK(roll.behind == RankSet{1});
  CHECK(steady_now() - begin < 20s);
  trio[1].links->complete(4);
  roll = roll_of(0, 5);
  CHECK(roll.outside == RankSet{1});
  CHECK(roll.behind == RankSet{});
  // Rank 1 waits for rank 0 as well, which is in that call or behind it.
  CHECK(roll_of(1, 4).outside == RankSet{});
  for (int r = 0; r < 2; ++r) CHECK_FALSE(trio[r].flag.raised());
}

TEST_CASE("links: a roll call ends once all have answered, or the communicator is over") {
  // Each takes a second at most. On a busy machine one may take all of it: the fastest of many
  // counts.
  const auto fastest = [](Links& of, bool all_answer) {
    Duration least = 1h;
    for (int i = 0; i < 100 && least >= 150ms; ++i) {
      const auto begin = steady_now();
      const bool all_have = of.call_roll(1).silent.empty();
      if (all_have == all_answer) least = std::min(least, steady_now() - begin);
    }
    return least;
  };
  SUBCASE("all answer") {
    Trio trio;
    CHECK(fastest(*trio[2].links, true) < 150ms);
  }
  SUBCASE("one does not, and it is over") {
    Trio trio(2);
    trio[0].links->abort({.code = Errc::timeout, .what = "too late"});
    CHECK(trio[1].error().what == "too late");
    CHECK(fastest(*trio[1].links, false) < 150ms);
  }
}

TEST_CASE("links: ranks that wait in different calls learn it from each other") {
  Trio trio;
  const auto begin = steady_now();
  SUBCASE("in the same one") {
    trio[0].links->enter(1, call(1));
    trio[1].links->enter(1, call(1, Collective::barrier));
  }
  SUBCASE("and one has gone on into the next") {
    trio[1].links->enter(1, call(1, Collective::barrier));
    trio[1].links->complete(1);
    trio[1].links->enter(2, call(2));
    trio[0].links->enter(1, call(1));
  }
  SUBCASE("and one reported before the other came, and left before that could report") {
    trio[0].links->enter(1, call(1));
    CHECK(trio[1].raised.wait_for(1500ms) == std::future_status::timeout);
    trio[1].links->enter(1, call(1, Collective::barrier));
    trio[1].links->complete(1);
    trio[1].links->enter(2, call(2));
  }
  SUBCASE("and one came after the other had reported") {
    trio[0].links->enter(1, call(1));
    CHECK(trio[1].raised.wait_for(1500ms) == std::future_status::timeout);
    trio[1].links->enter(1, call(1, Collective::barrier));
  }
  // Two may find it at once, each in its own words.
  for (int r = 0; r < 3; ++r) {
    const Error error = trio[r].error();
    CHECK(error.code == Errc::mismatch);
    CHECK(error.what.starts_with("collective #1: rank "));
    CHECK(error.what.find("rank 0 called all_reduce(count 5, uint8, sum)") != std::string::npos);
    CHECK(error.what.find("rank 1 called barrier") != std::string::npos);
  }
  CHECK(steady_now() - begin < 20s);
}

TEST_CASE("links: the error of a rank in another call has the job's names") {
  LinkedRank rank;
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  const UniqueFd peer(fds[0]);
  std::vector<Links::Peer> peers(2);
  peers[0] = {"rank 4", UniqueFd(fds[1])};
  auto links = Links::start(1, std::move(peers), rank.flag, Duration::zero(), [](Error error) {
    error.what += "; known as rank 4";
    return error;
  });
  REQUIRE(links);
  (*links)->enter(1, call(1));
  const auto say = [&](std::uint64_t seq, const CallSignature& theirs) {
    const std::string bytes = encode(
        {.type = LinkFrame::Type::inside, .rank = 0, .seq = seq, .text = "", .call = theirs});
    REQUIRE(::send(peer.get(), bytes.data(), bytes.size(), 0) > 0);
  };
  say(1, call(1));
  say(2, call(2, Collective::barrier));  // is to come here
  CHECK(rank.raised.wait_for(100ms) == std::future_status::timeout);
  say(1, call(1, Collective::barrier));
  CHECK(rank.error().rank == 0);
  CHECK(rank.error().what.ends_with("rank 0 called barrier; known as rank 4"));
}

TEST_CASE("links: a rank that comes late to a call is not an error") {
  Trio trio;
  for (std::uint64_t seq = 1; seq <= 4; ++seq) {
    for (int r = 0; r < 3; ++r) {
      trio[r].links->enter(seq, call(seq, static_cast<Collective>(seq)));
      trio[r].links->complete(seq);
    }
  }
  for (int r = 0; r < 2; ++r) trio[r].links->enter(5, call(5));
  CHECK(trio[2].raised.wait_for(2s) == std::future_status::timeout);
  trio[2].links->enter(5, call(5));
  CHECK(trio[0].raised.wait_for(1500ms) == std::future_status::timeout);
  for (int r = 0; r < 3; ++r) CHECK_FALSE(trio[r].flag.raised());
}

TEST_CASE("links: a reset connection is a loss too") {
  Trio trio(2);
  // A goodbye that rank 2 has not read makes the kernel reset the link when rank 2 ends.
  trio[0].links->say_goodbye();
  trio.kill(2);
  CHECK(trio[0].error().rank == 2);
}
