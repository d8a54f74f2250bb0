// JobCore decides who is in the job: it forms rounds, notices that a member is lost, fills its
// place from a spare or by a new process, and ends the job. Pure: events in, actions out. A job
// without restarts is the same machine with max_restarts == 0.
//
// A *round* is one numbered roster: which slot is which rank. Workers are of two kinds:
// - Linked ones (they asked for elastic rounds in dl_init) wait for the roster and get it by
//   Announce. When a member is lost they are told by Fence, leave the round, and say by Ready that
//   they want the next one. They keep their process and their rank.
// - All others have their rank from the environment. They cannot stay where a member is lost, and
//   are restarted with it, as torchrun would. Nor can they wait for a rank: until somebody has
//   linked, who has none is not started, and comes in when all are started again.
//   With RestartScope::worker they are tasks that need nobody: what has ended well is not started
//   again, and the job needs each of them, for nobody else would do what it was to do.
// A round's number is used once: it grows with each attempt, announced or not, so whatever carries
// an older number is refused by value.
//
// A round is announced when every member of its roster is there. Whom to expect is known, so no
// clock decides; only a newcomer that does not come within join_timeout is replaced, at the cost of
// a restart. Ranks are sticky: a replacement takes the lost rank.
//
// A lost node is one failure. Spares take its ranks; else the job goes on without them if it may
// shrink, and grows again when the node is back; else it waits for the node, join_timeout long.
//
// What runs on a lost node may go on there as long as it needs nobody else. A round needs all of
// its members: one that is here, or known to have ended, and it is over. Where all of them were
// lost with their nodes no other round begins before one of these is back, or node_ends has passed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "elastic/agent_core.h"
#include "elastic/job_table.h"
#include "elastic/restart_policy.h"

