// JobStatus: a job at one moment, as plain values and as JSON for outside programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/flight.h"
#include "base/rank_set.h"
#include "elastic/agent_core.h"
#include "elastic/goodput_ledger.h"
#include "elastic/job_table.h"
#include "elastic/restart_policy.h"
#include "launcher/lead/control/run_pace.h"
#include "launcher/wire/monitor_message.h"

namespace dlaunch {

struct WorkerStatus {
  Slot slot = 0;
  int rank = -1;        // -1: a spare, or a worker that is leaving
  int local_rank = -1;  // among those of its host; -1 as above
  std::string host;
  std::string program;                   // of a job of several; "": the job's
  int pid = 0;                           // 0: there is no process, or it is on another host
  bool up = false;                       // it runs and has not been asked to end
  bool linked = false;                   // it takes part in elastic rounds
  std::string state;                     // "running", "to be started": for people
  std::optional<Duration> ran;           // since its process was started
  std::optional<FlightEntry> operation;  // its last operation of libdlring
  NodeWorker figures;                    // from its host, if there is a process
  // From one collective of all ranks to the next, of late: the time, and its part in which it
  // waited for the last rank.
  std::optional<double> step_s = {}, wait_s = {};
};

struct HostStatus {
  int node = 0;
  std::string name;
  std::string listed_as = {};  // its name in --hosts or the like; "": the same
  int ranks = 0;               // number of its ranks
  bool drained = false;        // or about to be drained
  bool left = false;           // it is drained and its dlaunch has ended
};

// Ranks that others have waited for in a collective, for kLongWait or longer.
inline constexpr Duration kLongWait = std::chrono::seconds(2);
struct LateRanks {
  RankSet ranks;
  RankSet waiting;  // those in the collective, which may be the late ranks themselves
  Duration waited{};
  std::string text;  // for people, with the time
};

// How far a job is, as services that run many jobs need it.
enum class JobPhase {
  queued,     // it waits for its hosts
  launching,  // no round has begun yet
  running,
  finished,  // it has ended well
  failed,
};
inline constexpr JobPhase kJobPhases[] = {JobPhase::queued, JobPhase::launching, JobPhase::running,
                                          JobPhase::finished, JobPhase::failed};
const char* name(JobPhase phase);
// exit_code: of dlaunch, once the job has ended.
JobPhase phase_of(JobState state, bool had_round, std::optional<int> exit_code);

struct JobStatus {
  TimePoint now{};
  std::string job_id;
  std::string host;     // the leader's host
  std::string program;  // with its arguments; of several with " : " between them
  bool several_programs = false;
  JobState state = JobState::idle;
  JobPhase phase = JobPhase::queued;
  int round = 0;
  int size = 0;
  int target_size = 0;   // what the job is growing to, or `size`
  int resized_from = 0;  // JobCore::resized_from()
  int min_size = 0;      // with fewer workers the job does not go on
  int max_size = 0;      // as --max-nproc
  std::vector<HostStatus> all_hosts;
  std::string waits_for;  // what the round waits for; "": nothing
  int hosts_here = 1, hosts_wanted = 1;
  std::vector<std::string> hosts;  // "HOST: its problem", in words
  int restarts_used = 0;
  int restarts_left = 0;  // number that would be granted at once
  RestartLimit restarts;
  Duration ran{};
  std::optional<RunPace> pace = {};            // of the program, if it reports its progress
  std::optional<GoodputSummary> goodput = {};  // none: the job has not begun
  std::vector<LateRanks> late = {};            // the longest wait first
  std::vector<WorkerStatus> workers = {};      // by rank, then those without one
};

// One object, as in status.schema.json.
std::string render_json(const JobStatus& status);

// "forming"
const char* name(JobState state);

}  // namespace dlaunch
