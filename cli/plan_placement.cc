#include <algorithm>
#include <set>
#include <string>

#include <fmt/ranges.h>

#include "base/text.h"
#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

using Policies = std::pair<std::string_view, BindPolicy>;

// mpirun's "core:overload-allowed": its qualifiers mean nothing here. Its hwthread and its caches
// within a core are shares of a core, which workers get whole.
Result<BindPolicy> policy_of(Text bind) {
  constexpr WordTable<BindPolicy, 7> kTheirs = {{{"l3cache", BindPolicy::l3},
                                                 {"package", BindPolicy::socket},
                                                 {"board", BindPolicy::none},
                                                 {"machine", BindPolicy::none},
                                                 {"hwthread", BindPolicy::core},
                                                 {"l1cache", BindPolicy::core},
                                                 {"l2cache", BindPolicy::core}}};
  for (const std::string_view qualifier :
       {"overload-allowed", "no-overload", "if-supported", "ordered", "REPORT", "report"}) {
    const auto at = bind.value->find(":" + std::string(qualifier));
    if (at != std::string::npos) bind.value->erase(at, qualifier.size() + 1);
  }
  return one_of(bind, kBindWords, kTheirs);
}

// torchrun binds workers to the CPUs near the GPU of their local rank.
Result<BindPolicy> numa_policy(const PlanDraft& draft) {
  const bool gpus = !draft.machine.gpus().empty();
  const auto policies =
      std::to_array<Policies>({{"node", gpus ? BindPolicy::gpu : BindPolicy::numa},
                               {"socket", BindPolicy::socket},
                               {"core-complex", BindPolicy::l3},
                               {"exclusive", gpus ? BindPolicy::gpu : BindPolicy::core}});
  return one_of(draft.options.numa_binding, policies);
}

Result<BindPolicy> asked_policy(const PlanDraft& draft) {
  const Options& options = draft.options;
  if (options.bind && options.numa_binding) {
    return refuse("{} and {} set the same thing", options.bind.source, options.numa_binding.source);
  }
  if (options.numa_binding) return numa_policy(draft);
  return options.bind ? policy_of(options.bind) : BindPolicy::none;
}

Result<void> plan_binding(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  const std::string& source = (options.bind ? options.bind : options.numa_binding).source;
  auto policy = asked_policy(draft);
  if (!policy) return policy.error();
  plan.bind = *policy;
  plan.report_bindings = options.report_bindings.on;
  if (plan.bind == BindPolicy::none && !plan.report_bindings) return {};
  if (auto done = draft.need_topology(); !done) return done.error();
  if (plan.bind == BindPolicy::gpu && plan.nproc > 0) {
    if (auto done = draft.need_gpus(source); !done) return done;
    plan.cpusets = bind_to_gpus(*draft.topology, plan.nproc, draft.gpus);
    const auto unknown = std::count(plan.cpusets.begin(), plan.cpusets.end(), std::vector<int>());
    if (unknown > 0) {
      draft.built.warnings.push_back(
          fmt::format("{} gpu: the CPUs near the GPU are not known for {} of {} workers; dlaunch "
                      "binds only the others",
                      source, unknown, plan.nproc));
    }
  } else if (plan.bind != BindPolicy::none && plan.nproc > 0) {
    plan.cpusets = bind_ranks(*draft.topology, plan.nproc, plan.bind);
  }
  if (plan.report_bindings) draft.built.bindings = draw_bindings(*draft.topology, plan.cpusets);
  return {};
}

bool user_sets(const PlanDraft& draft, std::string_view name) {
  const auto& env = draft.plan().env;
  return std::any_of(env.begin(), env.end(), [&](const auto& item) { return item.first == name; });
}

// If the driver reports no GPUs, each worker gets the GPU of its number, or of that number among
// the visible ones.
Result<void> number_gpus(PlanDraft& draft) {
  Plan& plan = draft.plan();
  std::string visible = draft.machine.environment("HIP_VISIBLE_DEVICES").value_or("");
  if (visible.empty()) visible = draft.machine.environment("CUDA_VISIBLE_DEVICES").value_or("");
  for (const auto name : split_words(visible, ',')) plan.gpus.emplace_back(name);
  if (plan.gpus.empty()) {
    for (int i = 0; i < plan.nproc; ++i) plan.gpus.push_back(std::to_string(i));
  }
  if (static_cast<int>(plan.gpus.size()) < plan.nproc) {
    return refuse("{}: {} workers need a GPU each, and {} are visible: {}",
                  draft.options.virtual_local_rank.source, plan.nproc, plan.gpus.size(), visible);
  }
  return {};
}

