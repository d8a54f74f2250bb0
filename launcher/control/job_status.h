// JobStatus: a job at one moment, as plain values, and as JSON for those who ask from outside.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/flight.h"
#include "elastic/agent_core.h"
#include "elastic/job_table.h"
#include "elastic/restart_policy.h"
#include "launcher/hosts/monitor_message.h"

namespace dlaunch {

struct WorkerStatus {
  Slot slot = 0;
  int rank = -1;        // -1: a spare, or one that is leaving
  int local_rank = -1;  // among those of its host; -1 as above
  std::string host;
  std::string program;                   // of a job of several; "": the job's
  int pid = 0;                           // 0: there is no process, or it is on another host
  bool up = false;                       // it runs, and nobody has asked it to end
  bool linked = false;                   // it takes part in elastic rounds
  std::string state;                     // "running", "to be started": for people
  std::optional<Duration> ran;           // since its process was started
  std::optional<FlightEntry> operation;  // its last of libdlring
  NodeWorker figures;                    // what its host tells, where there is a process
};

struct HostStatus {
  int node = 0;
  std::string name;
  std::string listed_as = {};  // by --hosts or its like; "": the same
  int ranks = 0;               // that it has
  bool drained = false;        // or about to be
  bool left = false;           // and its dlaunch has ended
};

struct JobStatus {
  TimePoint now{};
  std::string job_id;
  std::string host;     // that leads
  std::string program;  // with its arguments; of several with " : " between them
  bool several_programs = false;
  JobState state = JobState::idle;
  int round = 0;
  int size = 0;
  int target_size = 0;  // what the job is growing to, or `size`
  int min_size = 0;     // with fewer it does not go on
  int max_size = 0;     // as --max-nproc
  std::vector<HostStatus> all_hosts;
  std::string waits_for;           // whom the round waits for; "": nobody
  std::vector<std::string> hosts;  // "HOST: what is the matter with it", in words
  int restarts_used = 0;
  int restarts_left = 0;  // that would be granted at once
  RestartLimit restarts;
  Duration ran{};
  std::vector<WorkerStatus> workers;  // by rank, then those without one
};

// One object, documented in dlaunchctl(1).
std::string render_json(const JobStatus& status);

// "forming"
const char* name(JobState state);

}  // namespace dlaunch
