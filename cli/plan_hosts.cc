// --hosts and --hostfile: the hosts, and, if dlaunch itself starts the job on all of them, the
// number of workers of each and the leader.
#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "base/rank_set.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/plan_parts.h"
#include "cli/ssh_order.h"
#include "launcher/plan/host_shares.h"

namespace dlaunch {
namespace {

Result<std::vector<HostEntry>> read_hosts(const PlanDraft& draft) {
  const Options& options = draft.options;
  if (options.hosts) {
    auto hosts = parse_host_list(*options.hosts);
    if (!hosts) return refuse("{}: {}", options.hosts.source, hosts.error().what);
    return hosts;
  }
  auto text = draft.machine.read_file(*options.hostfile);
  if (!text) {
    Error error = text.error();
    error.what = options.hostfile.source + ": " + error.what;
    return error;
  }
  return parse_hostfile(*text, *options.hostfile);
}

// This machine's slots may be listed under several of its names.
std::vector<HostEntry> merge_own(PlanDraft& draft, const std::vector<HostEntry>& hosts) {
  std::vector<HostEntry> merged;
  std::optional<std::size_t> own;
  for (const HostEntry& host : hosts) {
    const bool ours = draft.is_own(host.host);
    if (!ours || !own) {
      if (ours) own = merged.size();
      merged.push_back(host);
      continue;
    }
    HostEntry& known = merged[*own];
    known.slots = known.slots.value_or(1) + host.slots.value_or(1);
    if (host.max_slots) known.max_slots = host.max_slots;
  }
  return merged;
}

const Text& list_option(const Options& options) {
  if (options.host_discovery_script) return options.host_discovery_script;
  return options.hosts ? options.hosts : options.hostfile;
}

// Refuses options that mean nothing if we start the hosts from here.
Result<void> check_alone(const Options& options) {
  const auto clash = [&](const std::string& source, const char* why) {
    return refuse("{} and {} contradict each other: {}", list_option(options).source, source, why);
  };
  if (options.node_rank) {
    return clash(options.node_rank.source, "the order of the hosts numbers them");
  }
  if (options.standalone) return clash(options.standalone.source, "that means this host alone");
  if (options.master_addr) {
    return clash(options.master_addr.source,
                 "MASTER_ADDR is that of rank 0's host, and --interface chooses ours");
  }
  return {};
}

// The CPUs that srun must request there.
int cpus_of(const PlanDraft& draft, const HostEntry& entry) {
  if (!draft.slurm) return 0;
  const auto& nodes = draft.slurm->nodes;
  const auto at = std::find(nodes.begin(), nodes.end(), entry.host) - nodes.begin();
  return draft.slurm->cpus[static_cast<std::size_t>(at)];
}

// The line of its first process in PBS's list, and its number in Flux's.
int place_of(const PlanDraft& draft, const HostEntry& entry) {
  if (!draft.batch) return 0;
  const auto& hosts = draft.batch->hosts;
  const auto found = std::find_if(hosts.begin(), hosts.end(),
                                  [&](const HostEntry& host) { return host.host == entry.host; });
  if (found == hosts.end()) return 0;
  return found->line > 0 ? found->line - 1 : static_cast<int>(found - hosts.begin());
}

bool counts_devices(const PlanDraft& draft, std::string_view nproc) {
  const auto kind = nproc.substr(nproc.find(':') == nproc.npos ? 0 : nproc.find(':') + 1);
  return kind == "gpu" || draft.machine.accelerators(kind);
}

// The workers of each host, and of this one; each host decides about --nproc auto.
Result<void> plan_shares(PlanDraft& draft) {
  const Options& options = draft.options;
  // A host that only starts the others may have no GPU.
  const bool theirs = options.nproc && counts_devices(draft, *options.nproc) &&
                      std::none_of(draft.hosts.begin(), draft.hosts.end(),
                                   [&](const auto& entry) { return draft.is_own(entry.host); });
  auto asked = theirs ? std::optional(1) : asked_nproc(draft);
  if (!asked) return asked.error();
  const bool each_itself = *asked && !parse_int(*options.nproc, 1, kMaxWorkers, "");
  std::optional<int> total;
  if (options.np) {
    auto number = parse_int(*options.np, 1, kMaxWorkers, options.np.source);
    if (!number) return number.error();
    if (each_itself) {
      return refuse("{} {} and {} contradict each other: each host has its own number",
                    options.nproc.source, *options.nproc, options.np.source);
    }
    total = *number;
  }
  auto shares = share_out(draft.hosts, each_itself ? std::optional(1) : *asked, total);
  if (!shares) {
    return refuse("{}: {}", list_option(options).source, shares.error().what);
  }
  Plan& plan = draft.plan();
  NodesPlan& nodes = plan.nodes;
  plan.nproc = 0;
  for (std::size_t i = 0; i < draft.hosts.size(); ++i) {
    const HostEntry& entry = draft.hosts[i];
    if ((*shares)[i] == 0) continue;
    const bool own = draft.is_own(entry.host);
    if (own) {
      nodes.rank = static_cast<int>(nodes.hosts.size());
      plan.nproc = each_itself ? **asked : (*shares)[i];
    }
    const int workers = each_itself ? 0 : (*shares)[i];
    nodes.hosts.push_back({entry.host, entry.user, entry.port, workers, own, cpus_of(draft, entry),
                           place_of(draft, entry)});
    nodes.total += workers;
  }
  if (nodes.total > kMaxWorkers) {
    return refuse("{} workers are more than {}", nodes.total, kMaxWorkers);
  }
  return {};
}

// The list of hosts changes while the job runs, so no host can be reserved for us: we only lead.
Result<void> plan_places(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  const Text& script = options.host_discovery_script;
  if (!options.nnodes) {
    return refuse("{} needs --nnodes MIN:MAX: how many hosts the job may have", script.source);
  }
  if (options.np) {
    return refuse("{} and {} contradict each other: each host gets --nproc workers", script.source,
                  options.np.source);
  }
  auto each = parse_int(options.nproc ? *options.nproc : "1", 1, kMaxWorkers, "--nproc");
  if (!each) return refuse("{}, where {} lists the hosts", each.error().what, script.source);
  if (auto done = plan_counts(draft); !done) return done;
  plan.nproc = 0;
  plan.nodes.discovery = *script;
  plan.nodes.hosts.resize(static_cast<std::size_t>(plan.nodes.max));
  for (HostPlan& host : plan.nodes.hosts) host.nproc = *each;
  if (*each * plan.nodes.max > kMaxWorkers) {
    return refuse("{} workers are more than {}", *each * plan.nodes.max, kMaxWorkers);
  }
  return {};
}

// All hosts are needed, unless --nnodes says that fewer are enough.
Result<void> plan_needed(PlanDraft& draft) {
  const Options& options = draft.options;
  NodesPlan& nodes = draft.plan().nodes;
  const auto count = static_cast<int>(nodes.hosts.size());
  if (auto done = plan_counts(draft); !done) return done.error();
  if (options.nnodes && nodes.max != count) {
    return refuse("{} {}: the job has {} host{}", options.nnodes.source, *options.nnodes, count,
                  count == 1 ? "" : "s");
  }
  if (!options.nnodes) nodes.min = nodes.max = count;
  return {};
}

// The address from which we reach the others. Names that only ssh knows do not tell, and each may
// take the resolver's time.
Result<std::string> address_towards_others(PlanDraft& draft) {
  constexpr int kAsked = 3;
  std::optional<Error> first;
  int asked = 0;
  for (const HostPlan& host : draft.plan().nodes.hosts) {
    if (host.leads || ++asked > kAsked) continue;
    auto address = draft.machine.address_towards(host.name);
    if (address) return address;
    if (!first) first = address.error();
  }
  const std::string any = draft.machine.any_address();
  if (any == "127.0.0.1") {
    return refuse(
        "{}; say with --interface or --rdzv at which of our addresses the others reach us",
        first->what);
  }
  draft.built.warnings.push_back(
      fmt::format("{}; the others are to reach us at {}, unless --interface or --rdzv says where",
                  first->what, any));
  return any;
}

// The address on which this dlaunch listens.
Result<void> plan_endpoint(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  Endpoint endpoint;
  if (options.rdzv) {
    auto said = rdzv_endpoint(options.rdzv);
    if (!said) return said.error();
    auto address = draft.machine.local_address(said->host);
    if (!address) {
      return refuse("{}: '{}' is not an address of this machine, which leads the job",
                    options.rdzv.source, said->host);
    }
    endpoint = {*address, said->port};
  } else if (options.interface) {
    auto address = chosen_address(draft);
    if (!address) return address.error();
    endpoint.host = *address;
  } else if (draft.discovers) {
    endpoint.host = draft.machine.any_address();
  } else {
    const auto& hosts = plan.nodes.hosts;
    if (std::all_of(hosts.begin(), hosts.end(), [](const auto& host) { return host.leads; })) {
      return {};
    }
    auto address = address_towards_others(draft);
    if (!address) return address.error();
    endpoint.host = *address;
  }
  plan.store_listen = to_string(endpoint);
  plan.master_addr = endpoint.host;
  return {};
}

Result<void> add_ssh_options(PlanDraft& draft) {
  const Options& options = draft.options;
  auto& words = draft.plan().nodes.ssh;
  if (options.ssh_identity_file) {
    words.emplace_back("-i");
    words.push_back(*options.ssh_identity_file);
  }
  if (!options.ssh_port) return {};
  auto port = parse_int(*options.ssh_port, 1, 65535, options.ssh_port.source);
  if (!port) return port.error();
  for (HostPlan& host : draft.plan().nodes.hosts) {
    if (!host.port) host.port = *port;
  }
  if (draft.discovers) words.push_back(fmt::format("-p{}", *port));
  return {};
}

// A scheduler that gave us the hosts starts them, too, unless the user decides otherwise.
Starter starter_of(const PlanDraft& draft) {
  if (draft.options.ssh_command || draft.discovers) return Starter::ssh;
  if (draft.slurm) return Starter::srun;
  return draft.batch ? draft.batch->starter : Starter::ssh;
}

// DeepSpeed's --num_nodes takes the first of the listed hosts; torchrun's --nnodes must equal
// their number.
void take_first(const PlanDraft& draft, std::vector<HostEntry>& hosts) {
  const Text& count = draft.options.nnodes;
  if (count.source != "--num_nodes" && count.source != "--num-nodes") return;
  const auto most = parse_int(*count, 1, kMaxWorkers, count.source);
  if (!most) return;
  std::set<std::string> taken;
  std::erase_if(hosts, [&](const HostEntry& entry) {
    const bool room = static_cast<int>(taken.size()) < *most;
    if (room) taken.insert(entry.host);
    return !taken.contains(entry.host);
  });
}

Result<void> leave_to_scheduler(PlanDraft& draft) {
  NodesPlan& nodes = draft.plan().nodes;
  nodes.ssh = {name_of(nodes.starter)};
  const Options& options = draft.options;
  for (const Text* option : {&options.ssh_port, &options.ssh_identity_file, &options.ssh_tree}) {
    if (!is_mistaken(*option)) continue;
    return refuse(
        "{} has no effect: {} starts the hosts that {} names, unless --ssh-command is given",
        option->source, nodes.ssh[0], options.hosts.source);
  }
  return {};
}

}  // namespace

Result<void> plan_hosts(PlanDraft& draft) {
  const Options& options = draft.options;
  draft.discovers = static_cast<bool>(options.host_discovery_script);
  if (draft.discovers && (options.hosts || options.hostfile)) {
    return refuse("give hosts with {} or {}, not both", options.host_discovery_script.source,
                  options.hosts ? options.hosts.source : options.hostfile.source);
  }
  if (draft.discovers) return {};
  if (!options.hosts && !options.hostfile) {
    for (const Text& option : {options.ssh_command, options.ssh_logins, options.ssh_tree,
                               options.ssh_port, options.ssh_identity_file}) {
      if (is_mistaken(option)) {
        return refuse("{} has no effect without --hosts or --hostfile", option.source);
      }
    }
    return filter_here(draft);
  }
  if (options.hosts && options.hostfile) {
    return refuse("give hosts with {} or {}, not both", options.hosts.source,
                  options.hostfile.source);
  }
  auto hosts = read_hosts(draft);
  if (!hosts) return hosts.error();
  if (auto done = filter_hosts(draft, *hosts); !done) return done;
  take_first(draft, *hosts);
  const bool only_ours = std::all_of(
      hosts->begin(), hosts->end(), [&](const HostEntry& host) { return draft.is_own(host.host); });
  if (!only_ours) {
    draft.hosts = merge_own(draft, *hosts);
    return {};
  }
  int slots = 0;
  std::optional<int> limit;
  for (const HostEntry& host : *hosts) {
    slots += host.slots.value_or(1);
    if (host.max_slots) limit = limit.value_or(0) + *host.max_slots;
  }
  if (slots > kMaxWorkers) return refuse("{} slots are more than {}", slots, kMaxWorkers);
  draft.slots = slots;
  draft.max_slots = limit;
  return {};
}

Result<void> plan_ssh(PlanDraft& draft) {
  if (auto ok = check_alone(draft.options); !ok) return ok;
  if (draft.discovers) {
    if (auto done = plan_places(draft); !done) return done;
  } else {
    for (const auto part : {plan_shares, plan_needed}) {
      if (auto done = part(draft); !done) return done;
    }
  }
  if (auto done = plan_endpoint(draft); !done) return done;
  if (const Text& logins = draft.options.ssh_logins) {
    auto number = parse_int(*logins, 1, 4096, logins.source);
    if (!number) return number.error();
    draft.plan().nodes.logins = *number;
  }
  NodesPlan& nodes = draft.plan().nodes;
  if (auto set = set_word(draft.options.ssh_tree, kSshTreeWords, nodes.tree); !set) return set;
  const Text& command = draft.options.ssh_command;
  nodes.starter = starter_of(draft);
  if (nodes.by_scheduler()) return leave_to_scheduler(draft);
  const std::string words = command.value.value_or("ssh");
  for (const auto word : split_words(words, ' ')) nodes.ssh.emplace_back(word);
  if (nodes.ssh.empty()) return refuse("{}: it is empty", command.source);
  return add_ssh_options(draft);
}

// Comes last, because it needs the finished plan.
Result<void> plan_orders(PlanDraft& draft) {
  Plan& plan = draft.plan();
  NodesPlan& nodes = plan.nodes;
  if (nodes.hosts.empty()) return {};
  auto folder = draft.machine.folder();
  if (!folder) return folder.error();
  const bool has_tree = !nodes.by_scheduler() && nodes.tree != SshTree::off;
  SshOrder order{
      .folder = *folder,
      .stdout_is_terminal = draft.machine.stdout_is_terminal,
      .stderr_is_terminal = draft.machine.stderr_is_terminal,
      .environment = forwarded_environment(draft.machine.whole_environment(), nodes.by_scheduler()),
      .min_nodes = nodes.min,
      .max_nodes = nodes.max,
      .total = nodes.total,
      .by_scheduler = nodes.by_scheduler(),
      .tree_ssh = has_tree ? nodes.ssh : std::vector<std::string>(),
      .options = forwarded_options(draft.options)};
  const Text& nproc = draft.options.nproc;
  if (nodes.total == 0) order.options.nproc = nproc;
  if (!plan.sites.own.empty()) {
    order.options.sites = {to_string(plan.sites.list), "--sites"};
    order.options.site = {plan.sites.own, "--site"};
  }
  order.options.stdin_to = {stdin_of(plan), "--stdin"};
  order.options.job_id = {plan.job_id, "--job-id"};
  order.options.env = {{}, "--env"};
  for (const auto& [name, value] : plan.env) order.options.env.values.push_back(name + "=" + value);
  order.options.segments.clear();
  for (const JobProgram& program : plan.programs) {
    Segment segment = draft.options.segments[program.segment];
    segment.env.values.clear();
    for (const auto& [name, value] : program.env) segment.env.values.push_back(name + "=" + value);
    segment.ranks = format_rank_set(program.ranks);
    order.options.segments.push_back(std::move(segment));
  }
  nodes.order = encode(order);
  return {};
}

}  // namespace dlaunch
