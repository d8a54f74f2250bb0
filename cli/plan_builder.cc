#include "cli/plan_builder.h"

#include <algorithm>
#include <cctype>

#include "base/endpoint.h"
#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {

Result<void> PlanDraft::need_topology() {
  if (topology) return {};
  auto found = machine.topology();
  if (!found) return found.error();
  topology = std::move(*found);
  return {};
}

namespace {

// Sizes and restarts of programs that go on when a worker is lost.
Result<void> plan_elastic(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  plan.min_nproc = plan.max_nproc = plan.nproc;
  struct Row {
    const Text& option;
    int& field;
    int low, high;
  };
  for (const Row& row : {Row{options.spares, plan.spares, 0, 1024},
                         Row{options.min_nproc, plan.min_nproc, 1, plan.nproc},
                         Row{options.max_nproc, plan.max_nproc, plan.nproc, kMaxWorkers}}) {
    if (!row.option) continue;
    auto number = parse_int(*row.option, row.low, row.high, row.option.source);
    if (!number) return number.error();
    row.field = *number;
  }
  if (options.hang_timeout) {
    auto duration = parse_duration(*options.hang_timeout);
    if (!duration) return refuse("{}: {}", options.hang_timeout.source, duration.error().what);
    if (*duration > Duration::zero()) plan.hang_timeout = *duration;
  }
  if (options.straggler) {
    using enum StragglerMode;
    constexpr auto kModes = std::to_array<std::pair<std::string_view, StragglerMode>>(
        {{"off", off}, {"warn", warn}, {"restart", restart}, {"evict", evict}});
    auto mode = one_of(options.straggler, kModes);
    if (!mode) return mode.error();
    plan.straggler = *mode;
  }
  if (options.straggler_ratio) {
    auto ratio = parse_number(*options.straggler_ratio, 1.01, 100, options.straggler_ratio.source);
    if (!ratio) return ratio.error();
    plan.straggler_ratio = *ratio;
  }
  if (options.straggler_window) {
    auto window = parse_duration(*options.straggler_window);
    if (!window) return refuse("{}: {}", options.straggler_window.source, window.error().what);
    plan.straggler_window = *window;
  }
  if (options.chaos) {
    auto chaos = parse_chaos(*options.chaos, options.chaos.source);
    if (!chaos) return chaos.error();
    plan.chaos = *chaos;
  }
  if (options.no_restart_codes) {
    auto codes = parse_rank_set(*options.no_restart_codes, 256);
    if (!codes) return refuse("{}: {}", options.no_restart_codes.source, codes.error().what);
    plan.final_exit_codes = std::set<int>(codes->begin(), codes->end());
  }
  if (options.restart_scope) {
    using enum RestartScope;
    constexpr auto kScopes = std::to_array<std::pair<std::string_view, RestartScope>>(
        {{"auto", automatic}, {"worker", worker}, {"node", node}, {"job", job}});
    auto scope = one_of(options.restart_scope, kScopes);
    if (!scope) return scope.error();
    plan.restart_scope = *scope;
  }
  return {};
}

}  // namespace

Result<void> plan_endings(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  for (const auto& [option, field] :
       {std::pair(&options.grace, &plan.grace), std::pair(&options.timeout, &plan.timeout),
        std::pair(&options.join_timeout, &plan.join_timeout)}) {
    if (!*option) continue;
    auto duration = parse_duration(**option);
    if (!duration) return refuse("{}: {}", option->source, duration.error().what);
    *field = *duration;
  }
  if (options.monitor_interval) {
    auto unused = parse_duration(*options.monitor_interval);
    if (!unused) return refuse("{}: {}", options.monitor_interval.source, unused.error().what);
    draft.built.notes.push_back(fmt::format("{}: not needed, the kernel tells when a worker ends",
                                            options.monitor_interval.source));
  }
  if (options.max_restarts) {
    auto limit = parse_restart_limit(*options.max_restarts, options.max_restarts.source);
    if (!limit) return limit.error();
    plan.max_restarts = *limit;
  }
  if (auto ok = plan_elastic(draft); !ok) return ok;
  if (options.error_file) {
    if (auto can = draft.machine.can_create(*options.error_file); !can) {
      return Error{.code = Errc::io,
                   .what = fmt::format("{}: {}", options.error_file.source, can.error().what)};
    }
    plan.error_file = *options.error_file;
  }
  return {};
}

namespace {

Result<void> plan_general(PlanDraft& draft) {
  const Options& options = draft.options;
  if (options.quiet && options.verbose) {
    return refuse("{} and {} contradict each other", options.quiet.source, options.verbose.source);
  }
  draft.plan().quiet = options.quiet.on;
  draft.plan().host = draft.machine.hostname;
  if (options.transport) {
    constexpr auto kTransports = std::to_array<std::pair<std::string_view, std::string_view>>(
        {{"auto", "auto"}, {"shm", "shm"}, {"tcp", "tcp"}});
    auto transport = one_of(options.transport, kTransports);
    if (!transport) return transport.error();
    draft.plan().transport = *transport;
  }
  draft.plan().interface = options.interface.value.value_or("");
  if (options.port_range) {
    auto ports = parse_port_range(*options.port_range);
    if (!ports) return refuse("{}: {}", options.port_range.source, ports.error().what);
    draft.plan().port_range = to_string(*ports);
  }
  return {};
}

}  // namespace

Result<BuiltPlan> build_plan(const Options& options, const Machine& machine) {
  PlanDraft draft{.options = options, .machine = machine};
  for (const auto part : {plan_general, plan_hosts, plan_workers, plan_rendezvous, plan_placement,
                          plan_output, plan_endings}) {
    if (auto done = part(draft); !done) return done.error();
  }
  return std::move(draft.built);
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
