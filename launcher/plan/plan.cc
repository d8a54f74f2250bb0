#include "launcher/plan/plan.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/rank_set.h"
#include "base/text.h"
#include "base/units.h"
#include "base/version.h"

namespace dlaunch {
namespace {

std::string command_line(const Plan& plan) {
  std::string out;
  for (const auto& word : plan.argv) out += (out.empty() ? "" : " ") + shell_quoted(word);
  return out;
}

const char* name(OutputMode mode) {
  static constexpr const char* kNames[] = {"prefix", "merged", "raw", "files", "none"};
  return kNames[static_cast<int>(mode)];
}

const char* name(BindPolicy policy) {
  static constexpr const char* kNames[] = {"none", "core", "l3", "numa", "socket", "gpu"};
  return kNames[static_cast<int>(policy)];
}

using Facts = std::vector<std::pair<const char*, std::string>>;

std::string chaos_of(const ChaosConfig& chaos) {
  std::string text;
  for (const auto& [name, ill] :
       {std::pair("kill", &chaos.kill), {"stop", &chaos.stop}, {"slow", &chaos.slow}}) {
    if (ill->every == Duration::zero()) continue;
    text +=
        fmt::format("{}{} every {}", text.empty() ? "" : ", ", name, format_duration(ill->every));
  }
  return text;
}

Facts about_failures(const Plan& plan) {
  Facts lines;
  if (plan.spares > 0) lines.emplace_back("spares", std::to_string(plan.spares));
  if (!plan.nodes.several() && plan.min_nproc < plan.max_nproc) {
    lines.emplace_back("sizes", fmt::format("{} to {}", plan.min_nproc, plan.max_nproc));
  }
  if (plan.hang_timeout < Duration::max()) {
    lines.emplace_back("hang time-out", format_duration(plan.hang_timeout));
  }
  if (plan.chaos) lines.emplace_back("chaos", chaos_of(*plan.chaos));
  if (!plan.error_file.empty()) lines.emplace_back("error file", plan.error_file);
  return lines;
}

}  // namespace

std::string NodesPlan::where_elected() const {
  if (!etcd) return "the folder " + folder;
  std::string text;
  for (const auto& server : etcd->endpoints) {
    text += (text.empty() ? "etcd at " : ", ") + to_string(server);
  }
  return text;
}

std::string stdin_of(const Plan& plan) {
  if (plan.stdin_to == StdinPlan::none) return "none";
  return plan.stdin_to == StdinPlan::all ? "all" : std::to_string(plan.stdin_rank);
}

std::string what_must_agree(const Plan& plan) {
  const auto& nodes = plan.nodes;
  const std::string patience = nodes.host_timeout == NodesPlan().host_timeout
                                   ? ""
                                   : ", --host-timeout " + format_duration(nodes.host_timeout);
  return fmt::format("dlaunch {}, --nnodes {}:{}{}", DLAUNCH_VERSION, nodes.min, nodes.max,
                     patience);
}

std::string describe(const Plan& plan) {
  std::string out;
  auto line = [&](const char* key, const std::string& value) {
    out += fmt::format("{}: {}\n", key, value);
  };
  line("command", command_line(plan));
  if (plan.nodes.hosts.empty()) {
    line("workers", fmt::format("{} on {}", plan.nproc, plan.host));
  }
  if (!plan.nodes.discovery.empty()) {
    line("workers", fmt::format("{} on each of {} to {} hosts that {} lists, by {}",
                                plan.nodes.hosts.front().nproc, plan.nodes.min, plan.nodes.max,
                                shell_quoted(plan.nodes.discovery), plan.nodes.ssh.front()));
  }
  for (const HostPlan& host : plan.nodes.hosts) {
    if (host.name.empty()) continue;
    line("workers", fmt::format("{} on {}{}", host.nproc == 0 ? "auto" : std::to_string(host.nproc),
                                host.name, host.leads ? "" : ", by " + plan.nodes.ssh.front()));
  }
  if (plan.nodes.max > 1 && plan.nodes.hosts.empty()) {
    if (plan.nodes.elects()) {
      line("hosts", fmt::format("{} to {}, led by whoever is elected, by {}", plan.nodes.min,
                                plan.nodes.max, plan.nodes.where_elected()));
    }
    static constexpr const char* kLeads[] = {"led by this one", "led by whoever is first",
                                             "led elsewhere"};
    if (!plan.nodes.elects()) {
      line("hosts", fmt::format("{} to {}, {}, at {}", plan.nodes.min, plan.nodes.max,
                                kLeads[static_cast<int>(plan.nodes.lead)], plan.nodes.endpoint));
    }
  }
  if (!plan.nodes.journal.empty()) line("journal", plan.nodes.journal);
  line("job id", plan.job_id);
  if (!plan.chdir.empty()) line("working folder", plan.chdir);
  line("store", "tcp://" + plan.store_listen);
  line("master",
       plan.master_addr + ":" +
           (plan.master_port == 0 ? "reserved at start" : std::to_string(plan.master_port)));
  line("transport", plan.transport);
  if (!plan.interface.empty()) line("interface", plan.interface);
  if (!plan.port_range.empty()) line("ports", plan.port_range);
  if (plan.tls) line("connections", "TLS 1.3");
  line("restarts", format_restart_limit(plan.max_restarts));
  for (const auto& [key, value] : about_failures(plan)) line(key, value);
  if (!plan.health_check.empty()) line("health check", shell_quoted(plan.health_check));
  line("grace", format_duration(plan.grace));
  if (plan.timeout > Duration::zero()) line("time-out", format_duration(plan.timeout));
  line("output", name(plan.output.mode));
  if (!plan.output.log_dir.empty()) line("log folder", plan.output.log_dir);
  if (plan.output.only_ranks) line("shown ranks", format_rank_set(*plan.output.only_ranks));
  line("stdin", (plan.stdin_to == StdinPlan::one_rank ? "rank " : "") + stdin_of(plan));
  line("bind", name(plan.bind));
  if (plan.omp_threads) line("OMP_NUM_THREADS", std::to_string(*plan.omp_threads));
  for (const auto& [key, value] : plan.env) line("env", key + "=" + shell_quoted(value));
  for (std::size_t r = 0; r < plan.cpusets.size(); ++r) {
    if (!plan.cpusets[r].empty()) {
      line(fmt::format("rank {}", r).c_str(),
           fmt::format("cpus {}", fmt::join(plan.cpusets[r], ",")));
    }
  }
  for (std::size_t r = 0; r < plan.gpus.size(); ++r) {
    line(fmt::format("rank {}", r).c_str(), "GPU " + plan.gpus[r]);
  }
  if (!plan.hcas.empty()) {
    line("HCAs near GPUs", plan.hcas);
  }
  return out;
}

}  // namespace dlaunch