Result<void> plan_gpus(PlanDraft& draft) {
  const Options& options = draft.options;
  const Switch& isolate =
      options.virtual_local_rank ? options.virtual_local_rank : options.isolate_gpus;
  if (!isolate) return {};
  draft.plan().virtual_local_rank = options.virtual_local_rank.on;
  if (!draft.gpu_list.empty()) {
    return refuse("{} and {} set the same thing", isolate.source,
                  (options.include ? options.include : options.exclude).source);
  }
  if (user_sets(draft, "CUDA_VISIBLE_DEVICES")) {
    return refuse("{} and {} CUDA_VISIBLE_DEVICES set the same thing", isolate.source,
                  options.env.source_of("CUDA_VISIBLE_DEVICES"));
  }
  if (options.spares) {
    return refuse("{} and {} contradict each other: a spare has no GPU until it has a rank",
                  isolate.source, options.spares.source);
  }
  if (draft.plan().nproc == 0) return {};  // all workers are on other hosts
  // torchrun asks no driver for this option.
  if (options.virtual_local_rank && draft.machine.gpus().empty()) return number_gpus(draft);
  if (auto done = draft.need_gpus(isolate.source); !done) return done;
  for (const Gpu& gpu : draft.gpus) draft.plan().gpus.push_back(gpu.name);
  return {};
}

// The InfiniBand adapters that are near one of the job's GPUs here, if only some are near.
void plan_nics(PlanDraft& draft) {
  if (draft.gpus.empty()) return;
  const auto hcas = draft.machine.hcas();
  std::set<std::string> near;
  for (const Gpu& gpu : draft.gpus) {
    const auto its = hcas_near(gpu.bridges, gpu.cpus, hcas);
    if (its.empty()) return;  // this one needs the others
    near.insert(its.begin(), its.end());
  }
  const auto active =
      std::count_if(hcas.begin(), hcas.end(), [](const Hca& h) { return h.active; });
  if (near.size() < static_cast<std::size_t>(active)) {
    draft.plan().hcas = fmt::format("{}", fmt::join(near, ","));
  }
}

// A worker's share of all usable CPUs, but no more threads than the smallest cpuset has CPUs.
int share_of_cpus(const PlanDraft& draft) {
  int share = draft.machine.cpus.usable() / std::max(draft.plan().nproc, 1);
  for (const auto& cpus : draft.plan().cpusets) {
    share = std::min(share, static_cast<int>(cpus.size()));
  }
  return std::max(share, 1);
}

Result<void> plan_omp(PlanDraft& draft) {
  const Text& omp = draft.options.omp_threads;
  Plan& plan = draft.plan();
  if (user_sets(draft, "OMP_NUM_THREADS")) {
    if (omp) {
      return refuse("{} and {} OMP_NUM_THREADS set the same thing", omp.source,
                    draft.options.env.source_of("OMP_NUM_THREADS"));
    }
    return {};
  }
  if (omp && *omp == "keep") return {};
  if (omp && *omp != "auto") {
    auto number = parse_int(*omp, 1, 65536, omp.source);
    if (!number) return refuse("{}, auto or keep", number.error().what);
    plan.omp_threads = *number;
    return {};
  }
  if (!omp && !draft.machine.environment("OMP_NUM_THREADS").value_or("").empty()) return {};
  plan.omp_threads = share_of_cpus(draft);
  const int usable = draft.machine.cpus.usable();
  auto line =
      fmt::format("{} worker{} on {} usable CPU{}: OMP_NUM_THREADS={}", plan.nproc,
                  plan.nproc == 1 ? "" : "s", usable, usable == 1 ? "" : "s", *plan.omp_threads);
  // Warns a person who asked for too many workers, but not scripts, which cannot change it.
  const bool tell = plan.nproc > usable && draft.machine.stderr_is_terminal;
  (tell ? draft.built.warnings : draft.built.notes).push_back(std::move(line));
  return {};
}

}  // namespace

Result<void> plan_placement(PlanDraft& draft) {
  if (auto done = plan_binding(draft); !done) return done.error();
  if (auto done = plan_gpus(draft); !done) return done.error();
  plan_nics(draft);
  return plan_omp(draft);
}

}  // namespace dlaunch
