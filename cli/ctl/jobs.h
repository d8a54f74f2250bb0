// The jobs of this user on this machine, and requests to them.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/ctl/options.h"
#include "cli/ctl/remote.h"
#include "launcher/lead/control/control_request.h"

namespace dlaunch::ctl {

struct RunningJob {
  std::string folder;     // of its dlaunch here; "": none is known
  nlohmann::json status;  // as in dlaunchctl(1); null: it does not answer
  struct Elsewhere {
    std::string id, by;  // the job's id; its leader's host; "": led here
  } led = {};
  std::optional<RemoteJob> remote = {};  // how to reach it there; none: it is led here
};

std::string id_of(const RunningJob& job);  // "": it does not answer

// Asks each job for its status.
std::vector<RunningJob> running_jobs();

// The only job, or the one with this id. Throws a Failure that lists the jobs if there is no such
// job.
const RunningJob& choose(const std::vector<RunningJob>& jobs, const std::string& id);

// The answer of a job, an object. Throws a Failure if it refuses, has ended, or does not answer,
// in any case not by `until`. ask_in_order() keeps the order of its members.
nlohmann::ordered_json ask_in_order(const RunningJob& job, const ControlRequest& request,
                                    TimePoint until = kNever);
nlohmann::json ask(const RunningJob& job, const ControlRequest& request);

// A job that is asked again and again, also under its next leaders.
class LedJob {
 public:
  struct Patience {
    // An answer says that the job has ended, so a leader that is gone was lost.
    bool end_is_told = false;
    std::optional<Duration> timeout = {};  // the user's, from now on
  };
  LedJob(RunningJob job, const Patience& patience);
  // The answer of the leader. If it is lost, waits for the next one, as LeaderWait says, and the
  // user learns that if the job has not ended. Throws a Failure like ask_in_order(), also if there
  // is no next leader, or if the timeout has passed.
  nlohmann::ordered_json ask(const ControlRequest& request);
  const RunningJob& where() const { return job_; }

 private:
  void find_next_leader(const Failure& why);
  void check_timeout() const;

  RunningJob job_;
  const Patience patience_;
  const TimePoint until_;
  // So long the job's hosts wait for their next leader; none: the job ends with its leader.
  std::optional<Duration> hosts_wait_;
};

}  // namespace dlaunch::ctl
