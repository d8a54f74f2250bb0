#include "cli/plan_flux.h"

#include "base/endpoint.h"
#include "base/fnv1a.h"
#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

constexpr int kMaxTasks = 1 << 20;
constexpr std::string_view kFlorin = "\u0192";  // Flux's IDs begin with it, or with an f

Result<int> flux_number(const Environment& env, const char* name, int low) {
  const auto text = env(name);
  if (!text) {
    return refuse("Flux: {} is not set; {}", name, kWayOutOnEachHost);
  }
  return parse_int(*text, low, kMaxTasks, name);
}

Result<std::vector<std::string>> flux_hosts(const AskFlux& ask,
                                            const std::vector<std::string>& words) {
  const auto text = ask(words);
  if (!text) return refuse("{}; {}", text.error().what, kWayOut);
  const auto line = text->substr(0, text->find('\n'));
  auto hosts = parse_host_list(line);
  if (!hosts || hosts->empty()) {
    return refuse("Flux: '{}' is no list of hosts; {}", line, kWayOut);
  }
  std::vector<std::string> names;
  for (const HostEntry& host : *hosts) names.push_back(host.host);
  return names;
}

std::string name_of_job(const std::string& id) {
  const bool florin = id.starts_with(kFlorin);
  return "flux-" + (florin ? "f" + id.substr(kFlorin.size()) : id);
}

Result<FluxAllocation> read_step_of_flux(const Environment& env, const std::string& id,
                                         const AskFlux& ask) {
  const auto tasks = flux_number(env, "FLUX_JOB_SIZE", 1);
  const auto nodes = flux_number(env, "FLUX_JOB_NNODES", 1);
  const auto rank = flux_number(env, "FLUX_TASK_RANK", 0);
  for (const auto* number : {&tasks, &nodes, &rank}) {
    if (!*number) return number->error();
  }
  if (*tasks != *nodes) {
    return refuse(
        "Flux started {} dlaunch on {} host{}, and each host needs one, which starts the workers: "
        "say flux run -N{} -n{} --cores-per-task=CORES dlaunch --nproc N …, or dlaunch … in flux "
        "batch or flux alloc",
        *tasks, *nodes, *nodes == 1 ? "" : "s", *nodes, *nodes);
  }
  FluxAllocation allocation{.step = true, .number = *rank, .name = name_of_job(id)};
  Fnv1a hash;
  hash.add(allocation.name);
  allocation.port = static_cast<std::uint16_t>(kSlurmPorts + hash.value() % kSlurmPortCount);
  if (*nodes == 1) return allocation;
  auto hosts = flux_hosts(ask, {"jobs", "--no-header", "--format={nodelist}", id});
  if (!hosts) return hosts.error();
  if (static_cast<int>(hosts->size()) != *nodes || *rank >= *nodes) {
    return refuse(
        "Flux: FLUX_TASK_RANK {} does not number one of the {} hosts that flux jobs lists", *rank,
        hosts->size());
  }
  allocation.hosts = std::move(*hosts);
  return allocation;
}

}  // namespace

Result<std::optional<FluxAllocation>> read_flux(const Environment& env, const AskFlux& ask) {
  const auto id = env("FLUX_JOB_ID");
  const auto uri = env("FLUX_URI");
  if (id && !id->empty() && env("FLUX_TASK_RANK")) {
    auto step = read_step_of_flux(env, *id, ask);
    if (!step) return step.error();
    return std::optional(std::move(*step));
  }
  if (!uri || uri->empty()) return std::optional<FluxAllocation>();
  auto hosts = flux_hosts(ask, {"getattr", "hostlist"});
  if (!hosts) return hosts.error();
  return std::optional(FluxAllocation{.hosts = std::move(*hosts)});
}

void apply_flux(const FluxAllocation& allocation, Options& options) {
  const auto set = [](Text& option, std::string value, const char* source) {
    if (!option) option = {std::move(value), source};
  };
  if (!allocation.hosts.empty()) {
    set(options.nnodes, std::to_string(allocation.hosts.size()), "FLUX_JOB_NNODES");
    set(options.node_rank, std::to_string(allocation.number), "FLUX_TASK_RANK");
    if (!options.master_addr) {
      set(options.rdzv, "tcp://" + to_string(Endpoint{allocation.hosts.front(), allocation.port}),
          "FLUX_JOB_ID");
    }
  }
  set(options.job_id, allocation.name, "FLUX_JOB_ID");
}

}  // namespace dlaunch
