// The plan as --dry-run prints it: the job itself in full, other settings only if not the default.
#include <string.h>

#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/rank_set.h"
#include "base/text.h"
#include "base/units.h"
#include "elastic/rack_order.h"
#include "launcher/plan/plan.h"

namespace dlaunch {
namespace {

using Facts = PlanFacts;

const char* names_of(StreamSet streams) {
  static constexpr std::array kNames = {"nothing", "stdout", "stderr", "stdout and stderr"};
  return kNames[static_cast<std::size_t>(streams)];
}

std::string way_to(const NodesPlan& nodes) { return fmt::format("{}", fmt::join(nodes.ssh, " ")); }

Facts about_programs(const Plan& plan) {
  Facts lines;
  for (std::size_t number = 0; number < plan.programs.size(); ++number) {
    const JobProgram& program = plan.programs[number];
    const std::string name = fmt::format("program {}", number);
    Plan alone;
    alone.argv = program.argv;
    lines.emplace_back(name, fmt::format("{} {}: {}", program.ranks.size() == 1 ? "rank" : "ranks",
                                         format_rank_set(program.ranks), command_line(alone)));
    if (!program.chdir.empty()) lines.emplace_back(name + " folder", program.chdir);
    for (const auto& [key, value] : program.env) {
      lines.emplace_back(name + " env", key + "=" + shell_quoted(value));
    }
  }
  return lines;
}

Facts about_workers(const Plan& plan) {
  const NodesPlan& nodes = plan.nodes;
  Facts lines;
  if (nodes.hosts.empty()) {
    lines.emplace_back("workers", fmt::format("{} on {}", plan.nproc, plan.host));
  }
  if (!nodes.discovery.empty()) {
    lines.emplace_back("workers", fmt::format("{} on each of {} to {} hosts that {} lists, by {}",
                                              nodes.hosts.front().nproc, nodes.min, nodes.max,
                                              shell_quoted(nodes.discovery), way_to(nodes)));
  }
  for (const HostPlan& host : nodes.hosts) {
    if (host.name.empty()) continue;
    const std::string count = host.nproc == 0 ? "auto" : std::to_string(host.nproc);
    const std::string way = host.leads ? "" : ", by " + way_to(nodes);
    const std::string port = host.port ? fmt::format(":{}", *host.port) : "";
    lines.emplace_back("workers", fmt::format("{} on {}{}{}", count, host.name, port, way));
  }
  if (plan.role != Plan().role) lines.emplace_back("role", plan.role);
  for (const JobRole& role : plan.roles) {
    RankSet ranks;
    for (int i = 0; i < role.count; ++i) ranks.insert(role.first + i);
    lines.emplace_back("role " + role.name, "rank " + format_rank_set(ranks));
  }
  if (plan.framework == Framework::tensorflow) lines.emplace_back("framework", "tensorflow");
  if (plan.framework == Framework::none)
    lines.emplace_back("framework", word_of(kFrameworkWords, plan.framework));
  if (plan.in_place_of_horovod) lines.emplace_back("import horovod", "dlaunch.horovod");
  return lines;
}

std::string who_leads(const NodesPlan& nodes) {
  if (nodes.elects()) return "led by the host that is elected, by " + nodes.where_elected();
  static constexpr std::array kLeads = {"led by this one", "led by the first host",
                                        "led elsewhere"};
  return fmt::format("{}, at {}", kLeads[static_cast<std::size_t>(nodes.lead)], nodes.endpoint);
}

// "a, c in s1; b in s2; d in no rack": in the order of ranks, as far as the hosts have names here.
std::string order_of_hosts(const Plan& plan) {
  const NodesPlan& nodes = plan.nodes;
  std::vector<std::string> racks;
  for (std::size_t number = 0; number < nodes.hosts.size(); ++number) {
    const HostPlan& host = nodes.hosts[number];
    racks.push_back(
        nodes.rack_of(static_cast<int>(number), host.leads ? plan.host : host.name, ""));
  }
  std::vector<std::pair<std::string, std::string>> groups;  // a rack, and its hosts
  for (const int number : order_by_rack(racks)) {
    const auto at = static_cast<std::size_t>(number);
    if (groups.empty() || groups.back().first != racks[at]) {
      groups.emplace_back(racks[at], nodes.hosts[at].name);
    } else {
      groups.back().second += ", " + nodes.hosts[at].name;
    }
  }
  std::string text;
  for (const auto& [rack, hosts] : groups) {
    text +=
        fmt::format("{}{} in {}", text.empty() ? "" : "; ", hosts, rack.empty() ? "no rack" : rack);
  }
  return text;
}

Facts about_racks(const Plan& plan) {
  const NodesPlan& nodes = plan.nodes;
  Facts lines;
  if (!nodes.topology.empty()) lines.emplace_back("topology", nodes.topology);
  if (!nodes.rack.empty()) lines.emplace_back("rack", nodes.rack);
  const bool named = !nodes.hosts.empty() && nodes.discovery.empty();
  if (named && !nodes.racks.empty()) lines.emplace_back("order of hosts", order_of_hosts(plan));
  return lines;
}

Facts about_hosts(const Plan& plan) {
  const NodesPlan& nodes = plan.nodes;
  const Plan usual;
  Facts lines;
  if (nodes.max > 1 && nodes.hosts.empty()) {
    lines.emplace_back("hosts",
                       fmt::format("{} to {}, {}", nodes.min, nodes.max, who_leads(nodes)));
  }
  if (nodes.rank >= 0 && nodes.hosts.empty()) {
    lines.emplace_back("number of this host", std::to_string(nodes.rank));
  }
  if (nodes.logins != usual.nodes.logins) {
    lines.emplace_back("logins at the same time", std::to_string(nodes.logins));
  }
  if (nodes.tree != usual.nodes.tree) {
    lines.emplace_back("logins by started hosts", std::string(word_of(kSshTreeWords, nodes.tree)));
  }
  if (nodes.several() && plan.min_nproc < kMaxWorkers) {
    lines.emplace_back("fewest workers", std::to_string(plan.min_nproc));
  }
  if (nodes.host_timeout != usual.nodes.host_timeout) {
    lines.emplace_back("host time-out", format_duration(nodes.host_timeout));
  }
  if (plan.join_timeout != usual.join_timeout) {
    lines.emplace_back("join time-out", format_duration(plan.join_timeout));
  }
  if (!nodes.journal.empty()) lines.emplace_back("journal", nodes.journal);
  return lines;
}

Facts about_sites(const Plan& plan) {
  const SitesPlan& sites = plan.sites;
  if (sites.list.empty()) return {};
  const SitesPlan usual;
  Facts lines = {{"sites", to_string(sites.list)}, {"site", sites.own}};
  const auto time = [&](const char* key, Duration SitesPlan::*which) {
    if (sites.*which != usual.*which) lines.emplace_back(key, format_duration(sites.*which));
  };
  time("site grace", &SitesPlan::grace);
  time("site time-out", &SitesPlan::timeout);
  time("site wait", &SitesPlan::wait);
  time("site linger", &SitesPlan::linger);
  if (!sites.journal.empty()) lines.emplace_back("site journal", sites.journal);
  return lines;
}

Facts about_connections(const Plan& plan) {
  const std::string port =
      plan.master_port == 0 ? "reserved at start" : std::to_string(plan.master_port);
  Facts lines = {{"store", "tcp://" + plan.store_listen},
                 {"master", plan.master_addr + ":" + port},
                 {"transport", std::string(word_of(kTransportWords, plan.transport))}};
  if (plan.verify != VerifyMode::off)
    lines.emplace_back("verify", word_of(kVerifyWords, plan.verify));
  if (plan.debug != DebugOutput::none)
    lines.emplace_back("debug", word_of(kDebugWords, plan.debug));
  if (!plan.interface.empty()) lines.emplace_back("interface", plan.interface);
  if (!plan.port_range.empty()) lines.emplace_back("ports", plan.port_range);
  if (plan.tls) lines.emplace_back("connections", "TLS 1.3");
  if (!plan.secret_file.empty()) lines.emplace_back("secret", plan.secret_file);
  if (!plan.key_file.empty()) lines.emplace_back("secret", "made of " + plan.key_file);
  return lines;
}

std::string chaos_of(const ChaosConfig& chaos) {
  std::vector<std::string> ills;
  for (const auto& [name, ill] :
       {std::pair("kill", &chaos.kill), {"stop", &chaos.stop}, {"slow", &chaos.slow}}) {
    if (ill->every == Duration::zero()) continue;
    ills.push_back(fmt::format("{} every {}", name, format_duration(ill->every)));
    if (ill != &chaos.kill) ills.back() += " for " + format_duration(ill->lasts);
  }
  if (chaos.seed != ChaosConfig().seed) ills.push_back(fmt::format("seed {}", chaos.seed));
  return fmt::format("{}", fmt::join(ills, ", "));
}

Facts about_restarts(const Plan& plan) {
  Facts lines = {{"restarts", format_restart_limit(plan.max_restarts)}};
  if (plan.restart_scope != RestartScope::automatic) {
    lines.emplace_back("restart scope", word_of(kRestartScopeWords, plan.restart_scope));
  }
  if (!plan.final_exit_codes.empty()) {
    lines.emplace_back("no restart after", "exit codes " + format_rank_set(plan.final_exit_codes));
  }
  if (plan.same_failures != Plan().same_failures) {
    lines.emplace_back("same failure",
                       plan.same_failures == 0
                           ? "ends nothing before the restarts are used"
                           : fmt::format("{} times ends the job", plan.same_failures));
  }
  if (plan.spares > 0) lines.emplace_back("spares", std::to_string(plan.spares));
  if (!plan.nodes.several() && plan.min_nproc < plan.max_nproc) {
    lines.emplace_back("sizes", fmt::format("{} to {}", plan.min_nproc, plan.max_nproc));
  }
  return lines;
}

Facts about_watch(const Plan& plan) {
  const Plan usual;
  Facts lines;
  const auto limit = [&](const char* key, Duration Plan::*which) {
    if (plan.*which == usual.*which) return;
    const bool never = plan.*which == Duration::max();
    lines.emplace_back(key, never ? "never" : format_duration(plan.*which));
  };
  limit("hang warning", &Plan::hang_warning);
  limit("hang time-out", &Plan::hang_timeout);
  if (plan.nccl_record != usual.nccl_record) {
    lines.emplace_back("NCCL record", word_of(kNcclRecordWords, plan.nccl_record));
  }
  if (!plan.trace.empty()) lines.emplace_back("trace", plan.trace);
  if (plan.goodput) lines.emplace_back("goodput", "in the report at the end");
  if (plan.straggler != usual.straggler)
    lines.emplace_back("stragglers", word_of(kStragglerWords, plan.straggler));
  if (plan.straggler_ratio != usual.straggler_ratio) {
    lines.emplace_back("straggler ratio", fmt::format("{}", plan.straggler_ratio));
  }
  limit("straggler window", &Plan::straggler_window);
  if (plan.chaos) lines.emplace_back("chaos", chaos_of(*plan.chaos));
  if (!plan.error_file.empty()) lines.emplace_back("error file", plan.error_file);
  if (!plan.metrics.empty()) lines.emplace_back("metrics", plan.metrics);
  if (!plan.run_dir.empty()) lines.emplace_back("run folder", plan.run_dir);
  if (!plan.events_file.empty()) lines.emplace_back("events", plan.events_file);
  if (!plan.health_check.empty()) {
    lines.emplace_back("health check", shell_quoted(plan.health_check));
  }
  return lines;
}

Facts about_debugging(const Plan& plan) {
  const DebugPlan& debugging = plan.debugging;
  Facts lines;
  if (!debugging.stopped.none()) {
    lines.emplace_back("stopped at their start", in_words(debugging.stopped));
  }
  if (!debugging.under.none()) {
    lines.emplace_back("debugger", debugging.on_failure ? "opens on the rank that fails"
                                                        : in_words(debugging.under));
  }
  if (debugging.on_failure) return lines;
  for (const auto& words : debugging.commands) {
    Plan alone;
    alone.argv = words;
    lines.emplace_back("debugger's command", command_line(alone));
  }
  return lines;
}

Facts about_times(const Plan& plan) {
  Facts lines = {{"grace", format_duration(plan.grace)}};
  if (plan.timeout > Duration::zero()) {
    lines.emplace_back("time-out", format_duration(plan.timeout));
  }
  if (plan.end_signal_after) {
    lines.emplace_back("end signal", fmt::format("SIG{} after {}", ::sigabbrev_np(plan.end_signal),
                                                 format_duration(*plan.end_signal_after)));
  }
  return lines;
}

Facts about_output(const Plan& plan) {
  const OutputPlan& output = plan.output;
  Facts lines = {{"output", std::string(word_of(kOutputWords, output.mode))}};
  if (!output.log_dir.empty()) lines.emplace_back("log folder", output.log_dir);
  if (output.tee != StreamSet::both) lines.emplace_back("also shown", names_of(output.tee));
  for (const auto& [rank, set] : output.tee_of) {
    lines.emplace_back(fmt::format("also shown of local rank {}", rank), names_of(set));
  }
  if (!output.prefix.empty()) lines.emplace_back("before each line", output.prefix);
  if (output.only_ranks) lines.emplace_back("shown ranks", format_rank_set(*output.only_ranks));
  if (output.bars != BarMode::first)
    lines.emplace_back("progress bars", word_of(kBarWords, output.bars));
  const bool chosen = !plan.quiet && output.mode != OutputMode::raw;  // not as a consequence
  if (chosen && output.progress != ProgressMode::automatic)
    lines.emplace_back("progress", word_of(kProgressWords, output.progress));
  if (output.tmux) lines.emplace_back("panes of tmux", "one for each rank");
  if (output.timestamps) lines.emplace_back("time stamps", "before each line");
  if (plan.quiet) lines.emplace_back("messages", "errors only");
  lines.emplace_back("stdin",
                     (plan.stdin_to == StdinPlan::one_rank ? "rank " : "") + stdin_of(plan));
  return lines;
}

Facts about_placement(const Plan& plan) {
  Facts lines = {{"bind", std::string(word_of(kBindWords, plan.bind))}};
  if (plan.omp_threads) lines.emplace_back("OMP_NUM_THREADS", std::to_string(*plan.omp_threads));
  for (const auto& [key, value] : plan.env) {
    lines.emplace_back("env", key + "=" + shell_quoted(value));
  }
  for (std::size_t rank = 0; rank < plan.cpusets.size(); ++rank) {
    if (plan.cpusets[rank].empty()) continue;
    lines.emplace_back(fmt::format("rank {}", rank),
                       fmt::format("cpus {}", fmt::join(plan.cpusets[rank], ",")));
  }
  for (std::size_t rank = 0; rank < plan.gpus.size(); ++rank) {
    lines.emplace_back(fmt::format("rank {}", rank), "GPU " + plan.gpus[rank]);
  }
  if (plan.virtual_local_rank) lines.emplace_back("LOCAL_RANK", "0 for all");
  if (!plan.hcas.empty()) lines.emplace_back("HCAs near GPUs", plan.hcas);
  return lines;
}

Facts about_job(const Plan& plan) {
  Facts lines = {{"job id", plan.job_id}};
  if (!plan.chdir.empty()) lines.emplace_back("working folder", plan.chdir);
  return lines;
}

}  // namespace

PlanFacts facts_of(const Plan& plan) {
  PlanFacts all = {{"command", command_line(plan)}};
  for (const auto part : {about_programs, about_workers, about_hosts, about_racks, about_sites,
                          about_job, about_connections, about_restarts, about_watch,
                          about_debugging, about_times, about_output, about_placement}) {
    for (auto& fact : part(plan)) all.push_back(std::move(fact));
  }
  return all;
}

std::string describe(const Plan& plan) {
  std::string out;
  for (const auto& [key, value] : facts_of(plan)) out += fmt::format("{}: {}\n", key, value);
  return out;
}

}  // namespace dlaunch
