// Reserves MASTER_PORT: a socket that is bound to the port and never listens. No other program gets
// the port, neither from the kernel nor by a plain bind, but a worker that listens with
// SO_REUSEADDR, as PyTorch's store does, gets it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

struct PortReservation {
  UniqueFd socket;
  UniqueFd name;  // keeps other dlaunch jobs off the port
  std::uint16_t port = 0;
};

// port 0: a free one. The reservation is on every address; `address` is for the error's text.
Result<PortReservation> reserve_port(const std::string& address, std::uint16_t port);

}  // namespace dlaunch
