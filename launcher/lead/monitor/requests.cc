#include "launcher/lead/monitor/requests.h"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

constexpr Duration kSurveyLimit = std::chrono::seconds(1);

}  // namespace

void MonitorRequests::dump(int node, Slot slot, Stacks done, Duration limit) {
  const std::uint32_t request = ++last_;
  dumps_.emplace(request, Dump{node, std::move(done)});
  ask_(node, NodeDump{request, slot, limit});
}

void MonitorRequests::take(int node, const NodeStacks& stacks) {
  const auto it = dumps_.find(stacks.request);
  if (it == dumps_.end() || it->second.node != node) return;
  const Stacks done = std::move(it->second.done);
  dumps_.erase(it);
  done(stacks.pid, stacks.lines);
}

void MonitorRequests::ask_recorder(int node, Slot slot, Recorded done, bool in_haste) {
  const std::uint32_t request = ++last_;
  recorders_.emplace(request, Recorder{node, std::move(done)});
  ask_(node, NodeAskRecorder{request, slot, in_haste});
}

void MonitorRequests::take(int node, const NodeRecorded& recorded) {
  const auto it = recorders_.find(recorded.request);
  if (it == recorders_.end() || it->second.node != node) return;
  const Recorded done = std::move(it->second.done);
  recorders_.erase(it);
  done(recorded);
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

// Those that this node would have answered; they are forgotten.
template <class Pending>
std::vector<Pending> MonitorRequests::take_pending(std::map<std::uint32_t, Pending>& all,
                                                   int node) {
  std::vector<Pending> never;
  for (auto it = all.begin(); it != all.end();) {
    if (it->second.node == node) {
      never.push_back(std::move(it->second));
      it = all.erase(it);
    } else {
      ++it;
    }
  }
  return never;
}

void MonitorRequests::lost(int node) {
  for (const auto& dump : take_pending(dumps_, node)) {
    dump.done(0, {"its host was lost before it answered"});
  }
  for (const auto& recorder : take_pending(recorders_, node)) recorder.done({});
  std::vector<std::uint32_t> open;
  for (auto& [request, survey] : surveys_) {
    survey.awaited.erase(node);
    open.push_back(request);
  }
  for (const std::uint32_t request : open) finish_if_all_there(request);
}

}  // namespace dlaunch
