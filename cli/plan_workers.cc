#include <algorithm>
#include <set>

#include "base/nearest.h"
#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

// torchrun gives a script to python; mpirun executes what is executable. Both are met: only a
// file.py that the system could not execute by that name gets a python3.
bool needs_python(const PlanDraft& draft, const std::string& word) {
  if (draft.options.no_python || !word.ends_with(".py")) return false;
  const std::string& chdir = draft.plan().chdir;
  const bool relative = word[0] != '/' && !chdir.empty();
  const FileKind kind = draft.machine.file_kind(relative ? chdir + "/" + word : word);
  const bool by_path = word.find('/') != std::string::npos;
  return kind == FileKind::plain || (kind == FileKind::executable && !by_path);
}

// An empty PYTHON_EXEC counts as not set.
std::string python_of(const Machine& machine) {
  const std::string said = machine.environment("PYTHON_EXEC").value_or("");
  return said.empty() ? "python3" : said;
}

Result<void> plan_argv(PlanDraft& draft) {
  const Options& options = draft.options;
  const auto& program = options.program;
  if (program.empty()) {
    return options.module ? refuse("no module given: dlaunch -m MODULE [argument ...]")
                          : refuse("no program given: dlaunch [options] program [argument ...]");
  }
  if (program[0].empty()) return refuse("the program's name is empty");
  auto& argv = draft.plan().argv;
  if (options.module && options.no_python) {
    return refuse("{} and {} contradict each other", options.module.source,
                  options.no_python.source);
  }
  if (options.module && options.run_path) {
    return refuse("{} and {} contradict each other", options.module.source,
                  options.run_path.source);
  }
  // What runpy.run_path does for torchrun's --run-path, Python does for a script that it is given:
  // its __name__ is __main__ and sys.argv is its own.
  if (options.module || options.run_path || needs_python(draft, program[0])) {
    argv.push_back(python_of(draft.machine));
    argv.push_back("-u");  // or lines would stay in Python's buffer until a worker ends
    if (options.module) argv.push_back("-m");
  }
  argv.insert(argv.end(), program.begin(), program.end());
  const auto colon = std::find(program.begin() + 1, program.end(), ":");
  if (colon != program.end() && colon + 1 != program.end() && (colon + 1)->starts_with('-')) {
    draft.built.warnings.push_back(
        "':' and what follows are arguments of the program: a job runs one program, which may do "
        "something else on each RANK");
  }
  return {};
}

Result<void> plan_env(PlanDraft& draft) {
  static const std::set<std::string_view> each_has_its_own = {"RANK",
                                                              "LOCAL_RANK",
                                                              "ROLE_RANK",
                                                              "HOROVOD_RANK",
                                                              "HOROVOD_LOCAL_RANK",
                                                              "OMPI_COMM_WORLD_RANK",
                                                              "OMPI_COMM_WORLD_LOCAL_RANK",
                                                              "PMI_RANK",
                                                              "PMI_FD"};
  if (!draft.gpu_list.empty()) {
    draft.plan().env.emplace_back("CUDA_VISIBLE_DEVICES", draft.gpu_list);
  }
  for (const std::string& item : draft.options.env.values) {
    const auto equals = std::min(item.find('='), item.size());
    const std::string name = item.substr(0, equals);
    if (name.empty()) return refuse("{}: '{}' has no name", draft.options.env.source, item);
    if (each_has_its_own.contains(name)) {
      return refuse("{} {}: each worker has its own, which dlaunch gives it; leave it out",
                    draft.options.env.source, name);
    }
    if (equals < item.size()) {
      draft.plan().env.emplace_back(name, item.substr(equals + 1));
    } else if (auto ours = draft.machine.environment(name)) {
      draft.plan().env.emplace_back(name, *ours);
    } else {
      draft.built.warnings.push_back(fmt::format(
          "{} {}: it is not set here, so it is not passed on", draft.options.env.source, name));
    }
  }
  return {};
}

}  // namespace

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
  for (const Core& core : cores) {
    objects.insert(kind == "numa" ? core.numa : kind == "socket" ? core.socket : core.l3);
  }
  return std::optional(static_cast<int>(objects.size()));
}

// How many there are of that kind on this host; none is an error. `why`: who asks.
Result<std::optional<int>> count_kind(PlanDraft& draft, std::string_view kind,
                                      const std::string& why) {
  if (kind == "auto" || kind == "cpu") return std::optional(draft.machine.cpus.usable());
  if (kind == "gpu") {
    if (auto done = draft.need_gpus(why); !done) return done.error();
    return std::optional(static_cast<int>(draft.gpus.size()));
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

// How many there are on this host.
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
  // What is on the command line comes before what a file or a variable asks for in other words.
  const bool typed = options.np.source.starts_with('-');
  if (*nproc && total && typed != options.nproc.source.starts_with('-')) {
    typed ? nproc->reset() : total.reset();
  }
  const int nodes = draft.plan().nodes.max;
  if (total && nodes > 1) {
    if (*total % nodes != 0) {
      return refuse("{} {}: that many workers cannot be shared out to {} hosts alike",
                    options.np.source, *total, nodes);
    }
    *total /= nodes;
  }
  if (*nproc && total && **nproc != *total && nodes > 1) {
    return refuse("{} asks for {} workers on each host and {} for {}", options.nproc.source,
                  **nproc, options.np.source, *total);
  }
  if (*nproc && total && **nproc != *total) {
    return refuse("{} asks for {} workers and {} for {}, on one machine these are the same",
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

// srun binds dlaunch, and with it the workers, to what one task gets: often a single CPU.
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
  if (auto done = plan_argv(draft); !done) return done.error();
  return plan_env(draft);
}

}  // namespace dlaunch
