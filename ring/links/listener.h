// Listener: listening sockets of a rank, and how others connect to them.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "ring/links/contact.h"

namespace dlaunch {

class Listener {
 public:
  // `address` is the numeric local address for TCP; with_unix false: TCP only. Takes the first free
  // port of `ports`. The sockets are non-blocking.
  static Result<Listener> open(const std::string& address, bool with_unix, PortRange ports = {});
  // AF_UNIX only.
  static Result<Listener> open_unix();

  const std::string& unix_name() const { return unix_name_; }  // "" without
  const Endpoint& tcp_endpoint() const { return tcp_endpoint_; }
  const UniqueFd& unix_socket() const { return unix_; }
  const UniqueFd& tcp_socket() const { return tcp_; }
  UniqueFd take_unix() { return std::move(unix_); }
  void close();

 private:
  Result<void> add_unix();

  UniqueFd unix_;
  UniqueFd tcp_;
  std::string unix_name_;
  Endpoint tcp_endpoint_;
};

// The abstract AF_UNIX name of a listener with this random part, of kListenerHex characters.
std::string listener_name(std::string_view hex);

// A connected socket, or the system's error. The name is an abstract AF_UNIX one.
// flags: of socket(2).
Result<UniqueFd> connect_unix(const std::string& name, int flags = 0);
Result<UniqueFd> connect_tcp(const Endpoint& endpoint, TimePoint deadline);
// A non-blocking TCP socket that connects meanwhile; end_of_connect() says how that ended, once the
// socket is writable.
Result<UniqueFd> begin_to_connect_tcp(const Endpoint& endpoint);
Result<void> end_of_connect(int fd, const Endpoint& endpoint);

// The peer of a connection has closed it, or it is broken, and holds no more bytes.
bool has_hung_up(const UniqueFd& socket);

// The numeric local address of the kernel's route to `host`; "" if there is no route.
std::string local_address_towards(const std::string& host);

}  // namespace dlaunch
