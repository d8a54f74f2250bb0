#include "launcher/care/errands.h"

#include <utility>

namespace dlaunch {
namespace {

constexpr Duration kSurveyLimit = std::chrono::seconds(1);

}  // namespace

void Errands::dump(int node, Slot slot, Stacks done) {
  const std::uint32_t errand = ++last_;
  dumps_.emplace(errand, Dump{node, std::move(done)});
  ask_(node, NodeDump{errand, slot});
}

void Errands::take(int node, const NodeStacks& stacks) {
  const auto it = dumps_.find(stacks.errand);
  if (it == dumps_.end() || it->second.node != node) return;
  const Stacks done = std::move(it->second.done);
  dumps_.erase(it);
  done(stacks.pid, stacks.lines);
}

void Errands::survey(const std::set<int>& nodes, bool gpus, const Workers& done) {
  const std::uint32_t errand = ++last_;
  auto& survey =
      *surveys_.emplace(errand, std::make_unique<Survey>(loop_, nodes, done)).first->second;
  survey.limit.expires_after(kSurveyLimit);
  survey.limit.async_wait([this, errand](asio::error_code ec) {
    if (!ec) finish(errand);
  });
  for (const int node : nodes) ask_(node, NodeSurvey{errand, gpus});
  finish_if_all_there(errand);
}

void Errands::take(int node, const NodeWorkers& workers) {
  const auto it = surveys_.find(workers.errand);
  if (it == surveys_.end() || it->second->awaited.erase(node) == 0) return;
  it->second->answers[node] = workers;
  finish_if_all_there(workers.errand);
}

void Errands::finish_if_all_there(std::uint32_t errand) {
  const auto it = surveys_.find(errand);
  if (it != surveys_.end() && it->second->awaited.empty()) finish(errand);
}

void Errands::finish(std::uint32_t errand) {
  const auto it = surveys_.find(errand);
  if (it == surveys_.end()) return;
  const auto survey = std::move(it->second);
  surveys_.erase(it);
  survey->done(survey->answers);
}

void Errands::lost(int node) {
  std::vector<Stacks> never;
  for (auto it = dumps_.begin(); it != dumps_.end();) {
    if (it->second.node == node) {
      never.push_back(std::move(it->second.done));
      it = dumps_.erase(it);
    } else {
      ++it;
    }
  }
  for (const auto& done : never) done(0, {"its host was lost before it answered"});
  std::vector<std::uint32_t> open;
  for (auto& [errand, survey] : surveys_) {
    survey->awaited.erase(node);
    open.push_back(errand);
  }
  for (const std::uint32_t errand : open) finish_if_all_there(errand);
}

}  // namespace dlaunch
