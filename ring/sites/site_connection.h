// SiteConnection: one socket between the endpoints of two sites: it connects or was accepted, both
// ends prove the secret and name site and incarnation, and then frames go both ways. Small messages
// overtake blocks of payloads, which are encoded only when there is room for them. Non-blocking; a
// thin shell for SiteEndpoint's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/secret.h"
#include "base/unique_fd.h"
#include "rendezvous/handshake.h"
#include "rendezvous/tls_tunnel.h"
#include "ring/sites/site_merge.h"

namespace dlaunch {

// What each end says of itself once both have proven the secret.
struct SiteGreeting {
  std::uint64_t incarnation = 0;
  std::uint64_t common = 0;  // a hash of the options and tensors
};

class SiteConnection {
 public:
  // The first frame is the greeting: peer() is known then.
  using OnFrame = std::function<Result<void>(std::string_view frame)>;

  // `fd` connects still, or has been accepted. `claims`: this end's name for the other one, and the
  // site that it means to reach.
  static Result<SiteConnection> connecting(UniqueFd fd, const Secret& secret,
                                           HandshakeIdentity claims, const SiteGreeting& greeting);
  static Result<SiteConnection> accepted(UniqueFd fd, const Secret& secret,
                                         HandshakeIdentity expected, const SiteGreeting& greeting);

  int fd() const { return fd_.get(); }
  short events() const;
  // What poll() found. Errors end the connection.
  Result<void> move(short events, TimePoint now, const OnFrame& on_frame);

  // The other site; nothing before it is proven.
  const std::optional<SiteMember>& peer() const { return peer_; }
  std::uint64_t common() const { return common_; }                              // of its greeting
  std::string who() const { return handshake_ ? handshake_->peer().who : ""; }  // for messages
  void send(const std::string& message);
  // Sends this before what waits, if that can be done at once: the connection ends.
  void say_last(const std::string& message);
  // Tells the other end that this one leaves in good order, if it can be told at once.
  void say_goodbye() { say_last(""); }
  // A long message, made by `make` when its turn comes; "": no longer needed.
  void send_later(std::function<std::string()> make) { later_.push_back(std::move(make)); }
  TimePoint heard() const { return heard_; }  // the last bytes
  // Since the last call.
  std::uint64_t take_sent() { return std::exchange(sent_, 0); }
  std::uint64_t take_received() { return std::exchange(received_, 0); }

 private:
  enum class State { connects, shakes_hands, greets, up };
  SiteConnection(UniqueFd fd, const Secret& secret, const SiteGreeting& greeting)
      : fd_(std::move(fd)), secret_(secret), greeting_(greeting), heard_(steady_now()) {}

  Result<void> secure(TlsChannel::Side side);
  Result<void> begin_handshake();
  Result<void> shake_hands();
  Result<void> read(TimePoint now, const OnFrame& on_frame);
  Result<void> take_frames(const OnFrame& on_frame);
  Result<void> write();
  bool refill();

  UniqueFd fd_;
  Secret secret_;
  SiteGreeting greeting_;
  TimePoint heard_;
  State state_ = State::shakes_hands;
  bool connects_ = false;
  HandshakeIdentity claims_;
  std::optional<Handshake> handshake_;
  std::optional<SiteMember> peer_;
  std::uint64_t common_ = 0;
  std::string in_, out_;
  std::size_t written_ = 0;  // of out_
  std::deque<std::string> soon_;
  std::deque<std::function<std::string()>> later_;
  std::uint64_t sent_ = 0, received_ = 0;
};

}  // namespace dlaunch
