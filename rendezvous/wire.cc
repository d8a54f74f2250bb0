#include "rendezvous/wire.h"

#include "base/codec.h"
#include "rendezvous/store.h"

namespace dlaunch {
namespace {

Error malformed(const char* what) {
  return Error{.code = Errc::protocol, .what = std::string("store: malformed ") + what};
}

std::string get_key(Reader& in) { return std::string(in.get_string(kMaxKeyBytes)); }
std::string get_value(Reader& in) { return std::string(in.get_string(kMaxValueBytes)); }

bool read_keys(Reader& in, StoreRequest& request) {
  const auto count = in.get<std::uint32_t>();
  if (count > kMaxWaitKeys) return false;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) request.keys.push_back(get_key(in));
  return in.done();
}

}  // namespace

std::string encode(const StoreRequest& request) {
  Writer out;
  out.put(static_cast<std::uint8_t>(request.op));
  out.put(request.id);
  if (request.op == StoreOp::wait) {
    out.put(static_cast<std::int64_t>(request.timeout.count()));
    out.put(static_cast<std::uint32_t>(request.keys.size()));
    for (const auto& key : request.keys) out.put_string(key);
    return framed<std::uint32_t>(out);
  }
  out.put_string(request.key);
  switch (request.op) {
    case StoreOp::set:
      out.put_string(request.value);
      break;
    case StoreOp::get:
      out.put(static_cast<std::int64_t>(request.timeout.count()));
      break;
    case StoreOp::compare_and_set:
      out.put(static_cast<std::uint8_t>(request.expected.has_value()));
      out.put_string(request.expected.value_or(""));
      out.put_string(request.value);
      break;
    case StoreOp::add:
      out.put(request.delta);
      break;
    default:
      break;
  }
  return framed<std::uint32_t>(out);
}

Result<StoreRequest> decode_request(std::string_view message) {
  Reader in(message);
  StoreRequest request;
  request.op = static_cast<StoreOp>(in.get<std::uint8_t>());
  request.id = in.get<std::uint32_t>();
  if (request.op < StoreOp::set || request.op > StoreOp::delete_prefix) return malformed("request");
  if (request.op == StoreOp::wait) {
    request.timeout = Duration(in.get<std::int64_t>());
    if (!read_keys(in, request)) return malformed("request");
    return request;
  }
  request.key = get_key(in);
  switch (request.op) {
    case StoreOp::set:
      request.value = get_value(in);
      break;
    case StoreOp::get:
      request.timeout = Duration(in.get<std::int64_t>());
      break;
    case StoreOp::compare_and_set: {
      const auto has_expected = in.get<std::uint8_t>();
      auto expected = get_value(in);
      // Each request has exactly one encoding.
      if (has_expected > 1 || (has_expected == 0 && !expected.empty())) return malformed("request");
      if (has_expected == 1) request.expected = std::move(expected);
      request.value = get_value(in);
      break;
    }
    case StoreOp::add:
      request.delta = in.get<std::int64_t>();
      break;
    default:
      break;
  }
  if (!in.done()) return malformed("request");
  return request;
}

std::string encode(const StoreReply& reply) {
  Writer out;
  out.put(static_cast<std::uint8_t>(reply.status));
  out.put(reply.id);
  out.put(reply.number);
  out.put_string(reply.value);
  return framed<std::uint32_t>(out);
}

Result<StoreReply> decode_reply(std::string_view message) {
  Reader in(message);
  StoreReply reply;
  reply.status = static_cast<StoreStatus>(in.get<std::uint8_t>());
  reply.id = in.get<std::uint32_t>();
  reply.number = in.get<std::int64_t>();
  reply.value = get_value(in);
  if (!in.done() || reply.status > StoreStatus::too_many) return malformed("reply");
  return reply;
}

Result<std::optional<std::string_view>> FrameBuffer::next() {
  buffer_.erase(0, std::exchange(taken_, 0));
  if (buffer_.size() < 4) return std::optional<std::string_view>();
  const auto size = Reader(buffer_).get<std::uint32_t>();
  if (size > kMaxFrameBytes) return malformed("frame");
  if (buffer_.size() - 4 < size) return std::optional<std::string_view>();
  taken_ = 4 + size;
  return std::optional(std::string_view(buffer_).substr(4, size));
}

}  // namespace dlaunch
