// HostClock: where the monotonic clock of another host stands beside ours, from pings over the
// connection to it. That host says how long ago, by its own clock, it opened the connection: its
// origin; what crosses the wire are durations since then, never points in time. A round trip of r
// tells the origin to within r / 2, wherever the way there and the way back differ; of all pings
// the best counts, each a little worse with every second since, for clocks drift apart. Pure.
#pragma once

#include <optional>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

class HostClock {
 public:
  // opened: when the connection was there, which stands in until the first ping is back.
  explicit HostClock(TimePoint opened) : opened_(opened) {}

  // A ping sent and back at these times of ours; since: what it brought, since the origin.
  void add(TimePoint sent, TimePoint back, Duration since);

  // Of the other host, by our clock.
  TimePoint origin(TimePoint now) const;
  // By how much origin() may be wrong; nullopt: no ping has come back yet.
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