namespace dlaunch {

// timeout(1) signals its child and then the whole group its child is in, Slurm a step's processes
// and their parents: the same signal twice within that time is one wish. People press ^C twice more
// slowly.
inline constexpr Duration kSameWish = std::chrono::milliseconds(100);

// Whom a failure takes along.
enum class RestartScope {
  automatic,  // those that are not linked
  worker,     // nobody
  node,       // those that are not linked, and everybody on its node
  job,        // everybody
};

struct JobConfig {
  int size = 1;      // workers at the start
  int min_size = 1;  // with fewer the job does not go on
  int max_size = 1;  // resize() may ask for as many
  int first_round = 1;
  int spares = 0;  // processes that wait for a place
  RestartScope scope = RestartScope::automatic;
  RestartPolicyConfig restarts;  // its nodes and slots are set here
  // Of a job of which nothing is left, and that this one goes on for.
  struct Before {
    int restarts_used = 0, restarts_left = 0;
  };
  std::optional<Before> before;
  std::vector<int> nodes;  // by slot: the node it is on, from 0; empty: all on one
  Duration timeout{};      // of the whole job; 0: none
  Duration join_timeout = std::chrono::seconds(600);
  // So long after a node was lost nothing runs on it any more: its agent sees to that.
  Duration node_ends = std::chrono::seconds(6);
  // Ranks that serve the others, as parameter servers do. When all other ranks have ended well the
  // job has succeeded, and the servers are stopped. Not all ranks serve.
  std::set<int> servers;
};

// Why the job ended.
enum class JobEnding {
  succeeded,
  worker_failed,
  given_up,  // rounds, by their members, though nobody was lost
  spawn_failed,
  interrupted,
  timed_out
};

// SIGINT, SIGTERM, SIGHUP, SIGQUIT: the user wants the job to end. Others are handed on.
bool ends_the_job(int signal);

// What the next leader of a job has to know of the one before, however that ended. Written down
// before anything is done that follows from it, so that no round's number is used twice.
struct JobRecord {
  int round = 0;  // the newest number that was given out
  int live = 0;   // the newest round that may have got on
  int wished_size = 0;
  int restarts_used = 0, restarts_left = 0;
  int used_for_sigterm = 0;     // of them, as RestartPolicy
  Duration time_left{};         // of --timeout, when this was written; 0: there is none
  std::vector<Slot> roster;     // by rank: of the newest number
  std::map<Slot, int> leaving;  // in whose stead nobody comes, and the ranks they had
  std::vector<Slot> members;    // of `live`
  std::vector<Slot> done;       // tasks that have ended well
  bool operator==(const JobRecord&) const = default;
};

class JobCore {
 public:
  // -- Events
  struct Start {};
  // Instead of Start: under a new leader, with those processes that are still there. It comes after
  // NodeLost for every node that is not.
  struct Found {
    Slot slot = 0;
    bool done = false;    // it has ended well
    bool linked = false;  // as Process
    bool ready = false;
    int in_round = 0;  // the last that was announced to it
    int round = 0;     // that, or the one it was started for
    std::uint64_t version = 0;
  };
  struct Resume {
    JobRecord was;
    std::vector<Found> found;
  };
  struct Spawned {
    Slot slot;
  };
  // It does not run; or it was Spawned and ended before it came to run its program.
  struct SpawnFailed {
    Slot slot;
  };
  struct Ended {
    Slot slot;
    bool well;                 // exit code 0
    bool consequence = false;  // it failed because another did
    // Otherwise, as of Failure:
    FailureKind kind = FailureKind::exit_code;
    int code = 1;
    std::uint64_t signature = 0, exact = 0;
    bool second_hand = false;
    Duration ran{};          // since it was started
    bool by_itself = false;  // before any signal of ours
  };
  struct Unkillable {
    Slot slot;
  };
  // A linked worker wants to be in a round later than `left`, the one it was in; 0: in none yet.
  struct Ready {
    Slot slot;
    int left;
    std::uint64_t version = 0;  // the newest state it holds; 0: none
    std::string why = {};       // it has given up `left`, not because somebody was lost: its words
  };
  struct Progress {
    Slot slot;
    std::uint64_t version;
  };
  struct Signal {
    int number;
  };
  struct Resize {
    int size;
  };
  struct Replace {  // it hangs, or is too slow: judged elsewhere
    Slot slot;
    FailureKind kind = FailureKind::hung;
  };
  // Nothing is heard of its agent any more, which ends its workers when it notices that; or, before
  // Start: it is not there yet. Nothing is started on it until NodeBack.
  struct NodeLost {
    int node;
  };
  // Nothing of the job runs there; one that was not there before adds its slots. Or it was to be
  // lost, and stays.
  struct NodeBack {
    int node;
  };
  // It is to be lost, or back, later. Its members leave at the next commit, all in one round, as
  // far as min_size allows: those that are linked; others stay until all start again.
  struct NodeDrain {
    int node;
  };
  struct Clock {};  // deadline() has passed
  using Event =
      std::variant<Start, Resume, Spawned, SpawnFailed, Ended, Unkillable, Ready, Progress, Signal,
                   Resize, Replace, NodeLost, NodeBack, NodeDrain, Clock>;

  // -- Actions, to be performed in order
  struct Place {
    Slot slot;
    int rank;  // -1: a spare
  };
  struct StartWorkers {
    int round;  // in which those with a rank are to be
    std::vector<Place> places;
    bool all;  // nobody of the rounds before is left
  };
  struct StopWorkers {
    std::vector<Slot> slots;
    int signal;
  };
  struct HandOn {
    int signal;
  };
  // To all linked workers: every round before `round` is over. Where nobody was lost they leave at
  // their next commit, or when it comes again because somebody was.
  struct Fence {
    int round;
    int lost;  // rank; -1: nobody
  };
  struct Announce {  // to each of them
    int round;
    std::vector<Slot> slots;  // by rank
  };
  struct Finish {
    JobEnding end = JobEnding::succeeded;
    int signal = 0;  // interrupted: the user's first
    bool all_reaped = true;
    std::string why;  // worker_failed, given_up: no restart was granted; empty: none was asked for
    std::string given_up = {};  // the members' words
    std::string ended_by =
        {};  // worker_failed, given_up: the option whose limit ended it, if one did
  };
  using Action = std::variant<StartWorkers, StopWorkers, HandOn, Fence, Announce, Finish>;

  explicit JobCore(const JobConfig& config);

  std::vector<Action> step(TimePoint now, const Event& event);
  std::optional<TimePoint> deadline() const;

