// Where the leader of hosts that were started by hand writes down what its successor has to know.
#include <unistd.h>

#include "base/endpoint.h"
#include "cli/plan_parts.h"
#include "rendezvous/appointed_leader.h"

namespace dlaunch {
namespace {

// In the user's own folder among those of jobs; the port tells jobs of one name apart.
std::string usual_journal(const PlanDraft& draft) {
  const auto tmp = draft.machine.environment("TMPDIR");
  const auto endpoint = parse_endpoint(draft.plan().nodes.endpoint);
  return fmt::format("{}/{}{}/{}-{}", tmp && !tmp->empty() ? *tmp : "/tmp", kJournalFolder,
                     ::geteuid(), draft.plan().job_id, endpoint ? endpoint->port : 0);
}

}  // namespace

Result<void> plan_journal(PlanDraft& draft) {
  const Text& journal = draft.options.journal;
  const Plan& plan = draft.plan();
  NodesPlan& nodes = draft.plan().nodes;
  const bool by_hand = !nodes.endpoint.empty() && nodes.hosts.empty() && !nodes.in_step;
  if (journal && (!by_hand || draft.joins)) {
    return refuse("{}: only hosts that are started by hand and meet by tcp:// need one",
                  journal.source);
  }
  if (journal && plan.max_restarts.restarts == 0) {
    return refuse("{}: a job without --max-restarts does not outlive its leader", journal.source);
  }
  const bool goes_on = by_hand && !draft.joins && plan.max_restarts.restarts > 0;
  if (!goes_on || nodes.lead == NodesPlan::Lead::no) return {};
  if (journal) {
    nodes.journal = (*journal).starts_with('/') ? *journal : "./" + *journal;
  } else if (!nodes.leader_returns) {  // a pod has no folder that outlives it
    nodes.journal = usual_journal(draft);
  }
  return {};
}

}  // namespace dlaunch
