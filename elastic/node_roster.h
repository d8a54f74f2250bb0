// NodeRoster decides which host is which node of a job on several: waits until those that are
// expected have come, numbers them, and knows the host that comes back. Pure: events in, actions
// out.
//
// One of the nodes leads, number 0 where nothing else is said, or none of them does: the leading
// dlaunch runs on a host without workers then. A node's number is the one it asks for
// (--node-rank), or the lowest that is free, in the order of arrival. The job begins once max_nodes
// are there, or min_nodes and nobody has come for `settle`. Afterwards a host takes the number it
// had, or one that nobody has.
//
// Under a new leader, or one that was started again, the hosts of a job that had begun are
// expected, but for the one that led before: it goes on once they are there, or min_nodes and
// `settle` is over.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

class NodeRoster {
 public:
  // A connection; each gets a new number.
  using Link = std::uint64_t;
  static constexpr Link kNone = ~Link{0};

  struct Config {
    int min_nodes = 1, max_nodes = 1;
    Duration join_timeout = std::chrono::seconds(600);
    Duration settle = std::chrono::seconds(3);
  };
  struct Node {
    Link link = kNone;  // kNone: it is not there
    std::string host;
    int nproc = 0;  // 0: it was never there
  };

  // -- Events
  struct Join {
    Link link = kNone;
    std::string host;
    int number = -1;  // -1: any
    int nproc = 1;
  };
  struct Gone {
    Link link;
  };
  struct Clock {};
  using Event = std::variant<Join, Gone, Clock>;

  // -- Actions
  struct Refuse {  // one that asks, or one in whose place another of its host has come
    Link link;
    std::string why;
  };
  struct Begin {};  // with nodes() as they are
  struct Lost {     // after Begin
    int node;
  };
  struct Back {  // after Begin: it is there again, or for the first time
    int node;
  };
  struct GiveUp {
    std::string why;
  };
  using Action = std::variant<Refuse, Begin, Lost, Back, GiveUp>;

  // The hosts of a job that had begun, by number; led: where its leader was, -1: elsewhere. Where
  // the one of own_number leads again, it is there already: it has a link.
  NodeRoster(TimePoint now, const Config& config, std::vector<Node> was, int led,
             int own_number = -1);
  // self: the node that leads, which is there; its number -1: none does.
  NodeRoster(TimePoint now, const Config& config, Node self, int own_number = 0);

  std::vector<Action> step(TimePoint now, const Event& event);
  std::optional<TimePoint> deadline() const;

  bool begun() const { return begun_; }
  // By number; max_nodes of them.
  const std::vector<Node>& nodes() const { return nodes_; }
  std::optional<int> node_of(Link link) const;
  // -1: none of them leads.
  int own_number() const { return own_number_; }
  // "2 of 4 hosts are here (a, b)"
  std::string who_is_here() const;

 private:
  void on(const Join& join);
  void on(const Gone& gone);
  void on(const Clock& clock);
  std::optional<int> number_for(const Join& join) const;
  void begin();
  int here() const;
  bool all_expected() const;
  // Only the one that leads is wanted.
  bool alone() const { return !resumed_ && all_expected(); }

  Config config_;
  int own_number_;
  TimePoint now_;
  TimePoint give_up_at_;
  TimePoint last_came_;
  bool resumed_ = false;
  int led_ = -1;
  bool begun_ = false;
  bool over_ = false;
  std::vector<Node> nodes_;
  std::vector<Action> actions_;
};

}  // namespace dlaunch
