// Decides this dlaunch's part in its job: it leads, follows, or stands for election.
#include <fcntl.h>
#include <stdlib.h>

#include <optional>
#include <utility>

#include "base/exit_code.h"
#include "base/log.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/campaign.h"
#include "launcher/agent/follower.h"
#include "launcher/process/tmux_panes.h"
#include "rendezvous/appointed_leader.h"

namespace dlaunch {
namespace {

// Runs the agent of the host that the user made the leader; nullopt: another dlaunch leads.
std::optional<int> lead_or_follow(const Plan& plan, const JobDir& job_dir, UniqueFd signals,
                                  const OriginalSignals& original) {
  if (plan.nodes.journal.empty()) {
    return lead_job(plan, {}, job_dir, std::move(signals), original, nullptr);
  }
  LeaderLease lease(open_appointed_leader(plan.nodes.journal), -1);
  auto left = lease.read_journal();
  if (!left) {
    log_error("{}; --journal names another one", left.error().what);
    return kExitNoInput;
  }
  std::optional<JobJournal> was;
  if (!left->empty()) {
    auto journal = decode_job_journal(*left);
    if (!journal) {
      log_error("{}: {}", plan.nodes.journal, journal.error().what);
      return kExitBadInput;
    }
    was = std::move(*journal);
  }
  return lead_job(plan, std::move(was), job_dir, std::move(signals), original, &lease);
}

// The panes are made before we take care of orphans, as which tmux's server would end with us.
Result<TmuxPanes> open_panes(const JobDir& job_dir, Plan& plan) {
  auto panes = TmuxPanes::open(job_dir.path(), plan.job_id, plan.nproc);
  if (!panes) return panes;
  plan.output.panes = panes->terminals();
  plan.output.panes_at = panes->where();
  plan.env.insert(plan.env.begin(), {"TERM", panes->term()});  // --env may set another one
  return panes;
}

}  // namespace

int run_job(Plan plan) {
  if (auto ok = open_standard_descriptors(); !ok) {
    log_error("{}", ok.error().what);
    return kExitSystem;
  }
  const std::string folder = folder_for_jobs();
  const char* tmp = ::getenv("TMPDIR");
  if ((tmp == nullptr || *tmp == '\0') && folder != "/tmp" && !plan.quiet) {
    log_warn("/tmp cannot be written: the job's folder is in {} (TMPDIR sets another place)",
             folder);
  }
  auto job_dir = JobDir::make(folder);
  if (!job_dir) {
    log_error("{}", job_dir.error().what);
    return kExitCannotCreate;
  }
  std::optional<TmuxPanes> panes;
  if (plan.output.tmux) {
    auto opened = open_panes(*job_dir, plan);
    if (!opened) {
      log_error("{}", opened.error().what);
      job_dir->remove();
      return opened.error().code == Errc::not_found ? kExitNotFound : kExitSystem;
    }
    panes = std::move(*opened);
  }
  return run_kept(
      [&](UniqueFd signals, const OriginalSignals& original) {
        if (plan.nodes.elects()) {
          auto candidate = start_campaign(plan, original);
          if (!candidate) {
            log_error("{}", candidate.error().what);
            return static_cast<int>(kExitSystem);
          }
          Follower follower(plan, *job_dir, std::move(signals), original);
          follower.set_campaign(std::move(*candidate));
          return follower.run();
        }
        if (plan.nodes.lead != NodesPlan::Lead::no) {
          UniqueFd kept(::fcntl(signals.get(), F_DUPFD_CLOEXEC, 0));
          const auto led = lead_or_follow(plan, *job_dir, std::move(kept), original);
          if (led) return *led;
        }
        return Follower(plan, *job_dir, std::move(signals), original).run();
      },
      [&] { job_dir->remove(); });
}

}  // namespace dlaunch
