// run_job: executes a Plan on this node and returns dlaunch's exit code. Spawns the workers,
// supervises them, relays signals, ends the job in good order and prints the report.
#pragma once

#include "launcher/job_dir.h"
#include "launcher/job_journal.h"
#include "launcher/office.h"
#include "launcher/plan/plan.h"
#include "launcher/process/keeper.h"

namespace dlaunch {

int run_job(const Plan& plan);

// Leads a job until it is over; the exit code. Where we are is announced by the office; nullopt:
// that is lost, and somebody else leads. was: of a job that had begun under another leader, or this
// one before it was started again, and goes on. office: nullptr where no journal is kept.
std::optional<int> lead_job(const Plan& plan, std::optional<JobJournal> was, const JobDir& job_dir,
                            UniqueFd signals, const OriginalSignals& original, Office* office);

}  // namespace dlaunch
