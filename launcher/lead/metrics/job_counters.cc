#include "launcher/lead/metrics/job_counters.h"

#include <algorithm>

namespace dlaunch {
namespace {

// Adds what is more in `now` than in `before`; a tally never shrinks.
void add_news(std::vector<std::uint64_t>& sums, const std::vector<std::uint64_t>& now,
              const std::vector<std::uint64_t>& before, std::size_t classes) {
  sums.resize(classes);
  for (std::size_t i = 0; i < std::min(classes, now.size()); ++i) {
    const std::uint64_t was = i < before.size() ? before[i] : 0;
    sums[i] += now[i] - std::min(was, now[i]);
  }
}

void add_news(TallySums& sums, const TallySums& now, const TallySums& before) {
  add_news(sums.times, now.times, before.times, kTallyTimes);
  add_news(sums.rates, now.rates, before.rates, kTallyRates);
  sums.ns += now.ns - std::min(before.ns, now.ns);
  sums.bytes += now.bytes - std::min(before.bytes, now.bytes);
}

// Empty if there is none.
TallySums find_tally(const std::vector<TallySums>& all, const TallySums& like) {
  const auto found = std::ranges::find_if(all, [&](const TallySums& tally) {
    return tally.kind == like.kind && tally.size == like.size;
  });
  return found == all.end() ? TallySums() : *found;
}

}  // namespace

// A tally begins with 0 in each round of its process, and ranks may be in different rounds. A host
// that did not answer may do so next time: then the round of its ranks counts as 0.
void JobCounters::take(const JobStatus& status) {
  int oldest = status.round;
  for (const WorkerStatus& worker : status.workers) {
    const int round = worker.figures.round;
    if (worker.rank >= 0 || round > 0) oldest = std::min(oldest, round);
    if (worker.figures.tallies.empty()) continue;
    Seen& seen = seen_[{worker.host, worker.pid}];
    if (seen.round != round) seen = {round, {}};
    for (const TallySums& now : worker.figures.tallies) {
      if (now.kind >= kTallyKinds || now.size >= kTallySizeClasses) continue;
      add_news(tallies[{now.kind, now.size}], now, find_tally(seen.tallies, now));
    }
    seen.tallies = worker.figures.tallies;
  }
  std::erase_if(seen_, [=](const auto& process) { return process.second.round < oldest; });
}

void JobCounters::take(const JobEvent& event) {
  std::visit([this](const auto& what) { on(what); }, event);
}

void JobCounters::on(const job_event::WorkerEnded& event) {
  if (event.how == job_event::Ending::failed) ++failures[event.kind];
}

// Ranks may be other processes now.
void JobCounters::on(const job_event::Round&) {
  ++rounds;
  last_step.reset();
}

std::optional<double> JobCounters::wait_of(int rank) const {
  if (!last_step || rank < 0 || rank >= static_cast<int>(last_step->ranks.size())) return {};
  const auto latest = std::ranges::max_element(
      last_step->ranks, [](const RankTimes& a, const RankTimes& b) { return a.late < b.late; });
  return latest->late - last_step->ranks[static_cast<std::size_t>(rank)].late;
}

void JobCounters::on(const job_event::Commit& event) {
  commits += static_cast<std::uint64_t>(event.commits);
  version = event.version;
}

void JobCounters::on(const job_event::Straggler& event) {
  if (event.action == job_event::Straggler::Action::slow) ++stragglers;
}

void JobCounters::take(const StepTimes& step) {
  steps += static_cast<std::uint64_t>(std::max(step.steps, 0));
  last_step = step;
}

}  // namespace dlaunch
