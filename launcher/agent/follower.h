// Follower: the agent of a host whose job another dlaunch leads. It connects the leader to this
// host's Node, as NodeSession decides. If the job has begun already, it tests its host before it
// joins. Where leaders are elected, every agent is a follower, with a campaign beside it that says
// who leads and may lead itself.
#pragma once

#include <optional>

#include "launcher/agent/agent_base.h"
#include "launcher/agent/campaign.h"
#include "launcher/agent/login_helper.h"
#include "launcher/lead/control/control_server.h"
#include "launcher/node/node_session.h"
#include "launcher/node/watch/health_check.h"
#include "launcher/wire/leader_link.h"

namespace dlaunch {

class Follower final : private AgentBase {
 public:
  Follower(const Plan& plan, const JobDir& job_dir, UniqueFd signals,
           const OriginalSignals& original);
  // Call it before run(), if the leader is elected.
  void set_campaign(CampaignProcess process) { elected_by_ = std::move(process); }
  int run();

 private:
  void on_signal(int signal) override;
  void on_timer() override;
  void on_idle() override;

  // Exits when our starter closes stdin.
  void watch_lifeline();
  void watch_campaign();
  void follow(const Leader& leader, bool ours);
  void on_frame(std::string_view frame);
  void open_redirect(const std::string& host);
  // Leaves the leader and the loop.
  void part(int exit_code);
  void feed(const NodeSession::Event& event);

  void perform(const NodeSession::Send& send) { this->send(send.what); }
  void perform(const NodeSession::Order& order);
  void perform(const NodeSession::Joined& joined);
  void perform(const NodeSession::Test&);
  void perform(const NodeSession::StopTest&) { health_check_.reset(); }
  void perform(const NodeSession::EndLeftovers&) { node_->end_leftovers(); }
  void perform(const NodeSession::KillWorkers&);
  void perform(const NodeSession::KillDescendants&);
  void perform(const NodeSession::Finished&);
  void perform(const NodeSession::Disconnect&) { link_->stop(); }
  void perform(const NodeSession::Warn& warning);
  void perform(const NodeSession::Fail& failure);
  void perform(const NodeSession::End& end) { part(end.exit_code); }
  void send(const NodeMessage& message) { link_->send(encode(message, link_->origin())); }

  std::optional<CampaignProcess> elected_by_;
  std::optional<CampaignLink> campaign_;
  std::unique_ptr<ControlServer> redirect_;
  std::optional<HealthCheck> health_check_;
  std::optional<NodeSession> session_;
  asio::posix::stream_descriptor lifeline_;
  std::string leader_;  // host:port
  std::optional<LeaderLink> link_;
  std::unique_ptr<Node> node_;
  LoginHelper login_helper_;
  std::optional<TimePoint> parted_at_;
};

}  // namespace dlaunch
