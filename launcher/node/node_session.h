// NodeSession: a node's side of its membership in a job that a leader leads. It joins, passes
// messages between the leader and this host's Node, and decides what happens to the workers when
// the leader is lost. Pure: events in, actions out.
//
// A leader that keeps a journal names the run in its welcome. When such a leader is lost, the
// workers stay and continue as far as they can. For --join-timeout the session offers them to the
// next leader, or to the same one after a restart. It kills them if that time passes or the leader
// refuses them. A leader may be lost before it has written the run down: a host without orders of
// that run joins the next leader as a fresh host.
//
// Without a journal the session kills the workers at once, because they could only wait. It then
// asks to join as a fresh host: for --join-timeout, or for 10 s if nothing listens at the leader's
// address and nothing restarts the leader.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "elastic/leader_search.h"
#include "launcher/wire/node_message.h"

namespace dlaunch {

class NodeSession {
 public:
  struct Config {
    NodeJoin join;  // what this host says of itself; the session adds its address, run and workers
    LeaderSearch::Config search;
    std::string endpoint;            // the leader's, as the user gave it
    std::string key_file;            // the default secret, which all hosts must share; "": another
    bool leader_informs = false;     // the user gets the job's end from the leader's terminal
    bool started_by_leader = false;  // and problems of this host, too
    bool steps_get_signals = false;  // Slurm gives signals to the workers itself
  };

  // -- Events
  struct Follows {  // a connection to this leader begins, in place of any earlier one
    std::string leader;
    bool ours = false;  // this host's own campaign leads
    std::string note;   // on the leader's address, for the user
  };
  struct Opened {
    std::string local_address;
  };
  struct Lost {
    std::string why;
  };
  struct Heard {  // from the leader
    NodeMessage what;
  };
  struct Says {  // this host's Node
    NodeMessage what;
  };
  struct Tested {
    std::string why;  // why this host cannot have workers; "": it can
  };
  struct WantsInput {
    bool wants;
  };
  struct Signal {  // of the user
    int number;
  };
  struct TimedOut {};  // the job's --timeout passed
  struct StarterGone {};
  struct CampaignGone {};
  // LeaderSearch::Failure: an attempt to reach the leader failed.
  using Event = std::variant<Follows, Opened, Lost, LeaderSearch::Failure, Heard, Says, Tested,
                             WantsInput, Signal, TimedOut, StarterGone, CampaignGone>;

  // -- Actions, to be performed in order
  struct Send {  // to the leader
    NodeMessage what;
  };
  struct Order {  // to this host's Node
    NodeMessage what;
  };
  struct Joined {  // makes the Node, or has it continue
    NodeWelcome welcome;
    bool new_run = false;  // whose rounds begin with number 1 again
  };
  struct Test {};      // tests this host; Tested says how that went
  struct StopTest {};  // if one is under way
  struct EndLeftovers {};
  struct KillWorkers {};      // the Node kills its workers, and reports their ends
  struct KillDescendants {};  // kills all processes below this one, before it ends
  struct Finished {};         // the job is over: the Node stops
  struct Disconnect {};       // the campaign of this host still has to end
  struct Warn {
    std::string what;
  };
  struct Fail {
    std::string what;
  };
  struct End {
    int exit_code;
  };
  using Action = std::variant<Send, Order, Joined, Test, StopTest, EndLeftovers, KillWorkers,
                              KillDescendants, Finished, Disconnect, Warn, Fail, End>;

  NodeSession(TimePoint now, const Config& config);

  std::vector<Action> step(TimePoint now, const Event& event);
  bool joined() const { return joined_; }
  // The job is over for this host, or its leader said so.
  bool over() const { return ended_ || leave_with_; }

 private:
  void on(const Follows& event);
  void on(const Opened& event);
  void on(const Lost& event) { lost(event.why); }
  void on(const LeaderSearch::Failure& failure);
  void on(const Heard& event);
  void on(const Says& event);
  void on(const Tested& event);
  void on(const WantsInput& event);
  void on(const Signal& event);
  void on(const TimedOut& event);
  void on(const StarterGone& event);
  void on(const CampaignGone& event);

  void lost(const std::string& why);
  void join();
  void clear();
  void welcomed(const NodeWelcome& welcome);
  void finished(const NodeFinish& finish);
  void note(const NodeMessage& message);
  void forget_process(const NodeMessage& message);
  void report(const NodeMessage& message);
  void keep_for_next_leader(const NodeMessage& message);
  void end(int exit_code);
  void act(Action action) { actions_.push_back(std::move(action)); }
  NodeFound& found(Slot slot);
  // The job survives the loss of its leader.
  bool goes_on() const { return !run_.empty(); }

  const Config config_;
  LeaderSearch search_;
  TimePoint now_;
  std::vector<Action> actions_;
  std::string address_;  // by which the leader reaches us
  std::string note_;     // on the elected leader's address
  std::string unhealthy_;
  int number_ = -1;                  // our node number in the job
  std::string run_;                  // the job's run; "": the job ends with its leader
  std::map<Slot, NodeFound> found_;  // the state of each process, for the next leader
  std::set<Slot> processes_;         // that run, or are to start
  std::map<Slot, NodeStuck> stuck_;  // of them: each leader must know it
  int slots_ = 0;                    // of the Node
  std::vector<NodeMessage> unsent_;  // reports from the time without a leader
  std::optional<int> leave_with_;    // set once our campaign has ended the job
  bool leads_ = false;               // our campaign leads
  bool open_ = false;                // we are connected
  bool joined_ = false;              // the leader has accepted us
  bool clearing_ = false;            // all workers must end before we join
  bool testing_ = false;
  bool tested_ = false;    // on this connection: the leader's job has begun
  bool recorded_ = false;  // the journal knows the run, so that the next leader does
  bool ended_ = false;
  int stop_signal_ = 0;     // the user's
  TimePoint stopped_at_{};  // when it came
};

}  // namespace dlaunch
