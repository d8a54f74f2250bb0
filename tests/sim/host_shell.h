// HostShell replaces launcher/agent/follower.cc and launcher/node/node.cc: it connects a host's
// NodeSession and NodeDriver, with simulated effects. Slots are the host's own, as in messages; the
// world has the job's.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launcher/node/node_driver.h"
#include "launcher/node/node_session.h"
#include "tests/sim/outside.h"

namespace dlaunch::sim {

class HostShell final : private NodeDriver::Effects {
 public:
  struct End {
    bool well = false;
    int blames = -1;  // the rank whose loss was the reason, as in DLAUNCH's error file; -1: none
  };
  struct Setting {
    int number = 0;           // of the node
    std::vector<Slot> slots;  // of the job, by slot of the node
    Duration grace{}, join_timeout{};
  };
  using Send = std::function<void(const NodeMessage&)>;
  // last_worker: the newest process, in the whole job. send: to the leader, if there is a
  // connection.
  HostShell(const Setting& setting, int& last_worker, Pump& pump, Outside& outside, Send send);

  void feed(const NodeSession::Event& event);
  void on_ready(int worker, int left, std::uint64_t version);
  void on_ended(Slot slot, End end);
  void on_never_ran(Slot slot);
  void on_clock() { driver_.on_clock(); }
  std::optional<TimePoint> deadline() const { return driver_.deadline(); }

  // The unreaped worker in the slot; 0: none.
  int worker_in(Slot slot) const;
  bool gave_up() const { return gave_up_; }

 private:
  struct Place {
    int worker = 0;
    int rank = -1;
    bool running = false;
    TimePoint started{};
  };

  // -- NodeDriver::Effects
  TimePoint now() override { return outside_.clock(); }
  SpawnError spawn(Slot slot, int rank, int round) override;
  void perform(const AgentCore::SendSignal& send) override;
  void say(const NodeMessage& message) override { feed(NodeSession::Says{message}); }
  void looks_on(const AgentCore::Action& action) override;

  void perform(const NodeSession::Send& send) { send_(send.what); }
  void perform(const NodeSession::Order& order);
  void perform(const NodeSession::Test&) { feed(NodeSession::Tested{""}); }
  void perform(const NodeSession::KillWorkers&);
  void perform(const NodeSession::End&);
  void perform(const auto&) {}  // has no effect on workers
  void on(const NodeStart& start);
  void on(const NodeStop& stop) { driver_.stop(stop.slots, stop.signal); }
  void on(const NodeHandOn& pass) { driver_.hand_on(pass.signal); }
  void on(const NodeFence& fence);
  void on(const NodeAnnounce& announce);
  void on(const auto&) {}

  // The job's number for a slot of this host.
  Slot job_slot(Slot slot) const { return setting_.slots[static_cast<std::size_t>(slot)]; }

  const Setting setting_;
  int& last_worker_;
  Pump& pump_;
  Outside& outside_;
  const Send send_;
  NodeSession session_;
  NodeDriver driver_;
  std::map<Slot, Place> places_;
  bool gave_up_ = false;
};

}  // namespace dlaunch::sim
