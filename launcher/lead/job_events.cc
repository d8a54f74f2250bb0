#include "launcher/lead/job_events.h"

#include <algorithm>
#include <utility>

#include "launcher/lead/report/report.h"

namespace dlaunch {
namespace {

constexpr Duration kCommitsTogether = std::chrono::milliseconds(100);

job_event::Ending how(const WorkerEnd& end) {
  if (!has_failed(end)) return job_event::Ending::well;
  return end.was_stopped() ? job_event::Ending::stopped : job_event::Ending::failed;
}

}  // namespace

void JobEvents::emit(const JobEvent& event) {
  emit_commits();
  sink_(event);
}

void JobEvents::emit_commits() {
  if (commits_ > 0) sink_(job_event::Commit{version_, std::exchange(commits_, 0), commits_round_});
}

void JobEvents::queued() { emit(job_event::Queued{plan_.host, command_line(plan_)}); }

void JobEvents::begins(const JobCore& job, const std::vector<std::string>& hosts,
                       const std::optional<JobRecord>& was) {
  used_ = job.restarts_used();
  if (was) {
    used_ = std::max(used_, was->restarts_used);
    size_ = static_cast<int>(was->members.size());
    emit(job_event::LeadTaken{plan_.host, was->round});
  } else {
    emit(job_event::JobStarted{.host = plan_.host,
                               .program = command_line(plan_),
                               .size = job.target_size(),
                               .min_size = job.min_size(),
                               .max_size = job.max_size(),
                               .spares = plan_.spares,
                               .max_restarts = plan_.max_restarts.restarts});
  }
  for (const auto& host : hosts) host_joined(host);
}

void JobEvents::observe(TimePoint now, const JobCore& job) {
  while (used_ < job.restarts_used()) {
    emit(job_event::Restart{.reason = std::exchange(reason_, {}).value_or(FailureKind::gave_up),
                            .round = job.round(),
                            .used = ++used_,
                            .left = job.restarts_left(now)});
  }
  if (job.state() != JobState::active) {
    if (round_ > 0 && !left_round_) left_round_ = now;
    return;
  }
  if (job.round() != round_) {
    job_event::Round round{.round = job.round(), .size = job.size(), .without = {}};
    if (left_round_) round.without = now - *left_round_;
    emit(round);
    if (size_ != 0 && size_ != job.size()) emit(job_event::Resize{job.round(), size_, job.size()});
    round_ = job.round();
    size_ = job.size();
    reason_.reset();  // a restart answers all failures of a round
  }
  left_round_.reset();
}

void JobEvents::fed(TimePoint now, const JobCore::Event& event, const JobCore& job) {
  observe(now, job);
  if (const auto* progress = std::get_if<JobCore::Progress>(&event)) {
    on(now, *progress, job);
  } else if (const auto* replace = std::get_if<JobCore::Replace>(&event)) {
    on(now, *replace, job);
  } else if (const auto* signal = std::get_if<JobCore::Signal>(&event)) {
    emit(job_event::Signal{signal->number});
  }
}

void JobEvents::on(TimePoint now, const JobCore::Progress& progress, const JobCore& job) {
  if (progress.version <= version_) return;
  version_ = progress.version;
  commits_round_ = job.round();
  ++commits_;
  if (last_commit_ && now - *last_commit_ < kCommitsTogether) return;
  last_commit_ = now;
  emit_commits();
}

// A replacement on purpose is free, so restarts_used() does not show it.
void JobEvents::on(TimePoint now, const JobCore::Replace& replace, const JobCore& job) {
  const bool charged = replace.kind == FailureKind::hung || replace.kind == FailureKind::lost;
  if (charged) return note_reason(replace.kind, false);
  emit(job_event::Restart{replace.kind, job.round() + 1, job.restarts_used(),
                          job.restarts_left(now)});
}

// The first failure that no other one explains.
void JobEvents::note_reason(FailureKind reason, bool consequence) {
  if (reason_ && (consequence || !reason_is_consequence_)) return;
  reason_ = reason;
  reason_is_consequence_ = consequence;
}

void JobEvents::starts(const JobCore::StartWorkers& start) {
  job_event::Start event{.round = start.round, .ranks = {}, .spares = 0, .all = start.all};
  for (const auto& place : start.places) {
    if (place.rank >= 0) event.ranks.insert(place.rank);
    if (place.rank < 0) ++event.spares;
  }
  emit(event);
}

void JobEvents::ended(const WorkerEnd& end, const JobCore& job) {
  job_event::WorkerEnded event{.how = how(end),
                               .kind = end.hung.empty() ? failure_kind(end) : FailureKind::hung,
                               .round = job.round(),
                               .rank = end.rank,
                               .pid = end.pid,
                               .host = end.host.empty() ? plan_.host : end.host,
                               .exit_code = end.exit_code,
                               .signal = end.signal,
                               .lost_peer = end.peer_lost,
                               .ran = end.ended - end.started};
  if (event.how == job_event::Ending::failed) note_reason(event.kind, end.peer_lost >= 0);
  emit(event);
}

void JobEvents::start_failed(int rank, const SpawnError& error) {
  emit(job_event::StartFailed{rank, error.what});
}

void JobEvents::host_joined(const std::string& host) { emit(job_event::HostJoined{host}); }

void JobEvents::host_lost(const std::string& host, int node, const JobCore& job) {
  const auto ranks = job.ranks_on(node);
  const job_event::HostLost event{.host = host, .ranks = {ranks.begin(), ranks.end()}};
  if (!event.ranks.empty()) note_reason(FailureKind::lost, false);
  emit(event);
}

void JobEvents::job_ended(int exit_code, const std::string& what, Duration ran,
                          const JobCore* job) {
  if (std::exchange(ended_, true)) return;
  emit(job_event::JobEnded{.exit_code = exit_code,
                           .round = job != nullptr ? job->round() : 0,
                           .restarts_used = job != nullptr ? job->restarts_used() : 0,
                           .ran = ran,
                           .what = what});
}

}  // namespace dlaunch
