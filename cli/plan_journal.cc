// The journal: the leader of hosts that were started by hand writes down what its successor needs,
// and a leader under Slurm what it needs itself after the job was requeued.
#include <unistd.h>

#include "base/endpoint.h"
#include "cli/plan_parts.h"
#include "launcher/process/job_dir.h"
#include "rendezvous/appointed_leader.h"

namespace dlaunch {
namespace {

// In the user's own folder in the folder for jobs; the port tells jobs of the same name apart.
std::string usual_journal(const PlanDraft& draft) {
  const auto tmp = draft.machine.environment("TMPDIR");
  const auto endpoint = parse_endpoint(draft.plan().nodes.endpoint);
  return fmt::format("{}/{}{}/{}-{}", tmp && !tmp->empty() ? *tmp : folder_for_jobs(),
                     kJournalFolder, ::geteuid(), draft.plan().job_id,
                     endpoint ? endpoint->port : 0);
}

}  // namespace

Result<void> plan_journal(PlanDraft& draft) {
  if (draft.joins) return {};
  Text journal = draft.options.journal;
  const Plan& plan = draft.plan();
  NodesPlan& nodes = draft.plan().nodes;
  const bool by_hand = !nodes.endpoint.empty() && nodes.hosts.empty() && !nodes.in_step();
  const bool by_slurm = draft.slurm && !by_hand && !nodes.elects();
  const bool restarts = plan.max_restarts.restarts > 0;
  if (!is_mistaken(journal) && !(restarts && (by_hand || by_slurm))) journal = {};
  if (journal && !by_hand && !by_slurm) {
    return refuse(
        "{}: only a job whose hosts Slurm starts, or whose hosts you start by hand and that meet "
        "by tcp://, writes a journal; leave it out",
        journal.source);
  }
  if (journal && !restarts) {
    return refuse("{}: a job without --max-restarts cannot continue from it; give --max-restarts",
                  journal.source);
  }
  if (!restarts || nodes.lead == NodesPlan::Lead::no) return {};
  if (journal) {
    nodes.journal = (*journal).starts_with('/') ? *journal : "./" + *journal;
    if (auto can = draft.machine.can_create(nodes.journal + "~"); !can) {
      return Error{.code = Errc::io,
                   .what = fmt::format("{}: {}", journal.source, can.error().what)};
    }
  } else if (by_hand && !nodes.leader_returns) {  // a pod has no persistent folder
    nodes.journal = usual_journal(draft);
  }
  if (journal && by_slurm) {
    nodes.slurm_job = draft.slurm->job;
    nodes.requeued = draft.slurm->requeued;
  }
  return {};
}

}  // namespace dlaunch
