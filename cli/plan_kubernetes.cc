#include "cli/plan_kubernetes.h"

#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

constexpr const char* kJobIndex = "JOB_COMPLETION_INDEX";
constexpr const char* kGroupIndex = "LWS_WORKER_INDEX";
constexpr const char* kGroupLeader = "LWS_LEADER_ADDRESS";
constexpr int kMaxIndex = 65535;

// "train-12.train.default.svc" with 12 -> "train-0.train.default.svc"; "" for other names.
std::string first_of(const std::string& name, const std::string& index) {
  const auto dot = name.find('.');
  const std::string end = "-" + index;
  if (dot == name.npos || !name.substr(0, dot).ends_with(end)) return "";
  return name.substr(0, dot - end.size()) + "-0" + name.substr(dot);
}

// For a pod of an Indexed Job: "" if its name does not lead to the first pod.
std::string leader_in_job(const std::string& index, const std::string& hostname,
                          const std::string& full_name) {
  return index == "0" ? hostname : first_of(full_name, index);
}

}  // namespace

Result<bool> apply_kubernetes(const Environment& env, const std::string& hostname,
                              const std::string& full_name, Options& options) {
  const auto in_job = env(kJobIndex), in_group = env(kGroupIndex);
  if ((!in_job && !in_group) || !options.nnodes || !left_to_scheduler(options)) return false;
  const char* const source = in_job ? kJobIndex : kGroupIndex;
  auto number = parse_int(in_job ? *in_job : *in_group, 0, kMaxIndex, source);
  if (!number) return number.error();
  if (!options.node_rank) options.node_rank = {std::to_string(*number), source};
  if (options.rdzv || options.master_addr) return true;
  const std::string index = std::to_string(*number);
  std::string leader = leader_in_job(index, hostname, full_name);
  if (!in_job) leader = *number == 0 ? hostname : env(kGroupLeader).value_or("");
  if (leader.empty() && !in_job) {
    return refuse("{} is {}, but {} is not set; say --rdzv", source, index, kGroupLeader);
  }
  if (leader.empty()) {
    return refuse(
        "{} is {}, but this pod's name '{}' is not one that leads to pod 0: its Job needs a "
        "headless Service and its template that subdomain (dlaunch --emit kubernetes writes both), "
        "or say --rdzv",
        source, index, full_name);
  }
  options.rdzv = {"tcp://" + to_string(Endpoint{leader, kKubernetesPort}), source};
  return true;
}

}  // namespace dlaunch
