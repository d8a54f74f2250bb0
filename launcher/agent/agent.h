// run_job: executes a Plan on this host and returns dlaunch's exit code. It spawns the workers,
// supervises them, relays signals, ends the job in good order and prints the report.
#pragma once

#include "launcher/lead/election/leader_lease.h"
#include "launcher/plan/plan.h"
#include "launcher/process/job_dir.h"
#include "launcher/process/keeper.h"
#include "launcher/wire/job_journal.h"

namespace dlaunch {

int run_job(Plan plan);

// Leads a job until it is over. Returns the exit code; nullopt: the lease is lost, and another
// dlaunch leads. was: the journal of a job that another leader began, or this one before it was
// restarted. lease: nullptr where no journal is kept.
std::optional<int> lead_job(const Plan& plan, std::optional<JobJournal> was, const JobDir& job_dir,
                            UniqueFd signals, const OriginalSignals& original, LeaderLease* lease);

}  // namespace dlaunch
