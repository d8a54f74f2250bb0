// HostStarts decides when to start which host of a job, if one dlaunch starts it on all hosts. It
// limits the number of simultaneous logins. It starts a lost or silent host again, after a pause,
// and leaves a host that fails again and again alone for a while. With a changing list it also
// decides which new host takes which place, and which host must leave. Pure: events in, actions
// out.
//
// It tries an unreachable host again after 1, 2, 4 … 60 s. A host has failed if it was reached and
// then failed, or was lost within 10 minutes; after the third failure in a row it is left alone for
// 10, 20, 40 s … 1 h. Each pause is a quarter more or less, so that hosts do not come all at once.
//
// Starts form a tree where that pays: a started host logs in to further hosts (Config::tree). This
// process logs in first, to `at_once` hosts, so a job with fewer hosts has no tree. A host gets no
// more than a fair share of those that wait, so that all started hosts log in side by side. If a
// host cannot log in to another, or does not do it in time, or is lost meanwhile, this process does
// it itself. Simulated (host_starts_test.cc) with logins of 0.25 s at the median and 1 s for the
// slowest hundredth, including 0.08 s of work for the ssh of the host that logs in; seconds until
// all hosts have answered:
//
//   hosts   flat, 2 cores   tree, 2 cores   flat, 16 cores   tree, 16 cores
//      32             2.6             2.6              1.7              1.7
//     256            10.7             2.6              2.9              1.7
//   1,000            40.6             2.6             10.1              1.8
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
  enum class Tree {
    off,      // this process logs in to all
    attempt,  // started hosts log in, until one of them fails; before one of them has succeeded,
              // this process logs in to as many hosts as it would do alone, and the others
              // together attempt eight logins at most
    on        // started hosts log in, except those that have failed
  };
  struct Config {
    int at_once = 32;        // logins under way from one host
    bool again = false;      // start a failed host again
    std::uint64_t seed = 0;  // of the pauses
    Tree tree = Tree::off;
  };
  // By number of the node.
  struct Host {
    std::string name;   // "": the place is vacant
    int slots = 1;      // the job's workers there
    bool here = false;  // this host, which starts the others
  };

  // -- Events
  struct Start {};
  struct Ready {  // its dlaunch has answered
    int node;
  };
  struct Failed {  // instead of Ready
    int node;
    bool reached = false;  // the login succeeded
    std::string why;
  };
  // The started host can be ordered to log in to others, or no longer.
  struct Linked {
    int node;
    bool here;
  };
  // The host that should log in there did not: this process must. why "": it was not asked.
  struct Refused {
    int node;
    std::string why;
  };
  struct Ended {  // after Ready: its connection ended
    int node;
    std::string why;
  };
  struct Listed {
    std::string name;
    int slots = 1;
  };
  struct List {  // the hosts in the list now
    std::vector<Listed> hosts;
  };
  // The user wants it to leave, and to stay away until Undrain.
  struct Drain {
    int node;
  };
  struct Undrain {
    int node;
    bool runs = false;  // its dlaunch was not yet asked to end
  };
  struct Clock {};
  using Event =
      std::variant<Start, Ready, Failed, Linked, Refused, Ended, List, Drain, Undrain, Clock>;

  // -- Actions
  static constexpr int kSelf = -1;
  struct LogIn {
    int node;
    std::string name;
    int by = kSelf;  // the node that logs in; kSelf: this process
  };
  struct TakeBack {  // forget the login by another host
    int node;
  };
  struct Leave {  // end it when its workers have ended
    int node;
  };
  struct Tell {
    std::string line;
  };
  using Action = std::variant<LogIn, TakeBack, Leave, Tell>;

  HostStarts(const Config& config, std::vector<Host> hosts);

  std::vector<Action> step(TimePoint now, const Event& event);
  std::optional<TimePoint> deadline() const;

  // How long a host with so many failures in a row is left out; without the jitter.
  static Duration pause_after(int failures);

  // Every host has answered or failed once, or there is none to start.
  bool all_answered() const;
  // The state of the host there, in words; "": normal.
  std::string words(TimePoint now, int node) const;
  const std::string& name(int node) const { return at(node).host.name; }
  int size() const { return static_cast<int>(places_.size()); }

 private:
  enum class Life {
    vacant,
    waiting,  // starts at `next`
    starting,
    running,
    leaving,  // still running
    over,     // it stays away
  };
  struct Place {
    Host host;
    Life life = Life::vacant;
    bool answered = false;
    bool drained = false;
    bool comes_back = false;  // after it has left
    TimePoint next{};
    TimePoint since{};     // since when it runs
    int out_of_reach = 0;  // attempts in a row
    int failures = 0;      // in a row
    std::string why;       // why it is absent
    // Of the tree.
    int by = kSelf;          // while it is starting: who logs in
    TimePoint asked{};       // when that host was asked
    bool ours = false;       // only this process logs in there
    bool linked = false;     // it can be asked to log in to others
    bool failed_us = false;  // it could not
  };

  void on(const Start&);
  void on(const Ready& ready);
  void on(const Failed& failed);
  void on(const Linked& linked);
  void on(const Refused& refused);
  void on(const Ended& ended);
  void on(const List& list);
  void on(const Drain& drain);
  void on(const Undrain& undrain);
  void on(const Clock&);
  void leave(Place& place);
  void has_left(Place& place);
  void start_anew(Place& place);
  void start_due();
  void again(Place& place, Duration pause, bool news);
  static bool left_alone(const Place& place);
  void take_in(const Listed& listed);
  void tell(std::string line) { actions_.push_back(Tell{std::move(line)}); }
  // Another host is to log in there.
  static bool waits_for_other(const Place& place) {
    return place.life == Life::starting && place.by != kSelf;
  }
  int logins_by(int node) const;
  Place* longest_waiting(bool ours);
  void log_in(Place& place, int by);
  void take_over(Place& place, const std::string& why);
  void take_back_attempts();
  bool helps(const Place& place) const;
  int fair_share() const;
  Duration patience() const;
  std::optional<int> login_for_any() const;
  int node_of(const Place& place) const { return static_cast<int>(&place - places_.data()); }
  Place& at(int node) { return places_[static_cast<std::size_t>(node)]; }
  const Place& at(int node) const { return places_[static_cast<std::size_t>(node)]; }

  const Config config_;
  Tree tree_;    // attempt may become off
  bool proven_;  // a started host has logged in to another, or need not
  bool told_of_tree_ = false;
  TimePoint first_ready_ = kNever;
  Duration slowest_{};  // login so far
  TimePoint now_{};
  std::mt19937_64 random_;
  std::vector<Place> places_;
  std::vector<std::string> no_room_;  // of the last list; reported once
  std::vector<Action> actions_;
};

}  // namespace dlaunch
