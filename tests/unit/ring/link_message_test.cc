#include "ring/links/link_message.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include <doctest/doctest.h>

#include "process_world.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

struct Pair {
  Pair() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    a.reset(fds[0]);
    b.reset(fds[1]);
  }
  UniqueFd a, b;
};

TimePoint soon() { return steady_now() + 30s; }

}  // namespace

TEST_CASE("link messages: answers, texts and descriptors arrive, and no later byte is read") {
  const Pair link;
  const Pair passed;
  const LinkMessage no{.answer = LinkMessage::Answer::no,
                       .error = {.code = Errc::io, .what = "no memory", .rank = 3},
                       .cpus = "\x05",
                       .cores = 7,
                       .fds = {}};
  REQUIRE(send_link_message(link.a.get(), {}, {passed.a.get(), passed.b.get()}, soon()));
  REQUIRE(send_link_message(link.a.get(), no, {}, soon()));
  REQUIRE(::send(link.a.get(), "later", 5, 0) == 5);

  auto first = receive_link_message(link.b.get(), soon());
  REQUIRE(first);
  CHECK(first->answer == LinkMessage::Answer::yes);
  REQUIRE(first->fds.size() == 2);
  struct stat mine, theirs;
  REQUIRE(::fstat(passed.b.get(), &mine) == 0);
  REQUIRE(::fstat(first->fds[1].get(), &theirs) == 0);
  CHECK(mine.st_ino == theirs.st_ino);
  CHECK((::fcntl(first->fds[0].get(), F_GETFD) & FD_CLOEXEC) != 0);

  auto second = receive_link_message(link.b.get(), soon());
  REQUIRE(second);
  CHECK(second->answer == LinkMessage::Answer::no);
  CHECK(second->error.what == "no memory");
  CHECK(second->error.rank == 3);
  CHECK(second->cpus == "\x05");
  CHECK(second->cores == 7);
  CHECK(second->fds.empty());
  char rest[8];
  CHECK(::recv(link.b.get(), rest, sizeof rest, 0) == 5);
}

TEST_CASE("link messages: a peer's end, malformed bytes and silence are different errors") {
  SUBCASE("end") {
    Pair link;
    link.a.reset();
    CHECK(receive_link_message(link.b.get(), soon()).error().code == Errc::peer_lost);
    CHECK(send_link_message(link.b.get(), {}, {}, soon()).error().code == Errc::peer_lost);
  }
  SUBCASE("nonsense") {
    const Pair link;
    const std::string bytes(64, '\xee');
    REQUIRE(::send(link.a.get(), bytes.data(), bytes.size(), 0) == 64);
    CHECK(receive_link_message(link.b.get(), soon()).error().code == Errc::protocol);
  }
  SUBCASE("silence") {
    const Pair link;
    CHECK(receive_link_message(link.b.get(), steady_now() + 20ms).error().code == Errc::timeout);
  }
}

TEST_CASE("link messages: only descriptors beyond the process's limit are missing") {
  CHECK(end_of(start([] {
          const Pair link;
          const Pair passed;
          if (!send_link_message(link.a.get(), {}, {passed.a.get(), passed.b.get()}, soon())) {
            return 1;
          }
          if (!send_link_message(link.a.get(), {}, {}, soon())) return 2;
          const int next = ::dup(link.a.get());
          const rlimit full{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
          ::close(next);
          ::setrlimit(RLIMIT_NOFILE, &full);
          auto got = receive_link_message(link.b.get(), soon());
          if (!got || got->fds.size() >= 2) return 3;
          return receive_link_message(link.b.get(), soon()) ? 0 : 4;
        })) == 0);
}

TEST_CASE("link messages: they carry each kind of failure, and no number beyond") {
  const Pair link;
  for (int code = 0; code <= static_cast<int>(kLastErrc) + 1; ++code) {
    const LinkMessage sent{.answer = LinkMessage::Answer::no,
                           .error = {.code = static_cast<Errc>(code), .what = "why"},
                           .cpus = "",
                           .fds = {}};
    REQUIRE(send_link_message(link.a.get(), sent, {}, soon()));
    const auto got = receive_link_message(link.b.get(), soon());
    CHECK(got.has_value() == (code <= static_cast<int>(kLastErrc)));
    if (got) CHECK(got->error.code == static_cast<Errc>(code));
  }
}
