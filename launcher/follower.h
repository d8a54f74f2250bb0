// Follower: the agent of a host whose job another dlaunch leads. It connects the leader to this
// host's Node. If the job has begun already, it tests its host before it joins.
//
// A leader that keeps a journal names the run in its welcome. When such a leader is lost, the
// workers stay and continue as far as they can. For --join-timeout the follower offers them to the
// next leader, or to the same one after a restart. It kills them if that time passes or the leader
// refuses them. Where leaders are elected, every agent is a follower, with a campaign beside it
// that says who leads and may lead itself.
//
// Without a journal the follower kills the workers at once, because they could only wait. It then
// asks to join as a fresh host: for --join-timeout, or for 10 s if nothing listens at the leader's
// address and nothing restarts the leader.
#pragma once

#include <map>
#include <optional>

#include "elastic/leader_search.h"
#include "launcher/agent_base.h"
#include "launcher/campaign.h"
#include "launcher/control/redirect.h"
#include "launcher/hosts/leader_link.h"
#include "launcher/hosts/node_message.h"
#include "launcher/monitor/health_check.h"
#include "launcher/process/port_reservation.h"

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
  void follow(const Leader& leader);
  void nobody_leads(const std::string& why, bool never);
  void campaign_ended();
  // Leaves the leader and the loop.
  void part(int exit_code);
  void on_opened();
  void on_lost(const std::string& why);
  void on_failed(const LeaderLink::Failure& failure);
  void on_frame(std::string_view frame);
  void take(const NodeMessage& message);
  void join();
  void clear();
  NodeFound& found(Slot slot);
  void welcomed(const NodeWelcome& welcome);
  void open_redirect(const std::string& leader);
  void finished(const NodeFinish& finish);
  void test();
  void tested(const std::string& why);
  void node_says(const NodeMessage& message);
  void note(const NodeMessage& message);
  void send(const NodeMessage& message);
  // Sends it now, or later to the next leader.
  void report(const NodeMessage& message);
  // The job survives the loss of its leader.
  bool goes_on() const { return !run_.empty(); }
  bool any_runs() const { return node_ && !node_->processes().running_slots().empty(); }

  std::optional<CampaignProcess> elected_by_;
  std::optional<CampaignLink> campaign_;
  std::unique_ptr<Redirect> redirect_;
  std::optional<HealthCheck> health_check_;
  std::string unhealthy_;          // as reported to the leader
  bool leads_ = false;             // our campaign leads
  std::optional<int> leave_with_;  // set once our campaign has ended the job
  bool parted_ = false;
  asio::posix::stream_descriptor lifeline_;
  std::optional<LeaderLink> link_;
  std::string maybe_here_;  // a note on the elected leader's address
  std::unique_ptr<Node> node_;
  int number_ = -1;                  // our node number in the job
  std::string run_;                  // the job's run; "": the job ends with its leader
  std::map<Slot, NodeFound> found_;  // the state of each process, for the leader
  std::vector<NodeMessage> unsent_;  // messages from the time without a leader
  bool clearing_ = false;            // all workers must end before we join
  bool open_ = false;                // we are connected
  bool joined_ = false;              // the leader has accepted us
  int stop_signal_ = 0;              // the user's
  TimePoint stopped_at_{};           // when it came
  LeaderSearch search_;
};

}  // namespace dlaunch
