// JobCore decides which processes are in the job: it forms rounds, notices a lost member, fills its
// place from a spare or with a new process, and ends the job. Pure: events in, actions out. A job
// without restarts is the same machine with max_restarts == 0.
//
// A *round* is one numbered roster, which maps slots to ranks. There are two kinds of workers:
// - Linked workers (they asked for elastic rounds in dl_init) wait for the roster and get it by
//   Announce. After the loss of a member they get a Fence, leave the round, and send Ready for the
//   next one. They keep their process and their rank.
// - All others have their rank from the environment. They cannot outlive the loss of a member, and
//   restart with it, as torchrun's workers do. Nor can they wait for a rank: until a worker has
//   linked, a process without a rank is not started, and comes in when all start again. With
//   RestartScope::worker they are independent tasks: one that has ended well does not start again,
//   and the job needs each of them, because no other would do its work.
// A round's number is used once: it grows with each attempt, announced or not, so a receiver
// refuses any message with an older number.
//
// A round is announced when every member of its roster is there. The expected members are known, so
// no clock decides; only a newcomer that does not come within join_timeout is replaced, at the cost
// of a restart. Ranks are sticky: a replacement takes the lost rank.
//
// A lost node is one failure. Spares take its ranks. Otherwise the job goes on without them if it
// may shrink, and grows again when the node is back; if it may not, it waits for the node for
// join_timeout.
//
// Processes on a lost node may go on as long as they need no other member. A round needs all of its
// members: it is over once one of them is reachable, or known to have ended. If all of them were
// lost with their nodes, the next round begins only when one of these is back, or when node_ends
// has passed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "elastic/agent_core.h"
#include "elastic/job_table.h"
#include "elastic/restart_policy.h"

