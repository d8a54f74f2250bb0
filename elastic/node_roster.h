// NodeRoster assigns hosts to the nodes of a job on several hosts: it waits for the expected hosts,
// numbers them, and recognizes a host that comes back. Pure: events in, actions out.
//
// One of the nodes leads, by default number 0. None of them leads if the leading dlaunch runs on a
// host without workers. A host gets the number it asks for (--node-rank), or the lowest free one,
// in the order of arrival. The job begins once max_nodes hosts are there, or once min_nodes are
// there and no host has come for `settle`. Afterwards a host takes its earlier number, or a free
// one.
//
// Under a new or restarted leader, the roster expects the hosts of a job that had begun, except the
// previous leader's. The job goes on once they are there, or once min_nodes are there and `settle`
// is over.
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
    Link link = kNone;  // kNone: the host is absent
    std::string host;
    int nproc = 0;          // 0: the host was never there
    std::string rack = {};  // elastic/rack_order.h; "": unknown
  };

  // -- Events
  struct Join {
    Link link = kNone;
    std::string host;
    int number = -1;  // -1: any
    int nproc = 1;
    std::string rack = {};
  };
  struct Gone {
    Link link;
  };
  struct Clock {};
  using Event = std::variant<Join, Gone, Clock>;

  // -- Actions
  struct Refuse {  // a host that asks, or one that another dlaunch of its host replaces
    Link link;
    std::string why;
  };
  struct Begin {};  // with nodes() as they are
  struct Lost {     // after Begin
    int node;
  };
  struct Back {  // after Begin: its host is there again, or for the first time
    int node;
  };
  struct GiveUp {
    std::string why;
  };
  using Action = std::variant<Refuse, Begin, Lost, Back, GiveUp>;

  // was: the hosts of a job that had begun, by number; led: the previous leader's node, -1:
  // elsewhere. If the node own_number leads again, its host is there already: it has a link.
  NodeRoster(TimePoint now, const Config& config, std::vector<Node> was, int led,
             int own_number = -1);
  // self: the leading node, whose host is there; own_number -1: no node leads.
  NodeRoster(TimePoint now, const Config& config, Node self, int own_number = 0);

  std::vector<Action> step(TimePoint now, const Event& event);
  std::optional<TimePoint> deadline() const;

  bool begun() const { return begun_; }
  // By number; max_nodes of them.
  const std::vector<Node>& nodes() const { return nodes_; }
  std::optional<int> node_of(Link link) const;
  // -1: no node leads.
  int own_number() const { return own_number_; }
  // The number of hosts that are here.
  int here() const;
  // "2 of 4 hosts are here (a, b)"
  std::string who_is_here() const;

 private:
  void on(const Join& join);
  void on(const Gone& gone);
  void on(const Clock& clock);
  std::optional<int> number_for(const Join& join) const;
  void begin();
  bool all_expected() const;
  // The job needs only the leading host.
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
