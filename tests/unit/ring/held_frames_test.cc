#include "ring/links/held_frames.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <string>

#include <doctest/doctest.h>

namespace dlaunch {
namespace {

using Type = LinkFrame::Type;

LinkFrame held_frame(Type type, std::uint64_t channel, Passed passed = Passed::segment) {
  return {.type = type,
          .seq = type == Type::pass ? static_cast<std::uint64_t>(passed) : 0,
          .text = "",
          .channel = channel};
}

}  // namespace

TEST_CASE(
    "held frames: what belongs to a bootstrap waits for it, in order, apart from other channels") {
  HeldFrames held;
  held.hold(2, held_frame(Type::join, 7), {});
  held.hold(1, held_frame(Type::join, 8), {});
  UniqueFd descriptor(::eventfd(0, EFD_CLOEXEC));
  const int number = descriptor.get();
  held.hold(1, held_frame(Type::pass, 7), std::move(descriptor));
  const auto taken = held.take(7);
  REQUIRE(taken.size() == 2);
  CHECK(taken[0].peer == 2);
  CHECK(taken[0].frame.type == Type::join);
  CHECK(taken[1].peer == 1);
  CHECK(taken[1].descriptor.get() == number);
  CHECK(held.take(7).empty());
  CHECK(held.take(8).size() == 1);
  CHECK(held.size() == 0);
}

TEST_CASE("held frames: an abort of a rank that has come to the bootstrap is kept, with its text") {
  HeldFrames held;
  {
    const std::string why = "it has timed out";
    LinkFrame abort = held_frame(Type::abort, 7);
    abort.text = why;
    held.hold(1, abort, {});  // nobody has come: it is over for all
    held.hold(2, held_frame(Type::join, 7), {});
    held.hold(1, abort, {});
    held.hold(2, abort, {});
  }
  const auto taken = held.take(7);
  REQUIRE(taken.size() == 2);
  CHECK(taken[1].peer == 2);
  CHECK(taken[1].frame.type == Type::abort);
  CHECK(taken[1].text == "it has timed out");
}

TEST_CASE("held frames: a frame that no bootstrap needs is dropped, and its descriptor closed") {
  HeldFrames held;
  for (const Type type : {Type::goodbye, Type::where, Type::here, Type::inside, Type::want}) {
    held.hold(1, held_frame(type, 7), {});
  }
  UniqueFd descriptor(::eventfd(0, EFD_CLOEXEC));
  const int number = descriptor.get();
  held.hold(1, held_frame(Type::pass, 7, Passed::region), std::move(descriptor));
  CHECK(held.size() == 0);
  CHECK(::lseek(number, 0, SEEK_CUR) == -1);
}

TEST_CASE("held frames: with an abort the peer's descriptors for the channel are closed") {
  HeldFrames held;
  const auto pass = [&held](int peer, std::uint64_t channel) {
    UniqueFd descriptor(::eventfd(0, EFD_CLOEXEC));
    const int number = descriptor.get();
    held.hold(peer, held_frame(Type::pass, channel), std::move(descriptor));
    return number;
  };
  const int gives_up = pass(1, 7), of_other_peer = pass(2, 7), of_other_channel = pass(1, 8);
  held.hold(1, held_frame(Type::abort, 7), {});
  CHECK(::fcntl(gives_up, F_GETFD) == -1);
  CHECK(::fcntl(of_other_peer, F_GETFD) >= 0);
  CHECK(::fcntl(of_other_channel, F_GETFD) >= 0);
  const auto taken = held.take(7);
  REQUIRE(taken.size() == 2);
  CHECK(taken[0].peer == 2);
  CHECK(taken[1].frame.type == Type::abort);
}

TEST_CASE("held frames: only aborts of an ended peer are kept") {
  HeldFrames held;
  UniqueFd descriptor(::eventfd(0, EFD_CLOEXEC));
  const int number = descriptor.get();
  held.hold(1, held_frame(Type::join, 7), {});
  held.hold(1, held_frame(Type::pass, 7), std::move(descriptor));
  held.hold(1, held_frame(Type::abort, 7), {});
  held.hold(2, held_frame(Type::join, 7), {});
  held.drop(1);
  CHECK(::lseek(number, 0, SEEK_CUR) == -1);
  const auto taken = held.take(7);
  REQUIRE(taken.size() == 2);
  CHECK(taken[0].frame.type == Type::abort);
  CHECK(taken[1].peer == 2);
}

TEST_CASE("held frames: beyond the limit the oldest frame is dropped") {
  HeldFrames held(2);
  for (const std::uint64_t channel : {1, 2, 3}) held.hold(0, held_frame(Type::join, channel), {});
  CHECK(held.size() == 2);
  CHECK(held.take(1).empty());
  CHECK(held.take(3).size() == 1);
}

}  // namespace dlaunch
