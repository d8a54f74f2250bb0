#include <algorithm>
#include <set>

#include "base/nearest.h"
#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

constexpr std::string_view kKinds[] = {"auto", "cpu", "gpu", "numa", "socket", "l3",
                                       "core", "xpu", "hpu", "npu",  "mlu",    "musa"};

bool is_kind(std::string_view word) {
  return std::find(std::begin(kKinds), std::end(kKinds), word) != std::end(kKinds);
}

Result<std::optional<int>> count_objects(PlanDraft& draft, std::string_view kind) {
  if (auto done = draft.need_topology(); !done) return done.error();
  const auto& cores = draft.topology->cores;
  if (kind == "core") return std::optional(static_cast<int>(cores.size()));
  std::set<int> objects;
  for (const CpuCore& core : cores) {
    objects.insert(kind == "numa" ? core.numa : kind == "socket" ? core.socket : core.l3);
  }
  return std::optional(static_cast<int>(objects.size()));
}

// The number of that kind on this host; none is an error. `why`: the option that needs it.
Result<std::optional<int>> count_kind(PlanDraft& draft, std::string_view kind,
                                      const std::string& why) {
  if (kind == "auto" || kind == "cpu") return std::optional(draft.machine.cpus.usable());
  if (kind == "gpu") {
    if (auto done = draft.need_gpus(why); !done) return done.error();
    return std::optional(static_cast<int>(draft.gpus.size()));
  }
  if (kind.empty()) {
    return refuse("{} {}: a kind must follow the ':', as in 2:numa", why,
                  draft.options.nproc.value.value_or(""));
  }
  if (!is_kind(kind)) {
    return refuse(
        "{}: '{}' is not one of auto, gpu, numa, socket, l3, core, xpu, hpu, npu, mlu, "
        "musa{}",
        why, kind, did_you_mean(kind, kKinds));
  }
  const auto devices = draft.machine.accelerators(kind);
  if (!devices) return count_objects(draft, kind);
  if (*devices > 0) return std::optional(*devices);
  return refuse("{}: there is no {} here: the kernel shows no such device; give the number", why,
                kind);
}

}  // namespace

Result<std::optional<int>> asked_nproc(PlanDraft& draft) {
  const Text& nproc = draft.options.nproc;
  if (!nproc) return std::optional<int>();
  const auto colon = (*nproc).find(':');
  if (colon == std::string::npos) {
    if (is_kind(*nproc)) return count_kind(draft, *nproc, nproc.source);
    auto number = parse_int(*nproc, 1, kMaxWorkers, nproc.source);
    if (number) return std::optional(*number);
    return refuse("{}, auto, gpu, numa, socket, l3 or core{}", number.error().what,
                  did_you_mean(*nproc, kKinds));
  }
  auto each = parse_int((*nproc).substr(0, colon), 1, kMaxWorkers, nproc.source);
  if (!each) return each.error();
  auto count = count_kind(draft, (*nproc).substr(colon + 1), nproc.source);
  if (!count) return count.error();
  if (*each * **count > kMaxWorkers) {
    return refuse("{}: {} workers are more than {}", nproc.source, *each * **count, kMaxWorkers);
  }
  return std::optional(*each * **count);
}

namespace {

// The number of workers on this host.
Result<void> plan_count(PlanDraft& draft) {
  const Options& options = draft.options;
  auto nproc = asked_nproc(draft);
  if (!nproc) return nproc.error();
  std::optional<int> total;
  if (options.np) {
    auto number = parse_int(*options.np, 1, kMaxWorkers, options.np.source);
    if (!number) return number.error();
    total = *number;
  }
  // The command line wins over a file or a variable that asks in other words.
  const bool typed = options.np.source.starts_with('-');
  if (*nproc && total && typed != options.nproc.source.starts_with('-')) {
    typed ? nproc->reset() : total.reset();
  }
  const int nodes = draft.plan().nodes.max;
  if (total && nodes > 1) {
    if (*total % nodes != 0) {
      return refuse("{} {}: this is no multiple of {}, the number of hosts, which get equal shares",
                    options.np.source, *total, nodes);
    }
    *total /= nodes;
  }
  if (*nproc && total && **nproc != *total && nodes > 1) {
    return refuse("{} asks for {} workers on each host and {} for {}", options.nproc.source,
                  **nproc, options.np.source, *total);
  }
  if (*nproc && total && **nproc != *total) {
    return refuse("{} asks for {} workers and {} for {}; on one machine both must be the same",
                  options.nproc.source, **nproc, options.np.source, *total);
  }
  const int workers = nproc->value_or(total.value_or(draft.slots.value_or(1)));
  if (draft.max_slots && workers > *draft.max_slots) {
    return refuse("{} workers are more than max_slots={} in {}", workers, *draft.max_slots,
                  *options.hostfile);
  }
  if (draft.slots && workers > *draft.slots) {
    draft.built.notes.push_back(
        fmt::format("{} workers on {} slots of the host list", workers, *draft.slots));
  }
  draft.plan().nproc = workers;
  return {};
}

// srun binds dlaunch, and with it the workers, to one task's CPUs: often a single one.
void check_share(PlanDraft& draft) {
  const int cpus = draft.machine.cpus.affinity;
  const int workers = draft.plan().nproc;
  if (!draft.slurm || workers <= cpus || cpus > draft.slurm->cpus_here) return;
  draft.built.warnings.push_back(fmt::format(
      "{} workers share the {} that Slurm gave dlaunch here: ask for more with --cpus-per-task, "
      "of srun too, which does not take over sbatch's, or say --cpu-bind=none",
      workers, cpus == 1 ? "one CPU" : std::to_string(cpus) + " CPUs"));
}

}  // namespace

Result<void> plan_workers(PlanDraft& draft) {
  const Options& options = draft.options;
  if (draft.hosts.empty() && !draft.discovers) {
    if (auto done = plan_count(draft); !done) return done.error();
    check_share(draft);
    NodesPlan& nodes = draft.plan().nodes;
    if (!draft.joins) nodes.total = nodes.max * draft.plan().nproc;
  }
  if (options.chdir) draft.plan().chdir = *options.chdir;
  if (options.role) draft.plan().role = *options.role;
  draft.plan().in_place_of_horovod = options.horovod.on;
  return plan_programs(draft);
}

}  // namespace dlaunch
