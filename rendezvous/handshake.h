// Mutual proof that both ends of a fresh connection hold the job's secret and mean the same job and
// round. Pure: bytes in, bytes out; used by the store's and the ring's connections alike.
//
//   connector -> acceptor  HELLO      magic, version, purpose, job, round, from, to, nonce_c
//   acceptor  -> connector CHALLENGE  nonce_a, HMAC(secret, "acceptor"  | hello | nonce_a)
//                       or REFUSE     a text that names what differs ("this is job a, you are of
//                       b")
//   connector -> acceptor  PROOF      HMAC(secret, "connector" | hello | nonce_a)
//   acceptor  -> connector WELCOME  or REFUSE
//
// Each message is a u16 length (at most 1024) and that many bytes. A garbage first message fails
// before anything is allocated for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/secret.h"

namespace dlaunch {

// What a connection is for. An acceptor of a ring takes all that are a ring's, one of the store
// those of the store and of nodes (launcher/hosts/node_message.h); peer() tells which one came.
enum class Purpose : std::uint8_t {
  store = 1,
  ring_link = 2,
  ring_data = 3,
  ring_messages = 4,
  node = 5,
  ring_more_data = 6
};

struct HandshakeIdentity {
  Purpose purpose = Purpose::store;
  std::string job_id;
  std::uint64_t round = 0;      // 0 where rounds do not matter (the store)
  std::int32_t from_rank = -1;  // the connector's rank; -1 unknown
  std::int32_t to_rank = -1;    // whom the connector means to reach; -1 whoever answers
  std::string who;              // for messages only: "rank 3 (pid 4711)"
};

// One end of the exchange. Feed it what was read; send what it gives; until done() or an error.
class Handshake {
 public:
  // The connecting end; bytes for the first message are in take_output() at once.
  static Handshake connector(const Secret& secret, HandshakeIdentity self, std::string nonce);
  // The accepting end. expected.from_rank == -1 accepts any connector rank; peer() tells which.
  static Handshake acceptor(const Secret& secret, HandshakeIdentity expected, std::string nonce);

  // Consumes bytes from the front of `input` as far as needed, never more than the handshake's own.
  Result<std::size_t> feed(std::string_view input);
  // How many more bytes it can take before it has to act: read no more than this from a socket
  // whose later bytes are not the handshake's. 0 once it is over.
  std::size_t wanted() const;
  std::string take_output();
  bool done() const { return state_ == State::done; }
  // The identity the peer proved; valid once done().
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
  HandshakeIdentity peer_;
  std::string nonce_;
  std::string transcript_;
  std::string partial_;  // an incomplete message
  std::string output_;
  State state_;
};

// A REFUSE, for whoever turns a peer away before there is a handshake.
std::string refusal(std::string_view why);

inline constexpr std::size_t kNonceBytes = 16;
inline constexpr Duration kHandshakeTimeout = std::chrono::seconds(2);

// Runs one end over a connected stream socket (blocking or not), for code that has no loop.
Result<HandshakeIdentity> handshake_connect(int fd, const Secret& secret, HandshakeIdentity self,
                                            TimePoint deadline);
Result<HandshakeIdentity> handshake_accept(int fd, const Secret& secret, HandshakeIdentity expected,
                                           TimePoint deadline);

}  // namespace dlaunch
