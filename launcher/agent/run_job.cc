// Decides this dlaunch's part in its job: it leads, follows, or stands for election.
#include <fcntl.h>
#include <stdlib.h>

#include "base/exit_code.h"
#include "base/log.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/campaign.h"
#include "launcher/agent/follower.h"
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

}  // namespace

int run_job(const Plan& plan) {
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