namespace dlaunch {

// timeout(1) signals its child and then the child's whole group; Slurm signals a step's processes
// and their parents. The same signal twice within this time is one wish. A user presses ^C twice
// more slowly.
inline constexpr Duration kSameWish = std::chrono::milliseconds(100);
// A process whose data are corrupt ends by itself. So long it may take.
inline constexpr Duration kCorruptEnds = std::chrono::seconds(10);
// So long after SIGKILL a job that goes on waits for the end of a process whose place it needs. The
// kernel takes tens of seconds to free a terabyte, or what a process has on GPUs. Slurm, too, waits
// for a minute. A job that ends waits for kKillPatience.
inline constexpr Duration kStuckPatience = std::chrono::seconds(60);

// Which processes a failure takes along.
enum class RestartScope {
  automatic,  // those that are not linked
  worker,     // none
  node,       // those that are not linked, and all on its node
  job,        // all
};

struct JobConfig {
  int size = 1;      // workers at the start
  int min_size = 1;  // with fewer the job does not go on
  int max_size = 1;  // resize() may ask for up to this
  int first_round = 1;
  int spares = 0;  // processes that wait for a place
  RestartScope scope = RestartScope::automatic;
  RestartPolicyConfig restarts;  // its nodes and slots are set here
  // The ended job that this one continues.
  struct Before {
    int restarts_used = 0, restarts_left = 0;
  };
  std::optional<Before> before;
  std::vector<int> nodes;  // by slot: its node, from 0; empty: all on one
  // By node, when the job began (elastic/rack_order.h); empty: unknown. A spare that shares most
  // switches with a lost rank takes that rank.
  std::vector<std::string> racks;
  Duration timeout{};  // of the whole job; 0: none
  Duration join_timeout = std::chrono::seconds(600);
  // So long after the loss of a node no process runs there: its agent ensures that.
  Duration node_ends = std::chrono::seconds(6);
  // Ranks that serve the others, as parameter servers do. When all other ranks have ended well the
  // job has succeeded, and JobCore stops the servers. At least one rank does not serve.
  std::set<int> servers;
};

// Why the job ended.
enum class JobEnding {
  succeeded,
  worker_failed,
  given_up,  // rounds, by their members, though no rank was lost
  spawn_failed,
  interrupted,
  timed_out,
  setup_failed  // the launcher could not begin; no core ends so
};

// SIGINT, SIGTERM, SIGHUP, SIGQUIT: the user wants the job to end. Workers get other signals.
bool ends_the_job(int signal);

// The facts that the next leader needs about this one, however this one ends. Written down before
// any action that follows from them, so that no round's number is used twice.
struct JobRecord {
  int round = 0;  // the newest number
  int live = 0;   // the newest round that may have begun its work
  int wished_size = 0;
  int restarts_used = 0, restarts_left = 0;
  int used_for_sigterm = 0;     // of them, as in RestartPolicy
  Duration time_left{};         // of --timeout, at the time of writing; 0: no limit
  std::vector<Slot> roster;     // by rank: of the newest number
  std::map<Slot, int> leaving;  // slots without a successor, and their ranks
  std::vector<Slot> members;    // of `live`
  std::vector<Slot> done;       // tasks that ended well
  // Members with corrupt data, in the words of these others.
  std::map<Slot, std::vector<Slot>> accused;
  bool operator==(const JobRecord&) const = default;
};

class JobCore {
 public:
  // -- Events
  struct Start {};
  // Instead of Start: under a new leader, with the processes that are still there. It comes after
  // NodeLost for every absent node.
  struct Found {
    Slot slot = 0;
    bool done = false;    // it ended well
    bool linked = false;  // as Process
    bool ready = false;
    int in_round = 0;  // the last round announced to it
    int round = 0;     // that, or the one that it was started for
    std::uint64_t version = 0;
  };
  struct Resume {
    JobRecord was;
    std::vector<Found> found;
  };
  struct Spawned {
    Slot slot;
  };
  // It does not run, or ended before it ran its program.
  struct SpawnFailed {
    Slot slot;
  };
  struct Ended {
    Slot slot;
    bool well;                 // exit code 0
    bool consequence = false;  // it failed because another worker did
    // If neither, as in Failure:
    FailureKind kind = FailureKind::exit_code;
    int code = 1;
    std::uint64_t signature = 0, exact = 0;
    bool second_hand = false;
    Duration ran{};          // since its start
    bool by_itself = false;  // before any signal of ours
  };
  struct Stuck {  // SIGKILL has not ended it within kKillPatience
    Slot slot;
    int rank = -1;  // that it had
    int pid = 0;
    std::string doing = {};  // what delays its end, in words; "": its host cannot tell
  };
  // A linked worker wants a round later than `left`, its last one; 0: it had none.
  struct Ready {
    Slot slot;
    int left;
    std::uint64_t version = 0;  // the newest state it holds; 0: none
    std::string why = {};       // its words for giving up `left`; "": a rank was lost
    bool corrupt = false;       // the ranks of `left` had different results (--verify)
    int corrupt_rank = -1;      // whose data were corrupt; -1: the ranks cannot tell
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
  struct Replace {  // it hangs, or is too slow: another part has judged so
    Slot slot;
    FailureKind kind = FailureKind::hung;
    bool leaves = false;  // its node: it goes to a spare of another one, or without a successor
  };
  // Its agent is out of reach, and ends its workers when it notices that; or, before Start: it has
  // not come yet. No process starts on it until NodeBack.
  struct NodeLost {
    int node;
  };
  // No process of the job runs there; a node that is new adds its slots. Or it was to be lost, and
  // stays.
  struct NodeBack {
    int node;
  };
  // It will be lost, or will come back, later. Its linked members leave at the next commit, all in
  // one round, as far as min_size allows; others stay until all start again. None is started there
  // if the job can do without it.
  struct NodeDrain {
    int node;
  };
  struct Clock {};  // deadline() has passed
  using Event = std::variant<Start, Resume, Spawned, SpawnFailed, Ended, Stuck, Ready, Progress,
                             Signal, Resize, Replace, NodeLost, NodeBack, NodeDrain, Clock>;

  // -- Actions, to be performed in order
  struct Place {
    Slot slot;
    int rank;  // -1: a spare
  };
  struct StartWorkers {
    int round;  // of the members with a rank
    std::vector<Place> places;
    bool all;        // no process of earlier rounds is left
    int number = 0;  // of this order, from 1
  };
  struct StopWorkers {
    std::vector<Slot> slots;
    int signal;
  };
  struct HandOn {
    int signal;
  };
  // To all linked workers: every round before `round` is over. If no rank was lost they leave at
  // their next commit, or when another Fence names a lost one. Members that have not met yet leave
  // at once.
  struct Fence {
    int round;
    int lost;  // rank; -1: none
  };
  struct Announce {  // to each of them
    int round;
    std::vector<Slot> slots;  // by rank
  };
  struct Finish {
    JobEnding end = JobEnding::succeeded;
    int signal = 0;  // interrupted: the user's first
    bool all_reaped = true;
    std::string why;  // worker_failed, given_up: why a restart was refused; empty: not asked
    std::string given_up = {};  // the members' words
    std::string ended_by = {};  // worker_failed, given_up: the option whose limit ended it, if any
    bool corrupt = false;       // given_up: the members had different results
  };
  struct AwaitEnd {  // another process is to take its place, which can start only after its end
    Stuck of;
    Duration longer;  // so long at most
  };
  using Action = std::variant<StartWorkers, StopWorkers, HandOn, Fence, Announce, AwaitEnd, Finish>;

  explicit JobCore(const JobConfig& config);

