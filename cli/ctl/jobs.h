// The jobs of this user on this machine, and requests to them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/ctl/remote.h"
#include "launcher/lead/control/control_request.h"

namespace dlaunch::ctl {

struct RunningJob {
  std::string folder;     // "": it is led from another machine
  nlohmann::json status;  // as in dlaunchctl(1); null: it does not answer
  struct Elsewhere {
    std::string id, by;  // the job's id; its leader's host; "": led here
  } led = {};
  std::optional<RemoteJob> remote = {};  // how to reach it there
};

std::string id_of(const RunningJob& job);  // "": it does not answer

// Asks each job for its status.
std::vector<RunningJob> running_jobs();

// The only job, or the one with this id. Throws a Failure that lists the jobs if there is no such
// job.
const RunningJob& choose(const std::vector<RunningJob>& jobs, const std::string& id);

// The answer of a job, an object. Throws a Failure if it refuses, has ended, or does not answer.
// ask_in_order() keeps the order of its members.
nlohmann::ordered_json ask_in_order(const RunningJob& job, const ControlRequest& request);
nlohmann::json ask(const RunningJob& job, const ControlRequest& request);

}  // namespace dlaunch::ctl
