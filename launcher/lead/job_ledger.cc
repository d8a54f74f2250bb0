#include "launcher/lead/job_ledger.h"

#include <algorithm>

namespace dlaunch {

void JobLedger::see(TimePoint now, const JobCore::Event& event, const JobCore& job) {
  if (const auto* spawned = std::get_if<JobCore::Spawned>(&event)) {
    if (const int rank = job.rank_of(spawned->slot); rank >= 0) ledger_.started(now, rank);
  } else if (const auto* progress = std::get_if<JobCore::Progress>(&event)) {
    version_ = std::max(version_, progress->version);
    ledger_.committed(now);
  } else if (const auto* ready = std::get_if<JobCore::Ready>(&event)) {
    // The member holds a state that no commit has reported.
    if (ready->version > version_) ledger_.kept();
    version_ = std::max(version_, ready->version);
  } else if (const auto* replaced = std::get_if<JobCore::Replace>(&event)) {
    // Its own end may come later than the decision to end the job.
    const int rank = job.rank_of(replaced->slot);
    if (rank < 0 || !job.runs(replaced->slot)) return;
    replaced_.insert(replaced->slot);
    const bool hung = replaced->kind == FailureKind::hung && hung_since_;
    ledger_.failed(now, rank, job.are_tasks(), hung ? now - *hung_since_ : Duration::zero());
  } else if (const auto* lost = std::get_if<JobCore::NodeLost>(&event)) {
    std::erase_if(replaced_, [&](Slot slot) { return job.node_of(slot) == lost->node; });
    const auto ranks = job.ranks_on(lost->node);
    if (!ranks.empty()) ledger_.failed(now, ranks.front(), false);  // stands for all of them
  }
}

// No work was done since the hang began. The search for its cause, dumps of stacks for instance,
// takes longer on a busy host.
void JobLedger::hung(TimePoint now, Duration time) { hung_since_ = now - time; }

void JobLedger::ended(Slot slot, const WorkerEnd& end, const JobCore& job) {
  const bool was_replaced = replaced_.erase(slot) > 0;
  if (end.rank < 0) return;
  const bool ends = job.state() == JobState::ending || job.state() == JobState::ended;
  if (!has_failed(end) || ends) return ledger_.done(end.ended, end.rank);
  if (was_replaced) return;  // the order to replace it was the failure
  const int culprit = end.peer_lost >= 0 ? end.peer_lost : end.rank;
  ledger_.failed(end.ended, culprit, job.are_tasks());
}

void JobLedger::begin_round(TimePoint now, int round, int size) {
  ledger_.begin_round(now, round, size);
  links_.new_round();
  hung_since_.reset();
  ledger_.slow_links({});
}

std::map<int, double> JobLedger::measured(const StepTimes& step) {
  auto shares = links_.add(step);
  ledger_.slow_links(shares);
  return shares;
}

void JobLedger::take(TimePoint now, int node, const std::string& host, const NodeMessage& message) {
  if (const auto* books = std::get_if<NodeBooks>(&message)) {
    for (const RankSpans& report : books->ranks) {
      hosts_[report.rank] = host;
      ledger_.take(node, report);
    }
    ledger_.find_waits();
  } else if (const auto* seen = std::get_if<NodeSeen>(&message)) {
    for (const NodeRank& rank : seen->ranks) look(now, rank);
  }
}

// Hosts report at once when a worker is stopped or continued.
void JobLedger::look(TimePoint now, const NodeRank& rank) {
  if (is_held(rank.state)) {
    stopped_.try_emplace(rank.rank, now);
  } else if (const auto stopped = stopped_.extract(rank.rank)) {
    ledger_.stood(rank.rank, stopped.mapped(), now);
  }
}

Goodput JobLedger::at(TimePoint now, const std::vector<OpenWait>& open) const {
  Goodput goodput = ledger_.at(now, open);
  const bool several = std::ranges::any_of(
      hosts_, [this](const auto& entry) { return entry.second != hosts_.begin()->second; });
  for (Goodput::Cost& cost : goodput.costs) {
    const auto host = hosts_.find(cost.rank);
    if (several && host != hosts_.end()) cost.host = host->second;
  }
  return goodput;
}

}  // namespace dlaunch
