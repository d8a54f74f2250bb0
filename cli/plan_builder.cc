#include "cli/plan_builder.h"

#include <algorithm>
#include <cctype>

#include "base/contract.h"
#include "base/endpoint.h"
#include "base/units.h"
#include "cli/plan_kubernetes.h"
#include "cli/plan_parts.h"

namespace dlaunch {

Result<void> PlanDraft::need_topology() {
  if (topology) return {};
  auto found = machine.topology();
  if (!found) return found.error();
  topology = std::move(*found);
  return {};
}

Result<void> PlanDraft::need_gpus(const std::string& why) {
  if (!gpus.empty()) return {};
  auto found = usable_gpus(machine.gpus(), machine.environment("CUDA_VISIBLE_DEVICES"));
  if (!found) return refuse("{}: {}", why, found.error().what);
  gpus = std::move(*found);
  plan().gpus_asked = static_cast<int>(gpus.size());
  if (!gpus.empty()) return {};
  return refuse("{}: there is no GPU here: {}", why,
                machine.gpus().empty() ? "/proc/driver/nvidia/gpus lists none"
                                       : "CUDA_VISIBLE_DEVICES hides them");
}

Result<void> set_duration(const Text& option, Duration& field) {
  if (!option) return {};
  auto duration = parse_duration(*option);
  if (!duration) return refuse("{}: {}", option.source, duration.error().what);
  field = *duration;
  return {};
}

// Four beats: fewer may be missing although the host is alive.
constexpr Duration kLeastHostTimeout = std::chrono::seconds(2);

// The leader makes the folder.
Result<void> plan_run_dir(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  if (!options.run_dir) return {};
  for (const auto& [option, field, name] :
       {std::tuple(&options.error_file, &plan.error_file, "error.json"),
        std::tuple(&options.events, &plan.events_file, "events.jsonl")}) {
    const std::string path = *options.run_dir + "/" + name;
    if (*option) {
      return refuse("{}: leave it out: {} has the same in {}", option->source,
                    options.run_dir.source, path);
    }
    *field = path;
  }
  plan.run_dir = *options.run_dir;
  return {};
}

Result<void> plan_endings(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  Duration unused{};
  for (const auto& [option, field] :
       {std::pair(&options.grace, &plan.grace), std::pair(&options.timeout, &plan.timeout),
        std::pair(&options.join_timeout, &plan.join_timeout),
        std::pair(&options.host_timeout, &plan.nodes.host_timeout),
        std::pair(&options.monitor_interval, &unused)}) {
    if (auto set = set_duration(*option, *field); !set) return set;
  }
  if (plan.nodes.host_timeout < kLeastHostTimeout) {
    return refuse("{}: {} is too short, the least is {}", options.host_timeout.source,
                  *options.host_timeout, format_duration(kLeastHostTimeout));
  }
  if (options.monitor_interval) {
    draft.built.notes.push_back(fmt::format("{}: not needed, the kernel tells when a worker ends",
                                            options.monitor_interval.source));
  }
  if (options.max_restarts) {
    auto limit = parse_restart_limit(*options.max_restarts, options.max_restarts.source);
    if (!limit) return limit.error();
    plan.max_restarts = *limit;
  }
  for (const auto part : {plan_journal, plan_elastic, plan_end_signal}) {
    if (auto done = part(draft); !done) return done;
  }
  for (const auto& [option, field] : {std::pair(&options.error_file, &plan.error_file),
                                      std::pair(&options.events, &plan.events_file)}) {
    if (!*option) continue;
    if (auto can = draft.machine.can_create(**option); !can) {
      return Error{.code = Errc::io,
                   .what = fmt::format("{}: {}", option->source, can.error().what)};
    }
    *field = **option;
  }
  return plan_run_dir(draft);
}

namespace {

Result<void> plan_general(PlanDraft& draft) {
  const Options& options = draft.options;
  if (options.quiet && options.verbose) {
    return refuse("{} and {} contradict each other", options.quiet.source, options.verbose.source);
  }
  draft.plan().quiet = options.quiet.on;
  draft.plan().host = draft.machine.hostname;
  if (auto set = set_word(options.transport, kTransportWords, draft.plan().transport); !set)
    return set;
  if (auto set = set_word(options.verify, kVerifyWords, draft.plan().verify); !set) return set;
  if (auto set = set_word(options.debug, kDebugWords, draft.plan().debug); !set) return set;
  draft.plan().tls = options.tls.on;
  if (options.port_range) {
    auto ports = parse_port_range(*options.port_range);
    if (!ports) return refuse("{}: {}", options.port_range.source, ports.error().what);
    draft.plan().port_range = to_string(*ports);
  }
  return {};
}

void place_in_flux(PlanDraft& draft, Options& options, FluxAllocation place) {
  if (place.step) {
    apply_flux(place, options);
    draft.flux = std::move(place);
    return;
  }
  BatchAllocation batch{.source = "FLUX_URI", .starter = Starter::flux};
  for (const std::string& host : place.hosts) batch.hosts.push_back({.host = host, .slots = 1});
  apply_batch(batch, options);
  draft.batch = std::move(batch);
}

// Takes the hosts from Kubernetes or a scheduler if no option names them. A dlaunch that a worker
// started is for this host alone.
Result<void> find_place(PlanDraft& draft, Options& options) {
  const Machine& machine = draft.machine;
  if (!left_to_scheduler(options) || machine.environment(contract::kRound)) return {};
  auto in_pod = apply_kubernetes(machine.environment, machine.hostname, machine.full_name, options);
  if (!in_pod) return in_pod.error();
  draft.in_pod = *in_pod;
  if (draft.in_pod) return {};
  auto flux = read_flux(machine.environment, machine.ask_flux);
  if (!flux) return flux.error();
  if (*flux) {
    place_in_flux(draft, options, std::move(**flux));
    return {};
  }
  auto place = read_slurm(machine.environment);
  if (!place) return place.error();
  draft.slurm = std::move(*place);
  if (draft.slurm) {
    apply_slurm(*draft.slurm, options);
    return {};
  }
  auto batch = read_batch(machine.environment, machine.read_file);
  if (!batch) return batch.error();
  draft.batch = std::move(*batch);
  if (draft.batch) apply_batch(*draft.batch, options);
  return {};
}

}  // namespace

Result<BuiltPlan> build_plan(const Options& given, const Machine& machine,
                             const NodesPlan* part_of) {
  Options options = given;
  PlanDraft draft{.options = options, .machine = machine};
  if (part_of == nullptr) {
    if (auto found = find_place(draft, options); !found) return found.error();
  }
  draft.built.notes = given.notes;
  draft.built.warnings = given.warnings;
  if (auto read = read_programs(machine, options); !read) return read.error();
  if (auto counted = count_roles(options); !counted) return counted.error();
  draft.joins = part_of != nullptr;
  if (draft.joins) draft.plan().nodes = *part_of;
  for (const auto part :
       {plan_general, plan_hosts, plan_nodes, plan_racks, plan_workers, plan_rendezvous, plan_sites,
        plan_framework, plan_placement, plan_output, plan_endings, plan_tmux, plan_debugging,
        check_programs, check_roles, plan_orders}) {
    if (auto done = part(draft); !done) return done.error();
  }
  draft.built.segments = options.segments;
  return std::move(draft.built);
}

LogLevel log_level_of(const Options& options) {
  if (options.quiet) return LogLevel::error;
  return options.verbose ? LogLevel::info : LogLevel::warn;
}

ExitCode exit_code_of(const Error& error) {
  switch (error.code) {
    case Errc::protocol:
      return kExitBadInput;
    case Errc::not_found:
      return kExitNoInput;
    case Errc::io:
      return kExitCannotCreate;
    default:
      return kExitUsage;
  }
}

}  // namespace dlaunch