  JobState state() const { return state_; }
  int round() const { return round_; }  // the newest number
  int size() const { return static_cast<int>(roster_.size()); }
  int target_size() const { return target_size_; }  // it grows or shrinks to that, or size()
  int min_size() const { return config_.min_size; }
  int max_size() const { return config_.max_size; }
  int restarts_used() const { return policy_.used(); }
  int restarts_left(TimePoint now) const { return policy_.left(now); }
  int rank_of(Slot slot) const { return at(slot).rank; }
  int node_of(Slot slot) const;
  JobRecord record() const;
  // One of these is of the newest round that may have got on: that round does not get on without
  // it, nor it without its agent, whoever else is out of reach. Of linked processes any that was in
  // a round and has its place still: not being told of the newest, it never enters it.
  static bool holds(const JobRecord& record, const std::vector<Found>& found);
  // For one that goes on for a job which was ended from outside. Whoever did that may have ended a
  // worker first: that was no failure.
  static JobConfig::Before left_of(const JobRecord& record) {
    return {record.restarts_used - record.used_for_sigterm,
            record.restarts_left + record.used_for_sigterm};
  }
  // Some member goes on to the round that is being formed.
  bool some_stay() const;
  bool linked(Slot slot) const { return at(slot).linked; }
  // It is in a round that was announced to it.
  bool joined(Slot slot) const { return at(slot).in_round > 0; }
  // Nobody has linked, and no failure takes anybody along.
  bool are_tasks() const { return config_.scope == RestartScope::worker && !elastic_; }
  // Its process runs, and is not to end.
  bool runs(Slot slot) const { return at(slot).life == Life::running; }
  // It was to be started there for that round, and its end, if nothing else, is still expected.
  bool awaits(Slot slot, int round) const {
    const Life life = at(slot).life;
    return (life == Life::starting || life == Life::stopping) && at(slot).round == round;
  }
  // When a process is started there that may not start yet.
  std::optional<TimePoint> starts_at(Slot slot) const;
  // No process is there, and none is to be.
  bool nobody_on(int node) const;
  // Processes are to be there that are not started without a rank.
  bool holds_back_on(int node) const;
  // How it is with the process there, in words: "running", "to be started", "absent".
  std::string life_of(Slot slot) const;
  // Whom it waits for, in words; empty: for nobody.
  std::string waits_for() const;
  // So many, from 0: for spares and growth, too.
  static int slots(const JobConfig& config) { return config.max_size + config.spares; }
  int slots() const { return static_cast<int>(processes_.size()); }

 private:
  enum class Life {
    absent,
    waiting,   // to be started at start_at
    starting,  // asked for
    running,
    stopping,  // asked for
    done,      // a member that ended well
    stuck,     // it cannot be ended
  };
  struct Process {
    Life life = Life::absent;
    int rank = -1;
    bool wanted = false;  // a member, a spare, or one of a larger round to come
    bool linked = false;
    int leaving = -1;  // the rank it had; to be stopped when the others have their next round
    bool ready = false;
    int in_round = 0;  // the last that was announced to it
    int round = 0;     // that, or the one it was started for
    std::uint64_t version = 0;
    TimePoint start_at{};
    TimePoint join_by = kNever;
  };

  void act(Action action);
  void on(const Start& event);
  void on(const Resume& event);
  void go_on_leaving(const Found& found, const std::map<Slot, int>& leaving);
  void on(const Spawned& event);
  void on(const SpawnFailed& event);
  void on(const Ended& event);
  void on(const Unkillable& event);
  void on(const Ready& event);
  void on(const Progress& event);
  void on(const Signal& event);
  void pause(int signal);
  void on(const Resize& event);
  void on(const Replace& event);
  void on(const NodeLost& event);
  void on(const NodeBack& event);
  void on(const NodeDrain& event);
  void on(const Clock& event);

