#include "launcher/node/workers/worker_env.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "base/contract.h"
#include "launcher/node/workers/tf_config.h"

namespace dlaunch {
namespace {

// The first rank's; debugpy's usual port.
constexpr int kFirstDebugPort = 5678;

// libdlring's own, dlring(3).
constexpr Duration kOwnPatience = std::chrono::seconds(5);

// Left by an enclosing launcher: a worker's MPI would try to join that job, or pin itself to that
// launcher's one core.
constexpr std::array kStalePrefixes = {"PMI_",
                                       "PMIX_",
                                       "PMI2_",
                                       "OMPI_",
                                       "PRTE_",
                                       "HYDRA_",
                                       "HYDI_",
                                       "SLURM_CPU_BIND",
                                       "SLURM_MEM_BIND",
                                       "HOROVOD_",
                                       "TORCHELASTIC_",
                                       contract::kAgent,
                                       contract::kHeartbeatFd,
                                       contract::kHeartbeatPipe,
                                       contract::kNcclKernels,
                                       contract::kWorker,
                                       contract::kRdzv,
                                       contract::kRound,
                                       contract::kRoundDir,
                                       contract::kTraced,
                                       contract::kSecretFile,
                                       contract::kJobId,
                                       contract::kLocalCores,
                                       contract::kSite,  // and kSites, kSiteGrace …
                                       contract::kTfConfig};
constexpr std::array kStaleNames = {"MPI_LOCALRANKID",    "MPI_LOCALNRANKS",      "SLURM_PROCID",
                                    "SLURM_LOCALID",      "JSM_JSRUN_PORT",       "FLUX_TASK_RANK",
                                    "FLUX_TASK_LOCAL_ID", "FLUX_PMI_LIBRARY_PATH"};
// Settings that users of those launchers may have made for the workers themselves.
constexpr std::array kKeptPrefixes = {"OMPI_MCA_",       "PMIX_MCA_",   "HOROVOD_FUSION",
                                      "HOROVOD_CYCLE",   "HOROVOD_LOG", "HOROVOD_STALL",
                                      "HOROVOD_TIMELINE"};
// mpirun's own data there: a program would look for that mpirun.
constexpr std::array kStaleSettings = {"OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix",
                                       "OMPI_MCA_initial_wdir"};

template <std::size_t N>
bool begins_with_any(std::string_view name, const std::array<const char*, N>& prefixes) {
  return std::ranges::any_of(prefixes,
                             [&](const char* prefix) { return name.starts_with(prefix); });
}

bool stale(std::string_view name) {
  if (begins_with_any(name, kStaleSettings)) return true;
  if (begins_with_any(name, kKeptPrefixes)) return false;
  return begins_with_any(name, kStalePrefixes) ||
         std::ranges::find(kStaleNames, name) != kStaleNames.end();
}

// NCCL takes no longer path of a plug-in.
constexpr std::size_t kLongestNcclPath = 254;

using Macro = std::pair<std::string_view, std::string>;

// Counted from 0 among the ranks that run the same program.
int rank_within_program(const Plan& plan, int rank) {
  if (plan.programs.empty()) return rank;
  const RankSet& ranks = plan.programs[static_cast<std::size_t>(plan.program_of(rank))].ranks;
  return static_cast<int>(std::distance(ranks.begin(), ranks.lower_bound(rank)));
}

std::vector<Macro> macros_of(const Plan& plan, const WorkerPlace& place) {
  return {{"${rank}", std::to_string(place.rank)},
          {"${program_rank}", std::to_string(rank_within_program(plan, place.rank))},
          {"${local_rank}", std::to_string(place.local_rank)},
          {"${world_size}", std::to_string(place.size)},
          {"${local_world_size}", std::to_string(place.local_size)},
          {"${node_rank}", std::to_string(place.node_rank)},
          {"${round}", std::to_string(place.round)},
          {"${master_addr}", place.master_addr},
          {"${master_port}", std::to_string(place.master_port)},
          {"${debug_port}", std::to_string(kFirstDebugPort + place.rank)},
          {"${host}", plan.host},
          {"${job_id}", plan.job_id}};
}

// "${master_addr}:${master_port}" is an endpoint, where an IPv6 address needs brackets.
std::string in_place(const Macro& macro, std::string_view rest) {
  const bool endpoint = macro.first == "${master_addr}" && rest.starts_with(':') &&
                        macro.second.find(':') != std::string::npos;
  return endpoint ? "[" + macro.second + "]" : macro.second;
}

// Two dollars before a macro stand for one, but nowhere else: for shells they are a process
// number.
std::string expand(const std::string& text, const Plan& plan, const WorkerPlace& place) {
  const std::vector<Macro> macros = macros_of(plan, place);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '$') {
      out += text[at++];
      continue;
    }
    const std::size_t last = std::min(text.find_first_not_of('$', at), text.size()) - 1;
    const std::size_t dollars = last + 1 - at;
    const auto macro = std::ranges::find_if(
        macros, [&](const Macro& m) { return text.compare(last, m.first.size(), m.first) == 0; });
    out.append(macro == macros.end() ? dollars : dollars / 2, '$');
    at = last + 1;
    if (macro == macros.end() || dollars % 2 == 0) continue;
    at = last + macro->first.size();
    out += in_place(*macro, std::string_view(text).substr(at));
  }
  return out;
}

