// Crowd: the unproven connections in the handshake at one listening socket. Each has
// kHandshakeTimeout to prove itself. At most kMax are in the handshake at a time; the others wait
// in the backlog. When the crowd is full, the next connection displaces the oldest one once that
// has had kPatience: idle strangers delay a member by kPatience for each kMax of them before it in
// the backlog. Pure.
#pragma once

#include <cstddef>

#include "base/clock.h"
#include "rendezvous/handshake.h"

namespace dlaunch {

struct Crowd {
  static constexpr std::size_t kMax = 64;
  static constexpr Duration kPatience = std::chrono::milliseconds(200);

  std::size_t size = 0;
  TimePoint oldest{};  // when the oldest came

  // No connection may be let in now.
  bool full(TimePoint now) const { return size >= kMax && now < oldest + kPatience; }
  // One too many was let in: the oldest has had its time and must go.
  bool overfull() const { return size > kMax; }
  // When the oldest is due.
  TimePoint deadline(TimePoint now) const {
    return size == 0 ? kNever : oldest + (full(now) ? kPatience : kHandshakeTimeout);
  }
};

}  // namespace dlaunch