  void lose_members(int node, const std::vector<Slot>& lost);
  void go_without(const std::vector<Slot>& to_come);
  bool give_place(Slot slot);
  void lower_target();
  void replace_absent();
  bool hand_to_spare(int rank);
  void lose_leaver(int rank);
  void lose(Slot slot, const std::optional<Failure>& failure);
  Failure failure_of(Slot slot, FailureKind kind) const;
  Failure failure_of(const Ended& event) const;
  void note_version(std::uint64_t version);
  bool is_refused(const RestartDecision& decision);
  void refuse(std::string why, std::string option);
  void form(int lost_rank);
  void want(Slot slot, int rank, TimePoint start_at);
  void stop(Slot slot, int signal);
  void stop_all(int signal);
  void leave_roster(int rank);
  void end(JobEnding why, int signal);
  void settle();
  void start_due();
  void grow();
  void shrink_on();
  void drop_unlinked();
  void announce();
  bool ends_given_up();
  void enter_round();
  void finish();

  std::vector<Slot> spares() const;
  bool held_back(const Process& process) const {
    return !elastic_ && process.life == Life::waiting && process.rank < 0;
  }
  int replaced_since(int round) const;
  // Until then the newest round that may have got on may go on without us; kNever: it cannot.
  TimePoint out_of_reach_until() const;
  bool out_of_reach() const {
    const TimePoint until = out_of_reach_until();
    return until != kNever && now_ < until;
  }
  bool may_shrink(int by = 1) const;
  Duration since_start_or_commit() const { return now_ - std::max(live_since_, committed_); }
  bool stays(Slot slot) const;
  bool is_member(Slot slot) const {  // of the newest round that may have got on
    return std::find(members_.begin(), members_.end(), slot) != members_.end();
  }
  // Its node is there.
  bool reachable(Slot slot) const { return !lost_nodes_.contains(node_of(slot)); }
  // Nor is it to be lost.
  bool takes_in(Slot slot) const { return reachable(slot) && !drained_.contains(node_of(slot)); }
  std::vector<int> drained_ranks() const;
  std::vector<int> ranks_to_go() const;
  void keep_leavers();
  void number_ranks();
  void leave_drained();
  int growth_on(int node) const;
  bool may_start(const Process& process) const;
  TimePoint given_up_at(const Process& process) const;
  bool is_late(const Process& process, TimePoint by) const;
  bool any_alive() const;
  bool any_member_done() const;
  bool any_member_waits() const;
  bool any_linked() const;
  bool all_work_is_done() const;
  bool all_are_there() const;
  static bool is_up(const Process& process);
  Process& at(Slot slot) { return processes_[static_cast<std::size_t>(slot)]; }
  const Process& at(Slot slot) const { return processes_[static_cast<std::size_t>(slot)]; }

  const JobConfig config_;
  TimePoint now_{};
  JobState state_ = JobState::idle;
  std::vector<Process> processes_;  // by slot
  std::vector<Slot> roster_;        // by rank: of the newest round
  int round_ = 0;
  int live_ = 0;  // the newest that may have got on
  TimePoint live_since_{};
  std::vector<Slot> members_;            // of that one
  std::set<Slot> cut_off_;               // those of them that were lost with their nodes
  bool announced_ = false;               // the round of the newest number
  int target_size_;                      // a larger one than the roster is being prepared
  int wished_size_;                      // by the user, or all that came; less while nodes are lost
  std::map<int, TimePoint> lost_nodes_;  // since when
  std::set<int> to_come_;                // nodes that were not there at the start
  std::set<int> drained_;
  bool elastic_ = false;    // the program: somebody has linked
  int failed_node_ = -1;    // where the last failure was
  int all_were_there_ = 0;  // of tasks: the newest round of which it is so
  RestartPolicy policy_;
  // Of the round that was announced last: why its members gave it up, or "", whether somebody was
  // lost since, and the commits before it.
  std::string given_up_;
  bool lost_ = false;
  std::uint64_t commits_before_ = 0;
  std::uint64_t version_ = 0;  // the newest that a member holds
  std::uint64_t commits_ = 0;  // made in all; grows also where state was lost and is made again
  TimePoint committed_{};      // the last
  JobEnding why_ = JobEnding::succeeded;
  std::string why_no_restart_, ended_by_;
  int stop_signal_ = 0;  // the user's first
  TimePoint stopped_at_{};
  TimePoint job_deadline_ = kNever;
  std::optional<TimePoint> paused_at_;  // by the user's ^Z: that time is none of the job's
  TimePoint shrink_at_ = kNever;        // at the latest, where no commits are reported
  std::vector<Action> actions_;
};

}  // namespace dlaunch
