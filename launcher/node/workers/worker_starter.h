// Starts the workers of a Plan, one call each: combines arguments, environment, placement and
// descriptors.
#pragma once

#include <sys/resource.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "launcher/node/workers/worker_env.h"
#include "launcher/output/output_hub.h"
#include "launcher/plan/plan.h"
#include "launcher/process/keeper.h"
#include "launcher/process/spawn.h"

namespace dlaunch {

class WorkerStarter {
 public:
  // Raises our own limit of open files, because each worker takes several; workers get the old one
  // back. `plan` must outlive the starter. Error: the hard limit is too low for that many workers.
  static Result<WorkerStarter> make(const Plan& plan, const OriginalSignals& original);

  // Why no worker of that plan could start here, as far as that can be checked beforehand; stage ==
  // none: no reason is known.
  static SpawnError foresee_failure(const Plan& plan);

  // Starts the worker; for `place.worker` 1 it waits until the program runs, before others are
  // started in vain. The caller may close the descriptors in `stdio` afterwards. stage == none on
  // success; even then a worker may end before its program runs.
  SpawnError start(const WorkerPlace& place, const OutputHub::WorkerStdio& stdio, Spawned& worker);

  // The number of the program that the rank runs.
  int program_of(int rank) const { return plan_->program_of(rank); }

  const DebugPlan& debugging() const { return plan_->debugging; }
  const std::string& host() const { return plan_->host; }

  // Why a started worker ended before its program ran; none if it did run. Call it after the worker
  // was reaped.
  std::optional<SpawnError> failure_of(const WorkerPlace& place);

 private:
  explicit WorkerStarter(const Plan& plan);
  Result<UniqueFd> open_heartbeat(WorkerPlace& place, UniqueFd& reading) const;
  SpawnRequest request_for(const WorkerPlace& place) const;
  Result<std::string> resolve(const SpawnRequest& request);
  SpawnError foresee_failure_of(int rank);

  const Plan* plan_;
  rlimit open_files_{};
  bool ignore_hangup_ = false;
  std::vector<std::string> inherited_;
  // By name, folder and PATH: where it was found.
  std::map<std::tuple<std::string, std::string, std::string>, std::string> programs_;
  UniqueFd failures_reading_, failures_writing_;
  std::map<int, SpawnFailure> failures_;  // by worker
};

}  // namespace dlaunch
