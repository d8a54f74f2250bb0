#include "launcher/lead/monitor/requests.h"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

constexpr Duration kSurveyLimit = std::chrono::seconds(1);

void answer_lost(const MonitorRequests::Stacks& done) {
  done(0, {"its host was lost before it answered"});
}

void answer_lost(const MonitorRequests::Recorded& done) { done({}); }

}  // namespace

void MonitorRequests::dump(int node, Slot slot, Stacks done, Duration limit) {
  if (!is_here_(node)) return answer_lost(done);
  const std::uint32_t request = ++last_;
  dumps_[request] = {node, std::move(done)};
  ask_(node, NodeDump{request, slot, limit});
}

void MonitorRequests::take(int node, const NodeStacks& stacks) {
  const Stacks done = take_pending(dumps_, node, stacks.request);
  if (done) done(stacks.pid, stacks.lines);
}

void MonitorRequests::ask_recorder(int node, Slot slot, Recorded done, bool in_haste) {
  if (!is_here_(node)) return answer_lost(done);
  const std::uint32_t request = ++last_;
  recorders_[request] = {node, std::move(done)};
  ask_(node, NodeAskRecorder{request, slot, in_haste});
}

void MonitorRequests::take(int node, const NodeRecorded& recorded) {
  const Recorded done = take_pending(recorders_, node, recorded.request);
  if (done) done(recorded);
}

void MonitorRequests::survey(TimePoint now, const std::set<int>& nodes, bool gpus,
                             const Workers& done) {
  const std::uint32_t request = ++last_;
  surveys_.emplace(request, Survey{nodes, {}, done, now + kSurveyLimit});
  for (const int node : nodes) ask_(node, NodeSurvey{request, gpus});
  finish_if_all_there(request);
}

void MonitorRequests::take(int node, const NodeWorkers& workers) {
  const auto it = surveys_.find(workers.request);
  if (it == surveys_.end() || it->second.awaited.erase(node) == 0) return;
  it->second.answers[node] = workers;
  finish_if_all_there(workers.request);
}

void MonitorRequests::finish_if_all_there(std::uint32_t request) {
  const auto it = surveys_.find(request);
  if (it != surveys_.end() && it->second.awaited.empty()) finish(request);
}

void MonitorRequests::finish(std::uint32_t request) {
  const auto it = surveys_.find(request);
  if (it == surveys_.end()) return;
  const auto survey = std::move(it->second);
  surveys_.erase(it);
  survey.done(survey.answers);
}

std::optional<TimePoint> MonitorRequests::deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [request, survey] : surveys_) {
    next = std::min(next.value_or(kNever), survey.limit);
  }
  return next;
}

void MonitorRequests::on_clock(TimePoint now) {
  std::vector<std::uint32_t> late;
  for (const auto& [request, survey] : surveys_) {
    if (now >= survey.limit) late.push_back(request);
  }
  for (const std::uint32_t request : late) finish(request);
}

// The callback of this request, which is forgotten; empty: the node has no such request.
template <class Done>
Done MonitorRequests::take_pending(AllPending<Done>& all, int node, std::uint32_t request) {
  const auto it = all.find(request);
  if (it == all.end() || it->second.node != node) return {};
  return std::move(all.extract(it).mapped().done);
}

// Those that this node would have answered; they are forgotten.
template <class Done>
std::vector<Done> MonitorRequests::take_pending(AllPending<Done>& all, int node) {
  std::vector<Done> never;
  for (auto it = all.begin(); it != all.end();) {
    const auto one = it++;
    if (one->second.node == node) never.push_back(std::move(all.extract(one).mapped().done));
  }
  return never;
}

void MonitorRequests::lost(int node) {
  for (const Stacks& done : take_pending(dumps_, node)) answer_lost(done);
  for (const Recorded& done : take_pending(recorders_, node)) answer_lost(done);
  std::vector<std::uint32_t> open;
  for (auto& [request, survey] : surveys_) {
    survey.awaited.erase(node);
    open.push_back(request);
  }
  for (const std::uint32_t request : open) finish_if_all_there(request);
}

}  // namespace dlaunch
