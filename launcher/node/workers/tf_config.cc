#include "launcher/node/workers/tf_config.h"

#include "launcher/wire/json_text.h"

namespace dlaunch {
namespace {

constexpr const char* kWorker = "worker";
constexpr const char* kEvaluator = "evaluator";

}  // namespace

std::string tf_config(const std::vector<JobRole>& roles, int rank,
                      const std::vector<std::string>& peers) {
  if (rank < 0 || rank >= static_cast<int>(peers.size())) return "";
  nlohmann::ordered_json cluster, task;
  for (int peer = 0; peer < static_cast<int>(peers.size()); ++peer) {
    const JobRole* role = role_of(roles, peer);
    const std::string name = role != nullptr ? role->name : kWorker;
    const int index = role != nullptr ? peer - role->first : peer;
    if (name != kEvaluator) cluster[name].push_back(peers[static_cast<std::size_t>(peer)]);
    if (peer == rank) task = {{"type", name}, {"index", index}};
  }
  return json_text<nlohmann::ordered_json>({{"cluster", cluster}, {"task", task}});
}

}  // namespace dlaunch
