// HostStarts decides which host of a job is started when, where one dlaunch starts it on all: at
// most so many logins at once; a host that is lost or does not answer once more, after a pause; one
// that fails again and again is left alone for a while. With a list that changes it also decides
// which new host takes which place, and which host is to leave. Pure: events in, actions out.
//
// A host that cannot be reached is tried again after 1, 2, 4 … 60 s. One that was reached and then
// failed, or was lost within 10 minutes, has failed: after the third time in a row it is left alone
// for 10, 20, 40 s … 1 h. A quarter more or less, so that many do not come at once.
//
// Flat, not a tree in which hosts start others: that asks for hosts that may log in to each other,
// which few sites allow, and pays late. Simulated (host_starts_test.cc) with logins of 0.25 s at
// the median and 1 s for the slowest hundredth, of which 0.08 s are work for the ssh here; seconds
// until all hosts have answered:
//
//   hosts   32 at once, 2 cores   32, 16 cores   128, 16 cores   tree of 32 children, 16 cores
//     100                   4.5            1.7             1.7                             1.9
//   1,000                  40.6           10.1             5.9                             2.0
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

class HostStarts {
 public:
  struct Config {
    int at_once = 32;        // logins under way
    bool again = false;      // whoever fails is started again
    std::uint64_t seed = 0;  // of the pauses
  };
  // By number of the node.
  struct Host {
    std::string name;   // "": nobody has this place yet
    int slots = 1;      // workers that the job has for it
    bool here = false;  // the one that starts the others
  };

  // -- Events
  struct Start {};
  struct Ready {  // it has answered
    int node;
  };
  struct Failed {  // instead
    int node;
    bool reached = false;  // it was logged in to
    std::string why;
  };
  struct Ended {  // after Ready: its connection has
    int node;
    std::string why;
  };
  struct Listed {
    std::string name;
    int slots = 1;
  };
  struct List {  // of the hosts there are now
    std::vector<Listed> hosts;
  };
  // The user wants it to leave, and not to come back before Undrain.
  struct Drain {
    int node;
  };
  struct Undrain {
    int node;
    bool runs = false;  // it was not told to end yet
  };
  struct Clock {};
  using Event = std::variant<Start, Ready, Failed, Ended, List, Drain, Undrain, Clock>;

  // -- Actions
  struct LogIn {
    int node;
    std::string name;
  };
  struct Leave {  // it is to end when its workers have
    int node;
  };
  struct Tell {
    std::string line;
  };
  using Action = std::variant<LogIn, Leave, Tell>;

  HostStarts(const Config& config, std::vector<Host> hosts);

  std::vector<Action> step(TimePoint now, const Event& event);
  std::optional<TimePoint> deadline() const;

  // How long a host is left out that has failed so many times in a row; but for the jitter.
  static Duration pause_after(int failures);

  // Every host has answered or failed once, or there is none to be started.
  bool all_answered() const;
  // How it is with the host there, in words; "": as it should be.
  std::string words(TimePoint now, int node) const;
  const std::string& name(int node) const { return at(node).host.name; }
  int size() const { return static_cast<int>(places_.size()); }

 private:
  enum class Life {
    vacant,
    waiting,  // to be started at `next`
    starting,
    running,
    leaving,  // as running
    over,     // it is not started again
  };
  struct Place {
    Host host;
    Life life = Life::vacant;
    bool answered = false;
    bool drained = false;
    bool comes_back = false;  // once it has left
    TimePoint next{};
    TimePoint since{};     // it runs
    int out_of_reach = 0;  // attempts in a row
    int failures = 0;      // in a row
    std::string why;       // it is not there
  };

  void on(const Start&);
  void on(const Ready& ready);
  void on(const Failed& failed);
  void on(const Ended& ended);
  void on(const List& list);
  void on(const Drain& drain);
  void on(const Undrain& undrain);
  void on(const Clock&) {}
  void has_left(Place& place);
  void start_anew(Place& place);
  void start_due();
  void again(Place& place, Duration pause, bool news);
  static bool left_alone(const Place& place);
  void take_in(const Listed& listed);
  void tell(std::string line) { actions_.push_back(Tell{std::move(line)}); }
  int logins() const;
  Place& at(int node) { return places_[static_cast<std::size_t>(node)]; }
  const Place& at(int node) const { return places_[static_cast<std::size_t>(node)]; }

  const Config config_;
  TimePoint now_{};
  std::mt19937_64 random_;
  std::vector<Place> places_;
  std::vector<std::string> no_room_;  // of the last list; told once
  std::vector<Action> actions_;
};

}  // namespace dlaunch
