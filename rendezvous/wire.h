// The bytes of the tcp:// store, after the handshake. Little-endian, no alignment.
//
//   frame    u32 size (of what follows, at most kMaxFrameBytes), then a message
//   request  u8 op, u32 id, then
//              set             key, value
//              get             key, i64 timeout_ns      waits; a timeout <= 0 does not wait
//              try_get         key
//              compare_and_set key, u8 has_expected, expected ("" where has_expected is 0), value
//              add             key, i64 delta
//              wait            i64 timeout_ns, u32 n, n keys
//              delete_prefix   prefix
//   reply    u8 status, u32 id of the request, i64 number, value
//
// Keys and values are a u32 length and bytes, at most kMaxKeyBytes and kMaxValueBytes. Durations
// cross the wire, never points in time. Replies on one connection may come out of order. Pure;
// fuzzed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace dlaunch {

inline constexpr std::size_t kMaxWaitKeys = 65536;
inline constexpr std::size_t kMaxFrameBytes = 4 << 20;

enum class StoreOp : std::uint8_t {
  set = 1,
  get,
  try_get,
  compare_and_set,
  add,
  wait,
  delete_prefix
};

struct StoreRequest {
  StoreOp op = StoreOp::set;
  std::uint32_t id = 0;
  std::string key;  // or the prefix
  std::string value;
  std::optional<std::string> expected;
  std::int64_t delta = 0;
  Duration timeout{};
  std::vector<std::string> keys;

  bool operator==(const StoreRequest&) const = default;
};

enum class StoreStatus : std::uint8_t {
  ok = 0,
  absent,      // try_get, compare_and_set: there is no such key
  timeout,     // get, wait: `value` names the missing keys
  not_number,  // add: the key does not hold a decimal number
  full,        // the store has no room
  too_many,    // get, wait: too many requests of this connection wait already
};

struct StoreReply {
  StoreStatus status = StoreStatus::ok;
  std::uint32_t id = 0;
  std::int64_t number = 0;
  std::string value;

  bool operator==(const StoreReply&) const = default;
};

// With the frame's size in front.
std::string encode(const StoreRequest& request);
std::string encode(const StoreReply& reply);

// The inside of a frame, without the size. Errc::protocol for any misfit.
Result<StoreRequest> decode_request(std::string_view message);
Result<StoreReply> decode_reply(std::string_view message);

// Cuts frames off a stream of bytes.
class FrameBuffer {
 public:
  void append(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole message, or nullopt if more bytes are needed. The view is valid until the next
  // call. A size above the limit is Errc::protocol, before anything is stored for it.
  Result<std::optional<std::string_view>> next();

 private:
  std::string buffer_;
  std::size_t taken_ = 0;  // bytes of the last message returned, dropped at the next call
};

}  // namespace dlaunch
