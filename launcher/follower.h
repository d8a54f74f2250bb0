// Follower: the agent of a host whose job is led from another one. Starts and stops workers as the
// leader says and tells it how they end. Where the job has begun it tests its host before it joins.
//
// A leader that keeps a journal names the run in its welcome. When it is lost the workers stay, and
// go on as far as they can, and the next leader, or the same one started again, is told of them,
// for as long as --join-timeout; then they are killed. It may refuse them; then they are killed,
// too. Where the leader is elected every agent is a follower, with a candidate beside it that says
// who leads, and may itself be the leader.
//
// Without a journal they are killed at once: they would only wait. Then the follower asks to join
// again, as a fresh host, for --join-timeout, or for 10 s where nobody listens there any more and
// nobody starts it again.
#pragma once

#include <map>
#include <optional>

#include "launcher/agent_base.h"
#include "launcher/candidate.h"
#include "launcher/care/health_check.h"
#include "launcher/control/signpost.h"
#include "launcher/hosts/leader_link.h"
#include "launcher/hosts/node_message.h"
#include "launcher/process/port_reservation.h"

namespace dlaunch {

class Follower final : private AgentBase {
 public:
  Follower(const Plan& plan, const JobDir& job_dir, UniqueFd signals,
           const OriginalSignals& original);
  // Where the leader is elected; before run().
  void set_candidate(CandidateProcess process) { elected_by_ = std::move(process); }
  int run();

 private:
  void on_signal(int signal) override;
  void on_timer() override;
  void on_idle() override;

  // The end of what started us is ours, too.
  void watch_lifeline();
  void watch_candidate();
  void follow(const Leader& leader);
  void nobody_leads(const std::string& why, bool never);
  void candidate_ended();
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
  void show_the_way(const std::string& leader);
  void finished(const NodeFinish& finish);
  void test();
  void tested(const std::string& why);
  void node_says(const NodeMessage& message);
  void note(const NodeMessage& message);
  void send(const NodeMessage& message);
  // Now, or to the next leader.
  void report(const NodeMessage& message);
  // The job's, past its leader.
  bool goes_on() const { return !run_.empty(); }
  bool any_runs() const { return node_ && !node_->processes().running_slots().empty(); }

  std::optional<CandidateProcess> elected_by_;
  std::optional<CandidateLink> candidate_;
  std::unique_ptr<Signpost> signpost_;
  std::optional<HealthCheck> health_check_;
  std::string unhealthy_;          // as we have told
  bool leads_ = false;             // our candidate
  std::optional<int> leave_with_;  // once our candidate has ended the job
  bool parted_ = false;
  asio::posix::stream_descriptor lifeline_;
  std::optional<LeaderLink> link_;
  std::string maybe_here_;  // a note on the elected leader's address
  std::unique_ptr<Node> node_;
  int number_ = -1;                  // as node of the job
  std::string run_;                  // that job; "": it ends with its leader
  std::map<Slot, NodeFound> found_;  // what the leader is to know of each process
  std::vector<NodeMessage> unsent_;  // what happened while nobody led
  bool clearing_ = false;            // all workers are to end before we join
  bool open_ = false;                // the connection
  bool joined_ = false;              // and the leader has us
  int stop_signal_ = 0;              // the user's
  TimePoint stopped_at_{};           // when it came
  TimePoint give_up_at_, refused_until_;
  TimePoint tell_at_;  // whom we wait for, and why, unless that was told_
  std::string told_;
};

}  // namespace dlaunch
