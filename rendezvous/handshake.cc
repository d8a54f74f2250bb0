#include "rendezvous/handshake.h"

#include <fmt/format.h>

#include "base/codec.h"
#include "base/text.h"

namespace dlaunch {
namespace {

constexpr std::uint32_t kMagic = 0x324e4c44;  // "DLN2"
constexpr std::size_t kMaxMessage = 1024;
constexpr std::size_t kMaxHelloText = 256;

enum class Type : std::uint8_t { hello = 1, challenge = 2, proof = 3, welcome = 4, refuse = 5 };

// The first bytes of a TLS record. No message of ours with these bytes has that length.
bool is_tls(std::string_view bytes) {
  return bytes.size() >= 3 && (bytes[0] == 0x15 || bytes[0] == 0x16) && bytes[1] == 3 &&
         bytes[2] >= 1 && bytes[2] <= 3;
}

std::string_view clip(std::string_view text) { return text.substr(0, kMaxHelloText); }

Writer write_hello(const HandshakeIdentity& self, std::string_view nonce) {
  Writer out;
  out.put(static_cast<std::uint8_t>(Type::hello));
  out.put(kMagic);
  out.put(static_cast<std::uint8_t>(self.purpose));
  out.put(self.more);
  out.put(self.round);
  out.put(self.from_rank);
  out.put(self.to_rank);
  out.put_string(clip(self.job_id));
  out.put_string(clip(self.who));
  out.put_raw(nonce);
  return out;
}

std::string_view mac_view(const Mac& mac) { return {mac.data(), mac.size()}; }

Error auth_error(std::string what) { return Error{.code = Errc::auth, .what = std::move(what)}; }
Error handshake_error(const char* what) {
  return Error{.code = Errc::protocol, .what = std::string("handshake: ") + what};
}

bool is_of_ring(Purpose purpose) {
  return purpose != Purpose::store && purpose != Purpose::node && purpose != Purpose::output;
}

// Why the acceptor rejects this connector; "" if it accepts.
std::string objection(const HandshakeIdentity& expected, const HandshakeIdentity& got) {
  if (got.job_id != expected.job_id) {
    return fmt::format("this is job '{}'; {} is of job '{}'", expected.job_id, got.who,
                       escaped(got.job_id));
  }
  // Links and data sockets of one ring come to one listener, in any order.
  if (is_of_ring(got.purpose) != is_of_ring(expected.purpose)) {
    return fmt::format("{} wants another kind of connection than this socket accepts", got.who);
  }
  if (got.round != expected.round) {
    return fmt::format("this is round {}; {} is of round {}", expected.round, got.who, got.round);
  }
  if (got.to_rank != -1 && expected.to_rank != -1 && got.to_rank != expected.to_rank) {
    return fmt::format("this is rank {}; {} looks for rank {}", expected.to_rank, got.who,
                       got.to_rank);
  }
  if (expected.from_rank != -1 && got.from_rank != expected.from_rank) {
    return fmt::format("rank {} is expected here, not {}", expected.from_rank, got.who);
  }
  return "";
}

}  // namespace

Handshake::Handshake(const Secret& secret, HandshakeIdentity self, std::string nonce, State state)
    : secret_(secret), self_(std::move(self)), nonce_(std::move(nonce)), state_(state) {
  DL_ASSERT(nonce_.size() == kNonceBytes);
}

Handshake Handshake::connector(const Secret& secret, HandshakeIdentity self, std::string nonce) {
  Handshake h(secret, std::move(self), std::move(nonce), State::await_challenge);
  const Writer hello = write_hello(h.self_, h.nonce_);
  h.transcript_ = hello.bytes();
  h.output_ = framed<std::uint16_t>(hello);
  return h;
}

Handshake Handshake::acceptor(const Secret& secret, HandshakeIdentity expected, std::string nonce) {
  return Handshake(secret, std::move(expected), std::move(nonce), State::await_hello);
}

Handshake Handshake::acceptor(const Secret& secret, Expect expect, std::string nonce) {
  Handshake h(secret, {}, std::move(nonce), State::await_hello);
  h.expect_ = std::move(expect);
  return h;
}

std::string Handshake::take_output() { return std::exchange(output_, {}); }

std::size_t Handshake::wanted() const {
  if (state_ == State::done || state_ == State::failed) return 0;
  std::size_t whole = 2;
  if (partial_.size() >= 2) whole += Reader(partial_).get<std::uint16_t>();
  return whole - partial_.size();
}

Result<std::size_t> Handshake::feed(std::string_view input) {
  std::size_t used = 0;
  while (wanted() > 0 && used < input.size()) {
    const auto take = std::min(wanted(), input.size() - used);
    partial_.append(input.substr(used, take));
    used += take;
    if (is_tls(partial_)) {
      state_ = State::failed;
      return auth_error("the other side encrypts and this one does not: do both sides have --tls?");
    }
    const std::size_t size = partial_.size() < 2 ? 0 : Reader(partial_).get<std::uint16_t>();
    if (partial_.size() >= 2 && (size == 0 || size > kMaxMessage)) {
      state_ = State::failed;
      return handshake_error("not a handshake message");
    }
    if (partial_.size() < 2 + size || size == 0) continue;
    const std::string message = std::exchange(partial_, {}).substr(2);
    if (auto handled = on_message(message); !handled) {
      state_ = State::failed;
      return handled.error();
    }
  }
  return used;
}

Result<void> Handshake::on_message(std::string_view message) {
  Reader in(message);
  const auto type = static_cast<Type>(in.get<std::uint8_t>());
  if (type == Type::refuse) {
    const auto text = in.get_string(kMaxMessage);
    if (!in.done()) return handshake_error("malformed refusal");
    return auth_error("refused: " + escaped(text));
  }
  switch (state_) {
    case State::await_hello:
      return type == Type::hello ? on_hello(message) : handshake_error("HELLO expected");
    case State::await_challenge:
      return type == Type::challenge ? on_challenge(message)
                                     : handshake_error("CHALLENGE expected");
    case State::await_proof:
      return type == Type::proof ? on_proof(message) : handshake_error("PROOF expected");
    case State::await_welcome:
      if (type != Type::welcome || !in.done()) return handshake_error("WELCOME expected");
      state_ = State::done;
      return {};
    default:
      return handshake_error("unexpected message");
  }
}

Result<void> Handshake::on_hello(std::string_view message) {
  Reader in(message);
  in.get<std::uint8_t>();
  const auto magic = in.get<std::uint32_t>();
  if (magic != kMagic) {
    const bool other_version = magic << 8 == kMagic << 8;  // "DLN", and another digit
    return handshake_error(other_version ? "of another version of dlaunch" : "not a dlaunch peer");
  }
  peer_.purpose = static_cast<Purpose>(in.get<std::uint8_t>());
  peer_.more = in.get<std::uint8_t>();
  peer_.round = in.get<std::uint64_t>();
  peer_.from_rank = in.get<std::int32_t>();
  peer_.to_rank = in.get<std::int32_t>();
  peer_.job_id = in.get_string(kMaxHelloText);
  peer_.who = escaped(in.get_string(kMaxHelloText));  // for messages only
  in.get_raw(kNonceBytes);
  if (!in.done()) return handshake_error("malformed HELLO");
  if (expect_) {
    auto expected = expect_(peer_);
    if (!expected) return handshake_error("for a rank that is not here");
    self_ = std::move(*expected);
  }
  if (const auto why = objection(self_, peer_); !why.empty()) return refuse(why);

  transcript_ = std::string(message) + nonce_;
  Writer out;
  out.put(static_cast<std::uint8_t>(Type::challenge));
  out.put_raw(nonce_);
  out.put_raw(mac_view(secret_.mac("acceptor" + transcript_)));
  output_ += framed<std::uint16_t>(out);
  state_ = State::await_proof;
  return {};
}

Result<void> Handshake::on_challenge(std::string_view message) {
  Reader in(message);
  in.get<std::uint8_t>();
  transcript_ += in.get_raw(kNonceBytes);
  const auto mac = in.get_raw(kMacBytes);
  if (!in.done()) return handshake_error("malformed CHALLENGE");
  if (!macs_equal(mac, mac_view(secret_.mac("acceptor" + transcript_)))) {
    return auth_error("the other side does not hold this job's secret");
  }
  peer_ = self_;
  std::swap(peer_.from_rank, peer_.to_rank);
  Writer out;
  out.put(static_cast<std::uint8_t>(Type::proof));
  out.put_raw(mac_view(secret_.mac("connector" + transcript_)));
  output_ += framed<std::uint16_t>(out);
  state_ = State::await_welcome;
  return {};
}

Result<void> Handshake::on_proof(std::string_view message) {
  Reader in(message);
  in.get<std::uint8_t>();
  const auto mac = in.get_raw(kMacBytes);
  if (!in.done()) return handshake_error("malformed PROOF");
  if (!macs_equal(mac, mac_view(secret_.mac("connector" + transcript_)))) {
    return refuse(peer_.who + " does not hold this job's secret");
  }
  Writer out;
  out.put(static_cast<std::uint8_t>(Type::welcome));
  output_ += framed<std::uint16_t>(out);
  state_ = State::done;
  return {};
}

Error Handshake::refuse(const std::string& why) {
  output_ += refusal(why);
  return auth_error(why);
}

std::string refusal(std::string_view why) {
  Writer out;
  out.put(static_cast<std::uint8_t>(Type::refuse));
  out.put_string(why.substr(0, kMaxMessage - 16));
  return framed<std::uint16_t>(out);
}

}  // namespace dlaunch
