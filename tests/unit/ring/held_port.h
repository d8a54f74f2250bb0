// A port of this host that a test holds for a store.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include <doctest/doctest.h>

#include "base/unique_fd.h"

namespace dlaunch {

// Held as a launcher holds MASTER_PORT: bound, never listening, so that nobody else gets it.
struct HeldPort {
  UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::string number;

  HeldPort() {
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    number = std::to_string(ntohs(address.sin_port));
  }
};

}  // namespace dlaunch