  static JobOn kind_of(const Event& event);
  std::vector<Action> step(TimePoint now, const Event& event);
  std::optional<TimePoint> deadline() const;

  JobState state() const { return state_; }
  int round() const { return round_; }  // the newest number
  int size() const { return static_cast<int>(roster_.size()); }
  int target_size() const { return target_size_; }  // it grows or shrinks to this, or size()
  int min_size() const { return config_.min_size; }
  int max_size() const { return config_.max_size; }
  int restarts_used() const { return policy_.used(); }
  int restarts_left(TimePoint now) const { return policy_.left(now); }
  int rank_of(Slot slot) const { return at(slot).rank; }
  int node_of(Slot slot) const;
  JobRecord record() const;
  // Whether one of these belongs to the newest round that may have begun its work: that round
  // cannot work without it, nor it without its agent, whatever other members are out of reach. A
  // linked process counts if it was in any round and still has its place: it enters no newer round
  // without an Announce.
  static bool holds(const JobRecord& record, const std::vector<Found>& found);
  // For a job that continues one that was ended from outside. The user may have ended a worker
  // first: that was no failure.
  static JobConfig::Before left_of(const JobRecord& record) {
    return {record.restarts_used - record.used_for_sigterm,
            record.restarts_left + record.used_for_sigterm};
  }
  // The size of the round before, if the one that is being formed has another size, and no rank was
  // lost in between; 0: there is no such change.
  int resized_from() const;
  // Some member stays for the round that is being formed.
  bool some_stay() const;
  // Several members of the last round have found that its data are corrupt.
  bool accused(Slot slot) const {
    const auto found = accused_.find(slot);
    return found != accused_.end() && found->second.by.size() > 1;
  }
  bool linked(Slot slot) const { return at(slot).linked; }
  // It has an announced round.
  bool joined(Slot slot) const { return at(slot).in_round > 0; }
  // No worker has linked, and no failure takes another worker along.
  bool are_tasks() const { return config_.scope == RestartScope::worker && !elastic_; }
  // Its process runs, and is not being stopped.
  bool runs(Slot slot) const { return at(slot).life == Life::running; }
  // The StartWorkers of that number was the last to start it there, and at least its end is still
  // expected.
  bool awaits(Slot slot, int number) const {
    const Life life = at(slot).life;
    return (life == Life::starting || life == Life::stopping) && at(slot).start == number;
  }
  // When the waiting process there may start.
  std::optional<TimePoint> starts_at(Slot slot) const;
  // No process is there, and none is expected.
  bool nobody_on(int node) const;
  // Of the job's slots there, in their order; without the ranks that have ended well.
  std::vector<int> ranks_on(int node) const;
  // Processes are expected there that do not start without a rank.
  bool holds_back_on(int node) const;
  // The state of the process there, in words: "running", "to be started", "absent".
  std::string life_of(Slot slot) const;
  // What the job waits for, in words; empty: nothing.
  std::string waits_for() const;
  // The number of slots, numbered from 0: for spares and growth, too.
  static int slots(const JobConfig& config) { return config.max_size + config.spares; }
  int slots() const { return static_cast<int>(processes_.size()); }

 private:
  enum class Life {
    absent,
    waiting,   // starts at start_at
    starting,  // the start is under way
    running,
    stopping,  // the stop is under way
    done,      // a member that ended well
    stuck,     // SIGKILL has not ended it so far
  };
  struct Process {
    Life life = Life::absent;
    int rank = -1;
    bool wanted = false;  // a member, a spare, or a member of a larger round to come
    bool linked = false;
    bool killed = false;  // its stop was SIGKILL
    int leaving = -1;     // its former rank; stopped when the others have their next round
    bool ready = false;
    int in_round = 0;  // the last round announced to it
    int round = 0;     // that, or the one that it was started for
    int start = 0;     // the number of its last StartWorkers; 0: none by this leader
    std::uint64_t version = 0;
    TimePoint start_at{};
    TimePoint join_by = kNever;
    TimePoint end_by = kNever;  // while it is stuck: the job waits until then
  };

  void set_life(Process& process, Life life);
  void set_ready(Process& process, bool ready);
  int count(Life life) const { return lives_[static_cast<std::size_t>(life)]; }

  void act(Action action);
  void on(const Start& event);
  void on(const Resume& event);
  void go_on_leaving(const Found& found, const std::map<Slot, int>& leaving);
  void on(const Spawned& event);
  void on(const SpawnFailed& event);
  void on(const Ended& event);
  void on(const Stuck& event);
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
  bool is_newcomer(const Process& process) const;
  void dismiss(Slot slot);
  void give_up_stuck(Slot slot);
  bool give_place(Slot slot);
  void lower_target();
  void replace_absent();
  bool hand_to_spare(int rank, int broken_node = -1);
  std::string_view rack_of(Slot slot) const;
  void lose_leaver(int rank);
  void lose(Slot slot, const std::optional<Failure>& failure, bool leaves = false);
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
  void note_why(const Ready& event);
  bool ends_given_up();
  void enter_round();
  void finish();

