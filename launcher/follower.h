// Follower: the agent of a host whose job is led from another one. Starts and stops workers as the
// leader says and tells it how they end. When the leader is lost, its workers are killed: they are
// fenced, and would only wait; then it asks to join again, as a fresh host, for --join-timeout, or
// for 10 s where nobody listens there any more and nobody starts it again.
#pragma once

#include <map>
#include <optional>

#include "launcher/agent_base.h"
#include "launcher/leader_link.h"
#include "launcher/node_message.h"
#include "launcher/port_reservation.h"

namespace dlaunch {

class Follower final : private AgentBase {
 public:
  Follower(const Plan& plan, const JobDir& job_dir, UniqueFd signals,
           const OriginalSignals& original);
  int run();

 private:
  void on_signal(int signal) override;
  void on_timer() override;
  void on_idle() override;

  // The end of what started us is ours, too.
  void watch_lifeline();
  void on_opened();
  void on_lost(const std::string& why);
  void on_failed(const LeaderLink::Failure& failure);
  void on_frame(std::string_view frame);
  void take(const NodeMessage& message);
  void join();
  void welcomed(const NodeWelcome& welcome);
  void finished(const NodeFinish& finish);
  void tell(const JobCore::Event& event);
  void send(const NodeMessage& message);
  bool any_runs() const { return node_ && !node_->processes().running_slots().empty(); }

  PortReservation master_port_;
  asio::posix::stream_descriptor lifeline_;
  std::optional<LeaderLink> link_;
  std::unique_ptr<Node> node_;
  std::map<Slot, SpawnError> start_errors_;  // told with the SpawnFailed that follows
  int slots_ = 0;
  bool open_ = false;    // the connection
  bool joined_ = false;  // and the leader has us
  int stop_signal_ = 0;  // the user's
  TimePoint give_up_at_, refused_until_;
  TimePoint tell_at_;  // whom we wait for, and why, unless that was told_
  std::string told_;
};

}  // namespace dlaunch
