// HostClock: the offset between the monotonic clocks of another host and ours, from pings over the
// connection. That host says how long ago, by its own clock, it opened the connection: its origin.
// Only durations since then cross the wire, never points in time. A round trip of r gives the
// origin to within r / 2, however the two directions differ. The best ping counts. Each gets a
// little worse with every second, because clocks drift apart. Pure.
#pragma once

#include <optional>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

class HostClock {
 public:
  // opened: when the connection was opened, which serves as origin until the first ping is back.
  explicit HostClock(TimePoint opened) : opened_(opened) {}

  // A ping sent and back at these times of ours; since: the time since the origin that it brought.
  void add(TimePoint sent, TimePoint back, Duration since);

  // The other host's origin, by our clock.
  TimePoint origin(TimePoint now) const;
  // The possible error of origin(); nullopt: no ping has come back yet.
  std::optional<Duration> error(TimePoint now) const;

 private:
  struct Ping {
    TimePoint at, origin;
    Duration error{};
  };
  const Ping* best(TimePoint now) const;

  TimePoint opened_;
  std::vector<Ping> pings_;  // the last ones
};

}  // namespace dlaunch
