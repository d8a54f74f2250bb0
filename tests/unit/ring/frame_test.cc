#include "ring/stream/frame.h"

#include <array>
#include <cstring>
#include <random>

#include <doctest/doctest.h>

#include "ring/call/operation.h"
#include "ring/stream/inbox.h"

namespace dlaunch {
namespace {

using HeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

HeaderBytes encoded(const FrameHeader& header, std::uint64_t round) {
  HeaderBytes bytes;
  encode_frame(header, round, bytes);
  return bytes;
}

TEST_CASE("frame headers survive the wire") {
  const CallSignature signature{.count = 12345678901, .packed = 0x00020981, .seq = 17};
  const FrameHeader collective = collective_frame(signature, 4096);
  const auto read = decode_frame(encoded(collective, 9), 9);
  REQUIRE(read);
  CHECK(*read == collective);
  CHECK(read->signature() == signature);

  const FrameHeader message = message_frame(3, DL_FLOAT64, 2147483647);
  CHECK(message.bytes == 24);
  const auto read_message = decode_frame(encoded(message, 9), 9);
  REQUIRE(read_message);
  CHECK(*read_message == message);
  CHECK(read_message->message_dtype() == DL_FLOAT64);
  CHECK(read_message->message_tag() == 2147483647);
}

TEST_CASE("frames of another round are refused by value") {
  const auto read = decode_frame(encoded(message_frame(1, DL_INT8, 0), 3), 4);
  REQUIRE(!read);
  CHECK(read.error().code == Errc::protocol);
  CHECK(read.error().what == "a frame of round 3, this is round 4");
}

TEST_CASE("every altered byte of magic, kind and padding is detected") {
  const HeaderBytes good = encoded(message_frame(5, DL_INT32, 7), 1);
  for (std::size_t i = 0; i < good.size(); ++i) {
    if (i >= 16 && i < 40) continue;
    for (int bit = 0; bit < 8; ++bit) {
      HeaderBytes bad = good;
      bad[i] ^= static_cast<std::byte>(1 << bit);
      // A kind that is one bit off may be the other valid kind, but not from 2 to 1.
      CHECK(!decode_frame(bad, 1));
    }
  }
}

TEST_CASE("messages whose length does not fit their count and dtype are refused") {
  FrameHeader header = message_frame(5, DL_INT32, 7);
  header.bytes = 21;
  CHECK(!decode_frame(encoded(header, 1), 1));
  header = message_frame(5, DL_INT32, 7);
  header.what = 10;
  CHECK(!decode_frame(encoded(header, 1), 1));
  for (const int tag : {-1, -4}) {
    CHECK(!decode_frame(encoded(message_frame(5, DL_INT32, tag), 1), 1));
  }
  for (const int tag : {kSomePartTag, kSomeResultTag}) {  // the library's own
    CHECK(decode_frame(encoded(message_frame(5, DL_INT32, tag), 1), 1));
  }
  header = message_frame(5, DL_FLOAT64, 0);
  header.count = (std::uint64_t{1} << 61) + 5;  // times 8 wraps around to the right length
  CHECK(!decode_frame(encoded(header, 1), 1));
}

TEST_CASE("random bytes never pass as a frame") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    HeaderBytes bytes;
    for (std::size_t k = 0; k < bytes.size(); k += 8) {
      const std::uint64_t value = random();
      std::memcpy(bytes.data() + k, &value, 8);
    }
    CHECK(!decode_frame(bytes, 1));
  }
}

TEST_CASE("the inbox keeps the order of a tag and frees its memory") {
  Inbox inbox(2, 1000);
  Inbox::Message* first = inbox.add(1, message_frame(4, DL_UINT8, 5));
  REQUIRE(first);
  first->payload[0] = std::byte{11};
  CHECK(!inbox.find(1, 5)->complete);
  inbox.complete(1);
  REQUIRE(inbox.add(1, message_frame(4, DL_UINT8, 6)));
  inbox.complete(1);
  Inbox::Message* third = inbox.add(1, message_frame(4, DL_UINT8, 5));
  REQUIRE(third);
  third->payload[0] = std::byte{33};
  inbox.complete(1);

  CHECK(inbox.find(1, 7) == nullptr);
  CHECK(inbox.find(0, 5) == nullptr);
  CHECK(inbox.find(1, 5)->payload[0] == std::byte{11});
  inbox.drop(1, 5);
  CHECK(inbox.find(1, 5)->payload[0] == std::byte{33});
}

TEST_CASE("the inbox is bounded for each peer, by count too") {
  Inbox inbox(3, 1000);
  CHECK(inbox.add(1, message_frame(1001, DL_UINT8, 0)) == nullptr);
  REQUIRE(inbox.add(1, message_frame(600, DL_UINT8, 0)));
  inbox.complete(1);
  CHECK(inbox.add(1, message_frame(600, DL_UINT8, 1)) == nullptr);
  CHECK(inbox.add(2, message_frame(600, DL_UINT8, 1)) != nullptr);
  inbox.drop(1, 0);
  CHECK(inbox.add(1, message_frame(600, DL_UINT8, 1)) != nullptr);
  inbox.complete(1);
  int empty = 0;
  while (inbox.add(1, message_frame(0, DL_UINT8, 2)) != nullptr) {
    inbox.complete(1);
    REQUIRE(++empty < 1000);
  }
}

}  // namespace
}  // namespace dlaunch
