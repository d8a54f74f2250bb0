#include "cli/plan_kubernetes.h"

#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

constexpr const char* kIndex = "JOB_COMPLETION_INDEX";
constexpr int kMaxIndex = 65535;

// "train-12.train.default.svc" with 12 -> "train-0.train.default.svc"; "" if it is not called so.
std::string first_of(const std::string& name, const std::string& index) {
  const auto dot = name.find('.');
  const std::string end = "-" + index;
  if (dot == name.npos || !name.substr(0, dot).ends_with(end)) return "";
  return name.substr(0, dot - end.size()) + "-0" + name.substr(dot);
}

}  // namespace

Result<bool> apply_kubernetes(const Environment& env, const std::string& hostname,
                              const std::string& full_name, Options& options) {
  const auto index = env(kIndex);
  if (!index || !options.nnodes || !left_to_scheduler(options)) return false;
  auto number = parse_int(*index, 0, kMaxIndex, kIndex);
  if (!number) return number.error();
  if (!options.node_rank) options.node_rank = {std::to_string(*number), kIndex};
  if (options.rdzv || options.master_addr) return true;
  const std::string leader = *number == 0 ? hostname : first_of(full_name, std::to_string(*number));
  if (leader.empty()) {
    return refuse(
        "{} is {}, but this pod's name '{}' is not one that leads to pod 0: its Job needs a "
        "headless Service and its template that subdomain (dlaunch --emit kubernetes writes both), "
        "or say --rdzv",
        kIndex, *index, full_name);
  }
  options.rdzv = {"tcp://" + to_string(Endpoint{leader, kKubernetesPort}), kIndex};
  return true;
}

}  // namespace dlaunch
