#include "rendezvous/wire.h"

#include <random>

#include <doctest/doctest.h>

#include "rendezvous/store.h"

using namespace dlaunch;

namespace {

std::vector<StoreRequest> samples() {
  return {
      {.op = StoreOp::set, .id = 1, .key = "k", .value = std::string("\0v", 2)},
      {.op = StoreOp::get, .id = 2, .key = "k", .timeout = std::chrono::seconds(3)},
      {.op = StoreOp::try_get, .id = 3, .key = ""},
      {.op = StoreOp::compare_and_set, .id = 4, .key = "k", .value = "n", .expected = "o"},
      {.op = StoreOp::compare_and_set, .id = 5, .key = "k", .value = "n"},
      {.op = StoreOp::add, .id = 6, .key = "n", .delta = -7},
      {.op = StoreOp::wait, .id = 7, .timeout = Duration(1), .keys = {"a", "b"}},
      {.op = StoreOp::delete_prefix, .id = 8, .key = "r1/"},
  };
}

std::string_view inside(const std::string& frame) { return std::string_view(frame).substr(4); }

}  // namespace

TEST_CASE("requests and replies survive the wire") {
  for (const auto& request : samples()) {
    const auto decoded = decode_request(inside(encode(request)));
    REQUIRE(decoded);
    CHECK(*decoded == request);
  }
  const StoreReply reply{.status = StoreStatus::timeout, .id = 9, .number = -1, .value = "k"};
  CHECK(*decode_reply(inside(encode(reply))) == reply);
}

TEST_CASE("a message that is cut, padded or mangled is refused or decodes, and never overruns") {
  std::mt19937 random(1);
  for (const auto& request : samples()) {
    const std::string frame = encode(request);
    const auto whole = std::string(inside(frame));
    for (std::size_t cut = 0; cut < whole.size(); ++cut) {
      CHECK_FALSE(decode_request(whole.substr(0, cut)));
    }
    CHECK_FALSE(decode_request(whole + "x"));
    for (int i = 0; i < 2000; ++i) {
      std::string mangled = whole;
      mangled[random() % mangled.size()] = static_cast<char>(random());
      (void)decode_request(mangled);
      (void)decode_reply(mangled);
    }
  }
}

TEST_CASE("frames are cut off a stream however it is split") {
  std::string stream;
  for (const auto& request : samples()) stream += encode(request);
  for (std::size_t piece = 1; piece < 40; ++piece) {
    FrameBuffer frames;
    std::size_t seen = 0;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      frames.append(std::string_view(stream).substr(at, piece));
      while (true) {
        const auto next = frames.next();
        REQUIRE(next);
        if (!next->has_value()) break;
        CHECK(*decode_request(**next) == samples()[seen++]);
      }
    }
    CHECK(seen == samples().size());
  }
}

TEST_CASE("an oversized frame is refused before it is stored") {
  FrameBuffer frames;
  frames.append(std::string_view("\xff\xff\xff\x7f", 4));
  CHECK_FALSE(frames.next());
}

TEST_CASE("a wait for too many keys is not a wait for none") {
  std::string wait(inside(encode({.op = StoreOp::wait, .keys = {}})));
  CHECK(decode_request(wait));
  wait.back() = '\x7f';  // of their number
  CHECK_FALSE(decode_request(wait));
}

TEST_CASE("every valid message has one encoding") {
  std::mt19937 random(2);
  for (const auto& request : samples()) {
    const auto frame = encode(request);
    for (int i = 0; i < 20000; ++i) {
      std::string mangled(inside(frame));
      mangled[random() % mangled.size()] = static_cast<char>(random() % 4);
      const auto decoded = decode_request(mangled);
      if (decoded) CHECK(inside(encode(*decoded)) == mangled);
    }
  }
}
