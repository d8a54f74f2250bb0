// Mutual proof that both ends of a fresh connection hold the job's secret and mean the same job and
// round. Pure: bytes in, bytes out. The store's and the ring's connections both use it.
//
//   connector -> acceptor  HELLO      magic, purpose, more, job, round, from, to, nonce_c
//   acceptor  -> connector CHALLENGE  nonce_a, HMAC(secret, "acceptor"  | hello | nonce_a)
//                       or REFUSE     a text that names what differs ("this is job a, you are of
//                       b")
//   connector -> acceptor  PROOF      HMAC(secret, "connector" | hello | nonce_a)
//   acceptor  -> connector WELCOME  or REFUSE
//
// Each message is a u16 length (at most 1024) and that many bytes. A garbage first message fails
// before it causes any allocation.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/secret.h"

namespace dlaunch {

// The purpose of a connection. A ring's acceptor accepts all ring purposes; the store's acceptor
// accepts those of the store, of nodes (launcher/wire/node_message.h) and of their output
// (launcher/wire/output_link.h). peer() has the actual one.
enum class Purpose : std::uint8_t {
  store = 1,
  ring_link = 2,
  ring_data = 3,
  ring_messages = 4,
  node = 5,
  ring_more_data = 6,
  output = 7,
  ring_want_data = 8,  // asks the acceptor to connect back for data or messages, and ends
  ring_want_messages = 9,
  site = 10  // between the endpoints of two sites
};

struct HandshakeIdentity {
  Purpose purpose = Purpose::store;
  std::string job_id;
  std::uint64_t round = 0;      // 0 if rounds do not matter (the store)
  std::int32_t from_rank = -1;  // the connector's rank; -1 unknown
  std::int32_t to_rank = -1;    // the rank that the connector means to reach; -1: any
  std::string who;              // for messages only: "rank 3 (pid 4711)"
  std::uint8_t more = 0;        // connections that belong to this one and were made before it
};

// One end of the exchange. Feed it what was read and send its output until done() or an error.
class Handshake {
 public:
  // The connecting end; take_output() has the bytes of the first message at once.
  static Handshake connector(const Secret& secret, HandshakeIdentity self, std::string nonce);
  // The accepting end. expected.from_rank == -1 accepts any connector rank; peer() has the actual
  // one.
  static Handshake acceptor(const Secret& secret, HandshakeIdentity expected, std::string nonce);
  // The same for an end that several communicators share: `expect` says what the connector's claim
  // has to match; nullopt: there is nothing here for it yet, or any longer, and it gets no answer.
  // Runs once, before any proof.
  using Expect = std::function<std::optional<HandshakeIdentity>(const HandshakeIdentity& claimed)>;
  static Handshake acceptor(const Secret& secret, Expect expect, std::string nonce);

  // Consumes bytes from the front of `input` as far as needed, never beyond the handshake's own.
  Result<std::size_t> feed(std::string_view input);
  // The number of bytes that it can take before it has to act: read no more than this from a
  // socket, because later bytes are not the handshake's. 0 after the end.
  std::size_t wanted() const;
  std::string take_output();
  bool done() const { return state_ == State::done; }
  // The identity that the peer proved; valid once done().
  const HandshakeIdentity& peer() const { return peer_; }

 private:
  enum class State { await_hello, await_challenge, await_proof, await_welcome, done, failed };
  Handshake(const Secret& secret, HandshakeIdentity self, std::string nonce, State state);

  Result<void> on_message(std::string_view message);
  Result<void> on_hello(std::string_view message);
  Result<void> on_challenge(std::string_view message);
  Result<void> on_proof(std::string_view message);
  Error refuse(const std::string& why);

  Secret secret_;
  HandshakeIdentity self_;
  Expect expect_;  // null: self_ is known from the start
  HandshakeIdentity peer_;
  std::string nonce_;
  std::string transcript_;
  std::string partial_;  // an incomplete message
  std::string output_;
  State state_;
};

// A REFUSE, for an acceptor that turns a peer away before there is a handshake.
std::string refusal(std::string_view why);

inline constexpr std::size_t kNonceBytes = 16;
inline constexpr Duration kHandshakeTimeout = std::chrono::seconds(2);

// Runs one end over a connected stream socket (blocking or not), for code without a loop.
Result<HandshakeIdentity> handshake_connect(int fd, const Secret& secret, HandshakeIdentity self,
                                            TimePoint deadline);
Result<HandshakeIdentity> handshake_accept(int fd, const Secret& secret, HandshakeIdentity expected,
                                           TimePoint deadline);

}  // namespace dlaunch
