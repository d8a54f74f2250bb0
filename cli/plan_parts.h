// The parts of build_plan, one file for each subject. Each judges its own options and writes its
// own fields of the plan; the order in build_plan matters: workers come first.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/endpoint.h"
#include "base/nearest.h"
#include "base/words.h"
#include "cli/plan_batch.h"
#include "cli/plan_builder.h"
#include "cli/plan_flux.h"
#include "cli/plan_slurm.h"
#include "launcher/plan/hostfile.h"

namespace dlaunch {

// What to do where a scheduler's variables are of no use.
inline constexpr const char* kWayOut = "give --standalone, or --hosts";
inline constexpr const char* kWayOutOnEachHost =
    "give --standalone, or --hosts, or --nnodes, --node-rank and --rdzv";

struct PlanDraft {
  const Options& options;
  const Machine& machine;
  bool joins = false;                    // a job with a leader elsewhere
  std::optional<SlurmAllocation> slurm;  // if Slurm chooses the hosts
  std::optional<FluxAllocation> flux;    // if Flux does, and started one dlaunch on each
  std::optional<BatchAllocation> batch;  // if another scheduler does, and we start the others
  bool in_pod = false;                   // of Kubernetes, which numbers all hosts
  BuiltPlan built;
  std::optional<Topology> topology;  // set on first use
  bool discovers = false;            // the list of hosts changes while the job runs
  std::vector<Gpu> gpus;             // set on first use
  std::vector<HostEntry> hosts;      // the named hosts, if they include others than this one
  std::optional<int> slots;          // of the hosts named; nullopt: no hosts named
  std::optional<int> max_slots;
  std::string gpu_list = {};                   // CUDA_VISIBLE_DEVICES from --include
  std::map<std::string, bool> own_names = {};  // cache of is_own()

  Plan& plan() { return built.plan; }
  const Plan& plan() const { return built.plan; }
  // Whether a listed host is this one. Each name is resolved once, because a server may be slow.
  bool is_own(const std::string& host) {
    const auto [own, fresh] = own_names.try_emplace(host);
    if (fresh) {
      own->second = (slurm && slurm->here == host) || machine.local_address(host).has_value();
    }
    return own->second;
  }
  // The workers that the job may have at the start, as far as known.
  int most_workers() const { return plan().nodes.total > 0 ? plan().nodes.total : kMaxWorkers; }
  Result<void> need_topology();
  // Error: there are none. `why`: the option that needs them.
  Result<void> need_gpus(const std::string& why);
};

Result<void> plan_hosts(PlanDraft& draft);  // --hosts …
// --include and --exclude, on the hosts of a list, or without a list on this machine.
Result<void> filter_hosts(PlanDraft& draft, std::vector<HostEntry>& hosts);
Result<void> filter_here(PlanDraft& draft);
Result<void> plan_nodes(PlanDraft& draft);       // how many hosts, and who leads
Result<void> plan_ssh(PlanDraft& draft);         // the same if we start all hosts
Result<void> plan_racks(PlanDraft& draft);       // --topology, --rack
Result<void> plan_programs(PlanDraft& draft);    // argv, environment, programs of ranks
Result<void> check_programs(PlanDraft& draft);   // no option takes a rank from its program
Result<void> plan_workers(PlanDraft& draft);     // nproc, argv, environment
Result<void> plan_rendezvous(PlanDraft& draft);  // addresses, ports, job, secret
Result<void> plan_sites(PlanDraft& draft);       // --sites …
Result<void> plan_placement(PlanDraft& draft);   // cpusets, OMP_NUM_THREADS
Result<void> plan_framework(PlanDraft& draft);   // roles, TF_CONFIG
Result<void> check_roles(PlanDraft& draft);      // they cover all ranks
Result<void> plan_output(PlanDraft& draft);
Result<void> plan_endings(PlanDraft& draft);     // times, restarts, error file
Result<void> plan_orders(PlanDraft& draft);      // orders to other hosts
Result<void> plan_end_signal(PlanDraft& draft);  // before Slurm's time is up
Result<void> plan_journal(PlanDraft& draft);     // for a leader that may be restarted
Result<void> plan_elastic(PlanDraft& draft);     // sizes, hangs, stragglers, chaos, health

Result<void> plan_tmux(PlanDraft& draft);       // before the debuggers
Result<void> plan_debugging(PlanDraft& draft);  // stopped workers, debuggers

// The Python that runs scripts and modules: $PYTHON_EXEC, or python3.
std::string python_of(const Machine& machine);

// Several programs, of a command line or a file, become options.segments, and their workers -n.
Result<void> read_programs(const Machine& machine, Options& options);

// --roles gives the number of workers if no other option does.
Result<void> count_roles(Options& options);

// --nnodes: "4" or "2:4".
Result<void> plan_counts(PlanDraft& draft);

// --nproc: a number, or "auto", "numa", "gpu" and other names.
Result<std::optional<int>> asked_nproc(PlanDraft& draft);

// The endpoint of --rdzv tcp://HOST:PORT.
Result<Endpoint> rdzv_endpoint(const Text& rdzv);

// Sets a time from an option, if the option is given.
Result<void> set_duration(const Text& option, Duration& field);

// The option has no effect, but is on the command line: a mistake.
template <class Option>
bool is_mistaken(const Option& option) {
  return option && option.flag;
}

template <class... Args>
Error refuse(fmt::format_string<Args...> format, Args&&... args) {
  return Error{.code = Errc::usage, .what = fmt::format(format, std::forward<Args>(args)...)};
}

// The address of this host that the given --interface chooses. An error lists what is there, and
// names the host if the job may have several.
Result<std::string> chosen_address(const PlanDraft& draft);

// The value for the word. An error lists `words` and suggests the nearest; `theirs` are other
// launchers' spellings.
template <class T, std::size_t N, std::size_t M = 0>
Result<T> one_of(const Text& option, const WordTable<T, N>& words,
                 const WordTable<T, M>& theirs = {}) {
  if (const auto value = value_of(words, *option)) return *value;
  if (const auto value = value_of(theirs, *option)) return *value;
  std::string list;
  std::vector<std::string_view> known;
  for (const auto& [word, value] : words) {
    list += (list.empty() ? "" : ", ") + std::string(word);
    known.push_back(word);
  }
  return refuse("{}: '{}' is not one of {}{}", option.source, *option, list,
                did_you_mean(*option, known));
}

// Sets the field to the value for the option's word, if the option is given.
template <class T, std::size_t N>
Result<void> set_word(const Text& option, const WordTable<T, N>& words, T& field) {
  if (!option) return {};
  const auto value = one_of(option, words);
  if (!value) return value.error();
  field = *value;
  return {};
}

}  // namespace dlaunch
