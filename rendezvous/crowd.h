// Crowd: the strangers in the handshake at one listening socket. Each has kHandshakeTimeout to
// prove itself; at most kMax are let in at a time, and all others wait in the backlog. When it is
// full, whoever has been there longest makes room for the next to come, if it had kPatience: idle
// strangers delay a member by that much for each kMax before it in the backlog. Pure.
#pragma once

#include <cstddef>

#include "base/clock.h"
#include "rendezvous/handshake.h"

namespace dlaunch {

struct Crowd {
  static constexpr std::size_t kMax = 64;
  static constexpr Duration kPatience = std::chrono::milliseconds(200);

  std::size_t size = 0;
  TimePoint oldest{};  // since when the first of them has been there

  // Nobody more may be let in now.
  bool full(TimePoint now) const { return size >= kMax && now < oldest + kPatience; }
  // One was let in beyond the limit: the oldest, which has had its time, is to go.
  bool overfull() const { return size > kMax; }
  // When something is to be done about the oldest.
  TimePoint deadline(TimePoint now) const {
    return size == 0 ? kNever : oldest + (full(now) ? kPatience : kHandshakeTimeout);
  }
};

}  // namespace dlaunch
