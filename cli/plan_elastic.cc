#include <algorithm>
#include <numeric>

#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

// The workers of the needed number of hosts, whichever hosts these are.
int fewest_workers(const Plan& plan) {
  std::vector<int> workers(static_cast<std::size_t>(plan.nodes.max), plan.nproc);
  for (std::size_t node = 0; node < plan.nodes.hosts.size(); ++node) {
    workers[node] = plan.nodes.nproc_of(node, plan.nproc);
  }
  std::sort(workers.begin(), workers.end());
  return std::accumulate(workers.begin(), workers.begin() + plan.nodes.min, 0);
}

// The limits of the number of workers.
Result<void> plan_sizes(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  const NodesPlan& nodes = plan.nodes;
  plan.min_nproc = plan.max_nproc = plan.nproc;
  if (nodes.several()) {
    if (options.max_nproc) {
      return refuse("{}: on several hosts a job grows by hosts: --nnodes MIN:MAX",
                    options.max_nproc.source);
    }
    // All workers at the start, however many each host has.
    plan.min_nproc = nodes.min < nodes.max ? fewest_workers(plan) : kMaxWorkers;
  }
  struct Row {
    const Text& option;
    int& field;
    int low, high;
  };
  for (const Row& row : {Row{options.spares, plan.spares, 0, 1024},
                         Row{options.min_nproc, plan.min_nproc, 1, draft.most_workers()},
                         Row{options.max_nproc, plan.max_nproc, plan.nproc, kMaxWorkers}}) {
    if (!row.option) continue;
    auto number = parse_int(*row.option, row.low, row.high, row.option.source);
    if (!number) return number.error();
    row.field = *number;
  }
  return {};
}

Result<void> plan_restarts(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  if (is_mistaken(options.no_restart_codes) && !options.max_restarts) {
    return refuse("{} has no effect without --max-restarts", options.no_restart_codes.source);
  }
  if (options.no_restart_codes) {
    auto codes = parse_rank_set(*options.no_restart_codes, 256);
    if (!codes) return refuse("{}: {}", options.no_restart_codes.source, codes.error().what);
    plan.final_exit_codes = std::set<int>(codes->begin(), codes->end());
  }
  if (is_mistaken(options.same_failure_limit) && !options.max_restarts) {
    return refuse("{} has no effect without --max-restarts", options.same_failure_limit.source);
  }
  if (options.same_failure_limit) {
    auto limit =
        parse_same_failures(*options.same_failure_limit, options.same_failure_limit.source);
    if (!limit) return limit.error();
    plan.same_failures = *limit;
  }
  return set_word(options.restart_scope, kRestartScopeWords, plan.restart_scope);
}

Result<void> plan_stragglers(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  if (auto set = set_word(options.straggler, kStragglerWords, plan.straggler); !set) return set;
  if (options.straggler_ratio) {
    auto ratio = parse_number(*options.straggler_ratio, 1.01, 100, options.straggler_ratio.source);
    if (!ratio) return ratio.error();
    plan.straggler_ratio = *ratio;
  }
  return set_duration(options.straggler_window, plan.straggler_window);
}

Result<void> plan_health(PlanDraft& draft) {
  const Text& check = draft.options.health_check;
  if (!check) return {};
  Plan& plan = draft.plan();
  if (!plan.nodes.several() || !plan.survives_losses()) {
    if (!is_mistaken(check)) return {};
    return refuse(
        "{} is for hosts that join a job that has begun: it has no effect without several of them "
        "and --max-restarts or --nnodes MIN:MAX",
        check.source);
  }
  plan.health_check = *check;
  return {};
}

}  // namespace

Result<void> plan_elastic(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  for (const auto part : {plan_sizes, plan_restarts, plan_stragglers}) {
    if (auto done = part(draft); !done) return done;
  }
  for (const auto& [option, limit] : {std::pair(&options.hang_timeout, &plan.hang_timeout),
                                      std::pair(&options.hang_warning, &plan.hang_warning)}) {
    if (auto set = set_duration(*option, *limit); !set) return set;
    if (*limit == Duration::zero()) *limit = Duration::max();
  }
  if (auto set = set_word(options.nccl_record, kNcclRecordWords, plan.nccl_record); !set)
    return set;
  if (options.chaos) {
    auto chaos = parse_chaos(*options.chaos, options.chaos.source);
    if (!chaos) return chaos.error();
    plan.chaos = *chaos;
  }
  return plan_health(draft);
}

}  // namespace dlaunch