using EnvByName = std::map<std::string, std::string>;

// A spare has no rank yet, and must not take one from an enclosing launcher.
void set_numbers(EnvByName& env, std::initializer_list<const char*> names, int rank) {
  for (const char* name : names) {
    env.erase(name);
    if (rank >= 0) env[name] = std::to_string(rank);
  }
}

void set_role(EnvByName& env, const Plan& plan, const WorkerPlace& place) {
  const JobRole* role = role_of(plan.roles, place.rank);
  env["ROLE_NAME"] = role != nullptr ? role->name : plan.role;
  set_numbers(env, {"ROLE_RANK"}, role != nullptr ? place.rank - role->first : place.rank);
  set_numbers(env, {"ROLE_WORLD_SIZE"}, role != nullptr ? role->count : place.size);
}

void set_torchrun(EnvByName& env, const Plan& plan, const WorkerPlace& place) {
  set_numbers(env, {"RANK"}, place.rank);
  set_numbers(env, {"LOCAL_RANK"}, place.local_rank);
  set_numbers(env, {"WORLD_SIZE"}, place.size);
  set_numbers(env, {"LOCAL_WORLD_SIZE"}, place.local_size);
  set_numbers(env, {"GROUP_RANK", "NODE_RANK"}, place.node_rank);
  set_numbers(env, {"GROUP_WORLD_SIZE"}, place.nodes);
  if (plan.virtual_local_rank && place.local_rank >= 0) env["LOCAL_RANK"] = "0";
  set_role(env, plan, place);
  env["MASTER_ADDR"] = place.master_addr;
  env["MASTER_PORT"] = std::to_string(place.master_port);
  env["TORCHELASTIC_RESTART_COUNT"] = std::to_string(place.round - 1);
  env["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(plan.max_restarts.restarts);
  env["TORCHELASTIC_RUN_ID"] = plan.job_id;
  // MASTER_PORT is the workers' own: their rank 0 serves the store there.
  env["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  env["TORCHELASTIC_ERROR_FILE"] = place.error_file;
  env.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
}

// Variables in which other launchers' scripts find their place.
void set_other_worlds(EnvByName& env, const WorkerPlace& place) {
  set_numbers(env, {"OMPI_COMM_WORLD_RANK", "HOROVOD_RANK"}, place.rank);
  set_numbers(env,
              {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK", "HOROVOD_LOCAL_RANK"},
              place.local_rank);
  set_numbers(env, {"OMPI_COMM_WORLD_SIZE", "HOROVOD_SIZE"}, place.size);
  set_numbers(env, {"OMPI_COMM_WORLD_LOCAL_SIZE", "HOROVOD_LOCAL_SIZE"}, place.local_size);
  set_numbers(env, {"HOROVOD_CROSS_RANK"}, place.node_rank);
  set_numbers(env, {"HOROVOD_CROSS_SIZE"}, place.nodes);
}

// An existing TF_CONFIG is the user's own, unless dlaunch gave it to an enclosing worker. A Python
// that imports TensorFlow copies DLAUNCH_TF_CONFIG to it (dlaunch_start.py).
void set_tensorflow(EnvByName& env, const Plan& plan, const WorkerPlace& place) {
  if (plan.framework == Framework::none) return;
  const std::string config = tf_config(plan.roles, place.rank, place.peers);
  if (config.empty()) return;
  const bool has_peers = place.size > 1 || !plan.roles.empty();
  if (plan.framework == Framework::tensorflow ||
      (plan.framework == Framework::tensorflow_if_possible && has_peers)) {
    env.emplace("TF_CONFIG", config);
  }
  if (has_peers) env[contract::kTfConfig] = config;
}

// Only if a server answers: a linked MPI library treats it as an invitation to a job.
void set_mpi(EnvByName& env, const WorkerPlace& place) {
  for (const auto& [name, value] : place.pmix) env[name] = value;
  if (place.pmi_fd < 0) return;
  env["PMI_FD"] = std::to_string(place.pmi_fd);
  set_numbers(env, {"PMI_RANK"}, place.rank);
  set_numbers(env, {"PMI_SIZE"}, place.size);
}

// It is a name, not an address or a network.
bool names_interface(const std::string& text) {
  const bool address = text.find_first_of(":/") != std::string::npos ||
                       text.find_first_not_of("0123456789.") == std::string::npos;
  return !text.empty() && !address;
}

// The interfaces on which NCCL looks for other hosts. It understands a name, but no address; a
// user's own choice stands. The same for all ranks of a host: NCCL merges their views of it.
void set_nics(EnvByName& env, const Plan& plan) {
  if (names_interface(plan.interface)) env.emplace("NCCL_SOCKET_IFNAME", "=" + plan.interface);
  if (!plan.hcas.empty()) env.emplace("NCCL_IB_HCA", "=" + plan.hcas);
}

// For hosts that may be silent for longer than libdlring waits by default; a user's own choice
// stands.
void set_patience(EnvByName& env, const Plan& plan) {
  if (plan.nodes.host_timeout <= kOwnPatience) return;
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(plan.nodes.host_timeout);
  env.emplace(contract::kLinkTimeout, std::to_string(seconds.count()));
}

// The ranks wait for one that a person debugs; a user's own limits stand.
void set_no_limits(EnvByName& env) {
  env.emplace(contract::kInitTimeout, "24h");
  env.emplace(contract::kOpTimeout, "0");
}

// PyTorch's Flight Recorder, for a look at a hang; a user's own choice stands, also under the older
// name of a setting. PyTorch makes the pipe only where a size is set, here its own default. The
// files are in the job's folder: those in a round's folder would go with the round, and a process
// may outlive its round.
void set_flight_recorder(EnvByName& env, const Plan& plan, const WorkerPlace& place) {
  const std::string folder = place.round_dir.substr(0, place.round_dir.rfind('/'));
  const bool watched = plan.hang_timeout != Duration::max() && !place.round_dir.empty();
  const auto set = [&](const char* name, const char* older, std::string_view file) {
    const auto given = env.find(name);
    // A job that a worker starts does not use the files of that worker's job.
    if (given != env.end() && given->second.ends_with(file)) env.erase(given);
    if (watched && !env.contains(older)) env.emplace(name, folder + std::string(file));
  };
  set("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/dlaunch_torch_dump.");
  set("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "", "/dlaunch_torch_pipe.");
  if (watched && !env.contains("TORCH_NCCL_TRACE_BUFFER_SIZE")) {
    env.emplace("TORCH_FR_BUFFER_SIZE", "2000");
  }
}

// A user's own plug-in stands; that of the job in which a worker starts this one does not.
void set_nccl_record(EnvByName& env, const Plan& plan, const WorkerPlace& place) {
  constexpr const char* kPlugin = "NCCL_PROFILER_PLUGIN";
  const auto given = env.find(kPlugin);
  if (given != env.end() && given->second.ends_with(kNcclProfilerFile)) env.erase(given);
  if (plan.nccl_record == NcclRecord::off || place.round_dir.empty()) return;
  if (place.nccl_profiler.empty() || place.nccl_profiler.size() > kLongestNcclPath) return;
  env.emplace(kPlugin, place.nccl_profiler);
  if (plan.nccl_record == NcclRecord::kernels) env[contract::kNcclKernels] = "1";
}

void set_sites(EnvByName& env, const SitesPlan& sites) {
  if (sites.list.empty()) return;
  const auto ms = [](Duration time) {
    return fmt::format("{}ms", std::chrono::ceil<std::chrono::milliseconds>(time).count());
  };
  env[contract::kSites] = to_string(sites.list);
  env[contract::kSite] = sites.own;
  env[contract::kSiteGrace] = ms(sites.grace);
  env[contract::kSiteTimeout] = ms(sites.timeout);
  env[contract::kSiteWait] = ms(sites.wait);
  env[contract::kSiteLinger] = ms(sites.linger);
  if (!sites.journal.empty()) env[contract::kSiteJournal] = sites.journal;
}

void set_own(EnvByName& env, const Plan& plan, const WorkerPlace& place) {
  env[contract::kJobId] = plan.job_id;
  env[contract::kRound] = std::to_string(place.round);
  env[contract::kAgent] = place.agent_socket;
  env[contract::kWorker] = std::to_string(place.worker);
  env[contract::kRdzv] = place.store_url;
  if (!place.secret_file.empty()) env[contract::kSecretFile] = place.secret_file;
  env[contract::kRoundDir] = place.round_dir;
  if (!plan.trace.empty()) env[contract::kTraced] = "1";
  if (place.heartbeat_fd >= 0) env[contract::kHeartbeatFd] = std::to_string(place.heartbeat_fd);
  if (place.heartbeat_pipe != 0) {
    env[contract::kHeartbeatPipe] = std::to_string(place.heartbeat_pipe);
  }
  env[contract::kTransport] = word_of(kTransportWords, plan.transport);
  env.erase(contract::kVerify);  // the option has read it, or stands for it
  if (plan.verify != VerifyMode::off) {
    env[contract::kVerify] = word_of(kVerifyWords, plan.verify);
  }
  if (plan.debug != DebugOutput::none) env[contract::kDebug] = word_of(kDebugWords, plan.debug);
  env.erase(contract::kRack);  // the leader has heard it from this host, or knows better
  if (!place.rack.empty()) env[contract::kRack] = place.rack;
  if (!plan.interface.empty()) env[contract::kInterface] = plan.interface;
  if (!plan.port_range.empty()) env[contract::kPortRange] = plan.port_range;
  env[contract::kTls] = plan.tls ? "1" : "0";  // whatever the user's own word is
  if (!plan.gpus.empty() && place.local_rank >= 0) {
    const auto at = static_cast<std::size_t>(place.local_rank) % plan.gpus.size();
    env["CUDA_VISIBLE_DEVICES"] = plan.gpus[at];
    // ROCm's programs read that one first.
    if (plan.virtual_local_rank && env.contains("HIP_VISIBLE_DEVICES")) {
      env["HIP_VISIBLE_DEVICES"] = plan.gpus[at];
    }
  }
  set_sites(env, plan.sites);
  set_nics(env, plan);
  set_patience(env, plan);
  if (plan.debugging.active()) set_no_limits(env);
  set_flight_recorder(env, plan, place);
  set_nccl_record(env, plan, place);
  env[contract::kLocalCores] = std::to_string(place.usable_cores);
  if (plan.omp_threads) env["OMP_NUM_THREADS"] = std::to_string(*plan.omp_threads);
  env.emplace("PYTHONUNBUFFERED", "1");  // lines appear when they are printed
}

// Drops the TF_CONFIG of a worker within which this dlaunch runs.
void drop_outer_tf_config(EnvByName& env, const std::vector<std::string>& inherited) {
  const auto own = env.find("TF_CONFIG");
  if (own == env.end()) return;
  const std::string outer = contract::kTfConfig + ("=" + own->second);
  if (std::ranges::find(inherited, outer) != inherited.end()) env.erase(own);
}

}  // namespace

std::vector<std::string> worker_environment(const Plan& plan, const WorkerPlace& place,
                                            const std::vector<std::string>& inherited) {
  EnvByName env;
  for (const auto& item : inherited) {
    const auto equals = item.find('=');
    if (equals == std::string::npos || stale(item.substr(0, equals))) continue;
    env[item.substr(0, equals)] = item.substr(equals + 1);
  }
  drop_outer_tf_config(env, inherited);
  set_torchrun(env, plan, place);
  set_tensorflow(env, plan, place);
  set_other_worlds(env, place);
  set_mpi(env, place);
  set_own(env, plan, place);
  for (const auto& [name, value] : plan.env) env[name] = expand(value, plan, place);
  if (!plan.programs.empty()) {
    const JobProgram& own = plan.programs[static_cast<std::size_t>(plan.program_of(place.rank))];
    for (const auto& [name, value] : own.env) env[name] = expand(value, plan, place);
  }
  if (!place.python_folder.empty()) {
    std::string& folders = env["PYTHONPATH"];
    folders = place.python_folder + (folders.empty() ? "" : ":") + folders;
  }
  std::vector<std::string> out;
  for (const auto& [name, value] : env) out.push_back(name + "=" + value);
  return out;
}

std::vector<std::string> worker_arguments(const Plan& plan, const WorkerPlace& place) {
  std::vector<std::string> argv;
  for (const auto& word : plan.command_of(place.rank)) argv.push_back(expand(word, plan, place));
  return argv;
}

}  // namespace dlaunch
