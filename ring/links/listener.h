// Listener: a rank's two listening sockets during bootstrap, AF_UNIX and TCP. It accepts its peers'
// connections through the handshake. Many strangers may connect at once: see rendezvous/crowd.h.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/secret.h"
#include "base/unique_fd.h"
#include "rendezvous/handshake.h"
#include "ring/links/contact.h"

namespace dlaunch {

class Listener {
 public:
  // `address` is the numeric local address for TCP; with_unix false: TCP only. Takes the first free
  // port of `ports`.
  static Result<Listener> open(const std::string& address, bool with_unix, PortRange ports = {});

  const std::string& unix_name() const { return unix_name_; }  // "" without
  const Endpoint& tcp_endpoint() const { return tcp_endpoint_; }

  // A proven connection. Returns true once no more are expected.
  using Take = std::function<bool(UniqueFd fd, const HandshakeIdentity& peer, bool is_unix)>;
  // Accepts until `take` returns true, stop() was called (Errc::aborted) or the deadline has passed
  // (Errc::timeout). A connector must match `expected`, except that its purpose may be any of a
  // ring.
  Result<void> accept_until(const Secret& secret, const HandshakeIdentity& expected,
                            const Take& take, TimePoint deadline);
  void stop() const;   // from another thread
  void renew() const;  // accept_until() may be called again after stop()
  // The AF_UNIX socket, which stays open. Do not call accept_until() afterwards.
  UniqueFd take_unix() { return std::move(unix_); }

 private:
  UniqueFd unix_;
  UniqueFd tcp_;
  UniqueFd stop_;
  std::string unix_name_;
  Endpoint tcp_endpoint_;
};

// The abstract AF_UNIX name of a listener with this random part, of kListenerHex characters.
std::string listener_name(std::string_view hex);

// A connected socket, or the system's error. The name is an abstract AF_UNIX one.
// flags: of socket(2).
Result<UniqueFd> connect_unix(const std::string& name, int flags = 0);
Result<UniqueFd> connect_tcp(const Endpoint& endpoint, TimePoint deadline);

// The numeric local address of the kernel's route to `host`; "" if there is no route.
std::string local_address_towards(const std::string& host);

}  // namespace dlaunch