  std::vector<Slot> spares() const;
  std::vector<Slot> without_rank() const;
  bool held_back(const Process& process) const {
    return !elastic_ && process.life == Life::waiting && process.rank < 0;
  }
  int replaced_since(int round) const;
  // Until then the newest round that may have begun its work may go on without us; kNever: it
  // cannot.
  TimePoint out_of_reach_until() const;
  bool out_of_reach() const {
    const TimePoint until = out_of_reach_until();
    return until != kNever && now_ < until;
  }
  bool may_shrink(int by = 1) const;
  Duration since_start_or_commit() const { return now_ - std::max(live_since_, committed_); }
  bool stays(Slot slot) const;
  bool is_member(Slot slot) const {  // of the newest round that may have begun its work
    return std::ranges::find(members_, slot) != members_.end();
  }
  // Its node is there.
  bool reachable(Slot slot) const { return !lost_nodes_.contains(node_of(slot)); }
  // It is reachable and will not be drained.
  bool takes_in(Slot slot) const { return reachable(slot) && !drained_.contains(node_of(slot)); }
  std::vector<int> drained_ranks() const;
  std::vector<int> ranks_to_go() const;
  void keep_leavers();
  void number_ranks();
  void leave_drained();
  int growth_on(int node) const;
  bool may_start(const Process& process) const;
  TimePoint given_up_at(const Process& process) const;
  // The process there is being stopped, whether or not SIGKILL has ended it in time.
  static bool is_going(const Process& process) {
    return process.life == Life::stopping || process.life == Life::stuck;
  }
  // Until then the job waits for the end of a process that is stuck.
  static TimePoint awaited_until(const Process& process) {
    return process.life == Life::stuck && process.wanted ? process.end_by : kNever;
  }
  bool is_late(const Process& process, TimePoint by) const;
  void note_corrupt(const Ready& event);
  bool overstays(Slot slot, TimePoint by) const;
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
  // How many processes have each life, and how many are ready: jobs have thousands, and most
  // questions about them all need no look at each.
  std::array<int, 7> lives_{};
  int ready_ = 0;
  std::vector<Slot> roster_;  // by rank: of the newest round
  int round_ = 0;
  int starts_ = 0;  // the number of the last StartWorkers
  int live_ = 0;    // the newest that may have begun its work
  TimePoint live_since_{};
  std::vector<Slot> members_;  // of `live_`
  std::set<Slot> cut_off_;     // members that were lost with their nodes
  bool announced_ = false;     // the round of the newest number
  bool reported_ = false;      // a member has reported a commit since the last Announce
  int target_size_;            // larger than the roster while growth is being prepared
  int wished_size_;            // by the user, or all that came; lowered while nodes are lost
  std::map<int, TimePoint> lost_nodes_;  // since when
  std::set<int> to_come_;                // nodes absent at the start
  std::set<int> drained_;
  bool elastic_ = false;    // the program: some worker has linked
  int failed_node_ = -1;    // where the last failure was
  int all_were_there_ = 0;  // for tasks: the newest round in which all were there
  RestartPolicy policy_;
  // About the last announced round: why its members gave it up, or "", whether a rank was lost
  // since, and the commits before it. corrupt_: they had different results, and cannot tell whose
  // are wrong.
  std::string given_up_;
  bool corrupt_ = false;
  // Members of that round whose data are corrupt, in the words of these others.
  struct Accused {
    std::set<Slot> by;
    TimePoint ends_by = kNever;
  };
  std::map<Slot, Accused> accused_;
  bool earlier_loss_ = false;  // the previous leader may have lost a rank of the live round
  bool lost_ = false;
  std::uint64_t commits_before_ = 0;
  std::uint64_t version_ = 0;  // the newest that a member holds
  std::uint64_t commits_ = 0;  // in all; grows also when lost state is made again
  TimePoint committed_{};      // the last
  JobEnding why_ = JobEnding::succeeded;
  std::string why_no_restart_, ended_by_;
  int stop_signal_ = 0;  // the user's first
  TimePoint stopped_at_{};
  TimePoint job_deadline_ = kNever;
  std::optional<TimePoint> paused_at_;  // by the user's ^Z: the job's time does not count it
  TimePoint shrink_at_ = kNever;        // at the latest, if no commits are reported
  std::vector<Action> actions_;
};

}  // namespace dlaunch
