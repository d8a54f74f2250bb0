// The parts of build_plan, a file each for what belongs together. Each judges its own options and
// writes its own fields of the plan; the order in build_plan matters: workers come first.
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
#include "cli/plan_batch.h"
#include "cli/plan_builder.h"
#include "cli/plan_flux.h"
#include "cli/plan_slurm.h"
#include "launcher/plan/hostfile.h"

namespace dlaunch {

struct PlanDraft {
  const Options& options;
  const Machine& machine;
  bool joins = false;               // a job that another dlaunch leads
  std::optional<SlurmPlace> slurm;  // where Slurm has a say in which hosts there are
  std::optional<FluxPlace> flux;    // where Flux has, and started one dlaunch on each
  std::optional<BatchPlace> batch;  // where another scheduler has, and we start the others
  bool in_pod = false;              // of Kubernetes, which gives every host its number
  BuiltPlan built;
  std::optional<Topology> topology;  // once somebody needed it
  bool discovers = false;            // which hosts there are, while the job runs
  std::vector<Gpu> gpus;             // likewise
  std::vector<HostEntry> hosts;      // those named, where others than this one are among them
  std::optional<int> slots;          // of the hosts named; nullopt: no hosts named
  std::optional<int> max_slots;
  std::string gpu_list = {};                   // CUDA_VISIBLE_DEVICES, as --include chose GPUs
  std::map<std::string, bool> own_names = {};  // hosts that is_own() was asked for

  Plan& plan() { return built.plan; }
  const Plan& plan() const { return built.plan; }
  // Whether a host of a list is this one. Each name is resolved once: a server is slow to answer.
  bool is_own(const std::string& host) {
    const auto [own, fresh] = own_names.try_emplace(host);
    if (fresh) {
      own->second = (slurm && slurm->here == host) || machine.local_address(host).has_value();
    }
    return own->second;
  }
  // Workers that the job may have at the start, as far as is known.
  int most_workers() const { return plan().nodes.total > 0 ? plan().nodes.total : kMaxWorkers; }
  Result<void> need_topology();
  // An error where there are none. `why`: the option that asks for them.
  Result<void> need_gpus(const std::string& why);
};

Result<void> plan_hosts(PlanDraft& draft);  // --hosts …
// --include and --exclude, on the hosts of a list, or without one on this machine.
Result<void> filter_hosts(PlanDraft& draft, std::vector<HostEntry>& hosts);
Result<void> filter_here(PlanDraft& draft);
Result<void> plan_nodes(PlanDraft& draft);       // how many hosts, and who leads
Result<void> plan_ssh(PlanDraft& draft);         // the same where we start them all
Result<void> plan_programs(PlanDraft& draft);    // argv, environment, what ranks run
Result<void> check_programs(PlanDraft& draft);   // nothing takes a rank from its program
Result<void> plan_workers(PlanDraft& draft);     // nproc, argv, environment
Result<void> plan_rendezvous(PlanDraft& draft);  // addresses, ports, job, secret
Result<void> plan_placement(PlanDraft& draft);   // cpusets, OMP_NUM_THREADS
Result<void> plan_framework(PlanDraft& draft);   // roles, TF_CONFIG
Result<void> check_roles(PlanDraft& draft);      // they have all ranks
Result<void> plan_output(PlanDraft& draft);
Result<void> plan_endings(PlanDraft& draft);     // times, restarts, error file
Result<void> plan_orders(PlanDraft& draft);      // what other hosts are told
Result<void> plan_end_signal(PlanDraft& draft);  // before Slurm's time is up
Result<void> plan_journal(PlanDraft& draft);     // for a leader that is started again
Result<void> plan_elastic(PlanDraft& draft);     // sizes, hangs, stragglers, chaos, health

// Several programs, of a command line or a file, become options.segments, and their workers -n.
Result<void> read_programs(const Machine& machine, Options& options);

// --roles says how many workers there are where nothing else does.
Result<void> count_roles(Options& options);

// --nnodes: "4" or "2:4".
Result<void> plan_counts(PlanDraft& draft);

// --nproc: what was said by name, by number, or by "auto", "numa" and "gpu".
Result<std::optional<int>> asked_nproc(PlanDraft& draft);

// Of --rdzv tcp://HOST:PORT.
Result<Endpoint> rdzv_endpoint(const Text& rdzv);

// A time that an option gives, if it is there.
Result<void> set_duration(const Text& option, Duration& field);

// Has no effect, but was asked for on the command line: a mistake.
template <class Option>
bool is_mistaken(const Option& option) {
  return option && option.flag;
}

template <class... Args>
Error refuse(fmt::format_string<Args...> format, Args&&... args) {
  return Error{.code = Errc::usage, .what = fmt::format(format, std::forward<Args>(args)...)};
}

// The address of this host that --interface chooses, which is given. An error names the host where
// the job may have several, with what is there.
Result<std::string> chosen_address(const PlanDraft& draft);

// The value that stands for the word; an error lists the first `shown` words (all if 0; the rest
// are other launchers' names) and suggests the nearest.
template <class T, std::size_t N>
Result<T> one_of(const Text& option, const std::array<std::pair<std::string_view, T>, N>& words,
                 std::size_t shown = 0) {
  std::string list;
  std::vector<std::string_view> known;
  for (std::size_t i = 0; i < N; ++i) {
    if (*option == words[i].first) return words[i].second;
    if (shown != 0 && i >= shown) continue;
    list += (i > 0 ? ", " : "") + std::string(words[i].first);
    known.push_back(words[i].first);
  }
  return refuse("{}: '{}' is not one of {}{}", option.source, *option, list,
                did_you_mean(*option, known));
}

}  // namespace dlaunch
