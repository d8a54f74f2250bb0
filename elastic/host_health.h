// HostHealth decides about a host that comes into a job that has begun, late or after a loss. It
// must test itself before it gets workers, because a sick host costs all others a round each time.
// A host that fails the test is left out for as long as one that failed otherwise
// (HostStarts::pause_after), and then tested again. Failures count by host name, so restarting its
// dlaunch does not help. Pure: events in, actions out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

class HostHealth {
 public:
  using Link = std::uint64_t;  // its connection; a number that is never reused

  // -- Events
  struct Comes {
    Link link;
    std::string host;
  };
  struct Tested {
    Link link;
    std::string why;  // it cannot have workers; "": it can
  };
  struct Gone {  // says nothing about its health: cables are cut, people press ^C
    Link link;
  };
  struct Clock {};
  using Event = std::variant<Comes, Tested, Gone, Clock>;

  // -- Actions
  struct Test {
    Link link;
  };
  struct Admit {
    Link link;
  };
  struct Tell {  // once for the same host and line
    std::string line;
  };
  using Action = std::variant<Test, Admit, Tell>;

  explicit HostHealth(std::uint64_t seed) : random_(seed) {}

  std::vector<Action> step(TimePoint now, const Event& event);
  std::optional<TimePoint> deadline() const;
  // The state of the hosts left out: "host3: not healthy, tested again in 8 s: …"
  std::vector<std::string> words(TimePoint now) const;

 private:
  struct Guest {
    std::string host;
    bool tests = false;  // right now
  };
  struct Failure {  // of a host, the last one
    int in_a_row = 0;
    TimePoint next{};  // test
    std::string why;
  };

  void on(const Comes& comes);
  void on(const Tested& tested);
  void on(const Gone& gone);
  void on(const Clock&) {}
  void test_due();
  TimePoint due(const Guest& guest) const;

  TimePoint now_{};
  std::mt19937_64 random_;
  std::map<Link, Guest> guests_;
  std::map<std::string, Failure> failures_;  // by host; erased once it is healthy
  std::vector<Action> actions_;
};

}  // namespace dlaunch
