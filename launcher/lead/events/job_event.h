// JobEvent: what happened in a job, as plain values and as lines of JSON for outside programs
// (--events, dlaunchctl events). events.schema.json describes the lines. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/words.h"
#include "elastic/goodput_ledger.h"
#include "elastic/restart_policy.h"

namespace dlaunch {

// When something happened: by the clock that users know, and by the leader's that cannot jump.
struct EventTime {
  std::chrono::sys_time<std::chrono::milliseconds> wall;
  TimePoint monotonic;
};

namespace job_event {

struct Queued {      // it waits for its hosts
  std::string host;  // the leader's
  std::string program;
};
struct JobStarted {
  std::string host;  // the leader's
  std::string program;
  int size = 0, min_size = 0, max_size = 0, spares = 0, max_restarts = 0;
};
struct LeadTaken {  // the job goes on under another leader, after this round
  std::string host;
  int round = 0;
};
struct HostJoined {
  std::string host;
};
struct HostLost {
  std::string host;
  RankSet ranks;
};
struct Start {  // processes are started
  int round = 0;
  RankSet ranks;
  int spares = 0;
  bool all = false;  // no process of an earlier round is left
};
struct Round {  // all of its members are there
  int round = 0, size = 0;
  std::optional<Duration> without;  // for how long the job had no round; none: it is the first
};
struct Resize {  // this round has another size than the one before
  int round = 0, from = 0, to = 0;
};
enum class Ending { well, stopped, failed };
inline constexpr WordTable<FailureKind, 10> kFailureWords = {
    {{"exit_code", FailureKind::exit_code},
     {"signal", FailureKind::signal},
     {"out_of_memory", FailureKind::out_of_memory},
     {"gave_up", FailureKind::gave_up},
     {"lost", FailureKind::lost},
     {"hung", FailureKind::hung},
     {"evicted", FailureKind::evicted},
     {"preempted", FailureKind::preempted},
     {"voluntary", FailureKind::voluntary},
     {"corrupt", FailureKind::corrupt}}};
struct WorkerEnded {  // "exit", or "failure" if it failed
  Ending how = Ending::well;
  FailureKind kind = FailureKind::exit_code;  // of a failure
  int round = 0, rank = -1, pid = 0;          // rank -1: a spare
  std::string host;
  int exit_code = 0, signal = 0;  // signal 0: it exited
  int lost_peer = -1;             // it failed because libdlring had lost this rank
  Duration ran{};
};
struct StartFailed {
  int rank = -1;
  std::string what;
};
struct Restart {  // the job goes on after a failure, or a worker is replaced on purpose
  FailureKind reason = FailureKind::exit_code;
  int round = 0;  // the next one's number
  int used = 0, left = 0;
};
struct Commit {
  std::uint64_t version = 0;
  int commits = 1;  // since the last event of this kind
  int round = 0;
};
struct Straggler {
  enum class Action { slow, over, restart, evict, refrain };
  Action action = Action::slow;
  int rank = -1, peer = -1;     // peer: of a slow link; -1: the rank itself
  std::optional<double> ratio;  // its time over that of the others
  std::string what;
};
struct HangFinding {
  enum class Action { warning, replace };
  Action action = Action::warning;
  RankSet ranks;
  std::string what;
  std::optional<Duration> hung = {};  // of replace: for how long they have hung until now
};
struct Order {  // of dlaunchctl
  std::string what;
};
struct Signal {  // of the user or a scheduler, to the job
  int signal = 0;
};
struct GoodputSums {  // up to the end of this round, since this dlaunch leads the job
  int round = 0;
  GoodputSummary summary;
};
struct JobEnded {
  int exit_code = 0;
  int round = 0, restarts_used = 0;
  Duration ran{};
  std::string what;  // one line; "": it went well
};
struct Lost {  // so many events before this one could not be written
  std::uint64_t events = 0;
};

}  // namespace job_event

using JobEvent =
    std::variant<job_event::Queued, job_event::JobStarted, job_event::LeadTaken,
                 job_event::HostJoined, job_event::HostLost, job_event::Start, job_event::Round,
                 job_event::Resize, job_event::WorkerEnded, job_event::StartFailed,
                 job_event::Restart, job_event::Commit, job_event::Straggler,
                 job_event::HangFinding, job_event::Order, job_event::Signal,
                 job_event::GoodputSums, job_event::JobEnded, job_event::Lost>;

// "2026-11-27T14:02:03.456Z"
std::string rfc3339(std::chrono::sys_time<std::chrono::milliseconds> time);

// One line with its newline. Its first members are time, monotonic, job and event.
std::string render_json(const JobEvent& event, const EventTime& time, std::string_view job_id);

}  // namespace dlaunch
