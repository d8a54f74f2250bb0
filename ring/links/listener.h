// Listener: a rank's two listening sockets during bootstrap, AF_UNIX and TCP, and the acceptance of
// its peers' connections through the handshake. Many strangers may knock at once: see
// rendezvous/crowd.h.
#pragma once

#include <functional>
#include <string>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/secret.h"
#include "base/unique_fd.h"
#include "rendezvous/handshake.h"

namespace dlaunch {

class Listener {
 public:
  // `address` is the numeric local address for TCP; with_unix false: TCP only. The first free one
  // of `ports` is taken.
  static Result<Listener> open(const std::string& address, bool with_unix, PortRange ports = {});

  const std::string& unix_name() const { return unix_name_; }  // "" without
  const Endpoint& tcp_endpoint() const { return tcp_endpoint_; }

  // A proven connection. Returns true once no more are expected.
  using Take = std::function<bool(UniqueFd fd, const HandshakeIdentity& peer, bool is_unix)>;
  // Accepts until `take` says so, stop() was called (Errc::aborted) or the deadline has passed
  // (Errc::timeout). `expected` is what a connector must match; its purpose may be any of
  // kRingPurposes whatever `expected` says.
  Result<void> accept_until(const Secret& secret, const HandshakeIdentity& expected,
                            const Take& take, TimePoint deadline);
  void stop() const;  // from another thread

 private:
  UniqueFd unix_;
  UniqueFd tcp_;
  UniqueFd stop_;
  std::string unix_name_;
  Endpoint tcp_endpoint_;
};

// A connected socket, or what the system said. The name is an abstract AF_UNIX one.
Result<UniqueFd> connect_unix(const std::string& name);
Result<UniqueFd> connect_tcp(const Endpoint& endpoint, TimePoint deadline);

// The numeric local address from which the kernel would reach `host`; "" if it has no route.
std::string local_address_towards(const std::string& host);

}  // namespace dlaunch
