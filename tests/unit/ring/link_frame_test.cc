#include "ring/links/link_frame.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ring/call/some_quorum.h"

namespace dlaunch {
namespace {

const CallSignature kCall = signature_of({.collective = Collective::reduce,
                                          .count = std::size_t{1} << 40,
                                          .dtype = DL_FLOAT32,
                                          .op = DL_MAX,
                                          .root = 2,
                                          .seq = (std::uint64_t{1} << 32) + 7},
                                         4);

const std::string kArrived = encode(SomeArrival{.number = 4, .call = kCall});
const std::string kDecided = encode(SomeGiven{1, 0, 3});

std::vector<LinkFrame> one_of_each() {
  return {{.type = LinkFrame::Type::abort,
           .code = Errc::timeout,
           .rank = 3,
           .seq = 0,
           .text = "all_reduce #7 timed out"},
          {.type = LinkFrame::Type::goodbye, .rank = 1, .seq = 9, .text = ""},
          {.type = LinkFrame::Type::where, .rank = 0, .seq = 5, .text = ""},
          {.type = LinkFrame::Type::here, .rank = -1, .seq = 4, .text = ""},
          {.type = LinkFrame::Type::inside,
           .rank = 2,
           .seq = (std::uint64_t{1} << 32) + 7,
           .text = "",
           .call = kCall,
           .channel = 7},
          {.type = LinkFrame::Type::join, .text = "", .channel = std::uint64_t{1} << 63},
          {.type = LinkFrame::Type::pass, .seq = 258, .text = "", .channel = 7},
          {.type = LinkFrame::Type::want, .text = "", .channel = 7},
          {.type = LinkFrame::Type::memory, .seq = 3, .text = ""},
          {.type = LinkFrame::Type::arrived, .rank = 2, .seq = 4, .text = kArrived},
          {.type = LinkFrame::Type::decided,
           .rank = 0,
           .seq = 4,
           .text = kDecided,
           .origin = 0,
           .number = 6},
          {.type = LinkFrame::Type::abort,
           .rank = 1,
           .seq = 0,
           .text = "passed on",
           .origin = 3,
           .number = 1u << 31}};
}

bool refused(std::string_view bytes) {
  const auto frame = take_link_frame(bytes, 4);
  return !frame && frame.error().code == Errc::protocol;
}

}  // namespace

TEST_CASE("link frames: each is read as it was written, however many follow each other") {
  std::string bytes;
  for (const auto& frame : one_of_each()) bytes += encode(frame);
  std::string_view rest = bytes;
  for (const auto& sent : one_of_each()) {
    const auto frame = take_link_frame(rest, 4);
    REQUIRE(frame);
    REQUIRE(frame->has_value());
    CHECK((*frame)->type == sent.type);
    CHECK((*frame)->code == sent.code);
    CHECK((*frame)->rank == sent.rank);
    CHECK((*frame)->seq == sent.seq);
    CHECK((*frame)->text == sent.text);
    CHECK((*frame)->call == sent.call);
    CHECK((*frame)->channel == sent.channel);
    CHECK((*frame)->origin == sent.origin);
    CHECK((*frame)->number == sent.number);
  }
  CHECK(rest.empty());
}

TEST_CASE("link frames: one that is passed on names the rank that began it, and has a number") {
  const LinkFrame good{.type = LinkFrame::Type::goodbye, .text = "", .origin = 3, .number = 1};
  CHECK_FALSE(refused(encode(good)));
  LinkFrame bad = good;
  bad.origin = 4;
  CHECK(refused(encode(bad)));
  bad.origin = -1;
  CHECK(refused(encode(bad)));
  bad = good;
  bad.type = LinkFrame::Type::pass;  // descriptors go from hand to hand only
  CHECK(refused(encode(bad)));
  std::string none = encode(good);
  none[none.size() - 4] = 0;  // the number
  CHECK(refused(none));
}

TEST_CASE("link frames: an incomplete frame is not consumed") {
  for (const auto& frame : one_of_each()) {
    const std::string bytes = encode(frame);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      std::string_view part(bytes.data(), size);
      const auto taken = take_link_frame(part, 4);
      REQUIRE(taken);
      CHECK_FALSE(taken->has_value());
      CHECK(part.size() == size);
    }
  }
}

TEST_CASE("link frames: an impossible header is refused") {
  for (const auto& frame : one_of_each()) {
    std::string bytes = encode(frame);
    INFO("type " << static_cast<int>(bytes[0]));
    const auto with = [&](std::size_t at, char byte) {
      std::string changed = bytes.substr(0, frame.number > 0 ? 32 : 24);
      changed[at] = byte;
      return changed;
    };
    CHECK(refused(with(0, 0)));
    CHECK(refused(with(0, 12)));
    CHECK(refused(with(1, 127)));
    CHECK(refused(with(3, 4)));  // 1,024 bytes of text and more
    CHECK(refused(with(4, 4)));  // of ranks 0 to 3
    CHECK(refused(with(7, -2)));
    // The text of these has one length, or one of so many numbers.
    if (frame.type == LinkFrame::Type::arrived) {
      for (const char size : {0, 28, 30}) CHECK(refused(with(2, size)));
    }
    if (frame.type == LinkFrame::Type::decided) {
      for (const char size : {3, 15, 20}) CHECK(refused(with(2, size)));
    }
    // What was called has one length.
    if (frame.type != LinkFrame::Type::inside) continue;
    for (const char size : {0, 1, 11, 13, 16}) CHECK(refused(with(2, size)));
    CHECK(refused(with(3, 1)));
  }
}

TEST_CASE("link frames: a text that is too long is cut") {
  const std::string text(kMaxLinkText + 1, 'x');
  const std::string bytes = encode({.text = text});
  std::string_view rest = bytes;
  const auto frame = take_link_frame(rest, 4);
  REQUIRE(frame);
  REQUIRE(frame->has_value());
  CHECK((*frame)->text.size() == kMaxLinkText);
  CHECK(rest.empty());
}

TEST_CASE("link frames: the first ABORT is the sender's last word, with a rank or without") {
  const std::string others = encode({.type = LinkFrame::Type::want, .text = ""});
  CHECK(!error_in_frames("", 4));
  CHECK(!error_in_frames(others, 4));
  for (const int rank : {2, -1}) {
    const std::string abort =
        encode({.code = Errc::timeout, .rank = rank, .text = "rank 2 has not connected"});
    const auto error = error_in_frames(others + abort + others, 4);
    REQUIRE(error);
    CHECK(error->code == Errc::timeout);
    CHECK(error->rank == rank);
    CHECK(error->what == "rank 2 has not connected");
    CHECK(!error_in_frames(abort.substr(0, abort.size() - 1), 4));
  }
}

TEST_CASE("link frames: they carry each kind of failure, and no number beyond") {
  for (int code = 0; code <= static_cast<int>(kLastErrc) + 1; ++code) {
    const std::string abort = encode({.code = static_cast<Errc>(code), .rank = 1, .text = "why"});
    const auto error = error_in_frames(abort, 4);
    CHECK(error.has_value() == (code <= static_cast<int>(kLastErrc)));
    if (error) CHECK(error->code == static_cast<Errc>(code));
  }
}

}  // namespace dlaunch
