#include "cli/plan_slurm.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "base/text.h"
#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

constexpr int kMaxNumber = 2'000'000'000;
constexpr int kMaxCount = 65536;
// Steps without srun: the shell of salloc, the batch script, and the step that holds the job's
// place.
constexpr std::string_view kNoSteps[] = {"4294967290", "4294967291", "4294967292"};

Result<std::string> get(const Environment& env, const std::string& name) {
  auto value = env(name);
  if (value && !value->empty()) return *value;
  return refuse("Slurm: {} is not set; {}", name, kWayOutOnEachHost);
}

Result<int> get_number(const Environment& env, const std::string& name, int low) {
  auto text = get(env, name);
  if (!text) return text.error();
  return parse_int(*text, low, kMaxNumber, name);
}

Result<std::vector<std::string>> get_nodes(const Environment& env, const std::string& name) {
  auto text = get(env, name);
  if (!text) return text.error();
  auto nodes = parse_name_list(*text);
  if (!nodes) return refuse("{}: {}", name, nodes.error().what);
  return nodes;
}

// One count for each node.
Result<std::vector<int>> get_counts(const Environment& env, const std::string& name,
                                    std::size_t nodes) {
  auto text = get(env, name);
  if (!text) return text.error();
  auto counts = parse_slurm_counts(*text);
  if (!counts) return refuse("{}: {}", name, counts.error().what);
  if (counts->size() == nodes) return counts;
  return refuse("Slurm: {} is '{}', which does not fit {} nodes", name, *text, nodes);
}

// Gives different ports to the steps of a job, and to jobs that are not kSlurmPortCount apart.
std::uint16_t port_of(int job, int step) {
  const auto at =
      (static_cast<std::uint64_t>(job) * 61 + static_cast<std::uint64_t>(step)) % kSlurmPortCount;
  return static_cast<std::uint16_t>(kSlurmPorts + at);
}

Result<void> read_step(const Environment& env, SlurmAllocation& allocation) {
  allocation.step = true;
  auto nodes = get_nodes(env, "SLURM_STEP_NODELIST");
  if (!nodes) return nodes.error();
  allocation.nodes = std::move(*nodes);
  auto tasks = get_counts(env, "SLURM_STEP_TASKS_PER_NODE", allocation.nodes.size());
  if (!tasks) return tasks.error();
  allocation.tasks = std::move(*tasks);
  auto number = get_number(env, "SLURM_NODEID", 0);
  if (!number) return number.error();
  allocation.number = *number;
  auto job = get_number(env, "SLURM_JOB_ID", 0);
  if (!job) return job.error();
  auto step = get_number(env, "SLURM_STEP_ID", 0);
  if (!step) return step.error();
  if (*number >= static_cast<int>(allocation.nodes.size())) {
    return refuse(
        "Slurm: SLURM_NODEID {} does not number one of the {} nodes in SLURM_STEP_NODELIST",
        *number, allocation.nodes.size());
  }
  allocation.name = fmt::format("slurm-{}.{}", *job, *step);
  if (allocation.requeued > 0) allocation.name += fmt::format("-r{}", allocation.requeued);
  allocation.port = port_of(*job, *step);
  // Ports that Slurm keeps free for this step (srun --resv-ports).
  if (const auto kept = env("SLURM_STEP_RESV_PORTS")) {
    const auto first = parse_int(kept->substr(0, kept->find_first_of("-,")), 1, 65535, "");
    if (!first) return refuse("Slurm: SLURM_STEP_RESV_PORTS '{}' is not a range of ports", *kept);
    allocation.port = static_cast<std::uint16_t>(*first);
  }
  return {};
}

Result<void> read_allocation(const Environment& env, SlurmAllocation& allocation) {
  if (env("SLURM_HET_SIZE")) {
    return refuse(
        "Slurm: dlaunch does not start the parts of a heterogeneous job itself: say srun "
        "--het-group=0,1 --ntasks-per-node=1 dlaunch …, with all its parts");
  }
  auto nodes = get_nodes(env, "SLURM_JOB_NODELIST");
  if (!nodes) return nodes.error();
  allocation.nodes = std::move(*nodes);
  for (const auto& [name, field] : {std::pair("SLURM_TASKS_PER_NODE", &allocation.tasks),
                                    std::pair("SLURM_JOB_CPUS_PER_NODE", &allocation.cpus)}) {
    auto counts = get_counts(env, name, allocation.nodes.size());
    if (!counts) return counts.error();
    *field = std::move(*counts);
  }
  return {};
}

// A step has one dlaunch on each node; it starts the workers.
Result<void> check_tasks(const SlurmAllocation& allocation) {
  const auto most = std::max_element(allocation.tasks.begin(), allocation.tasks.end());
  if (*most <= 1) return {};
  const auto node = static_cast<std::size_t>(most - allocation.tasks.begin());
  return refuse(
      "Slurm started {} dlaunch on {}, and each node needs one, which starts the workers: say srun "
      "--ntasks-per-node=1 --cpus-per-task=CPUS dlaunch --nproc {} …, or without srun dlaunch …",
      *most, allocation.nodes[node], *most);
}

void set_text(Text& option, std::string value, const char* source) {
  if (!option) option = {std::move(value), source};
}

void apply_step(const SlurmAllocation& allocation, Options& options) {
  if (allocation.nodes.size() > 1) {
    set_text(options.nnodes, std::to_string(allocation.nodes.size()), "SLURM_STEP_NODELIST");
    set_text(options.node_rank, std::to_string(allocation.number), "SLURM_NODEID");
    if (!options.master_addr) {
      const std::string endpoint = to_string(Endpoint{allocation.nodes.front(), allocation.port});
      set_text(options.rdzv, "tcp://" + endpoint, "SLURM_STEP_NODELIST");
    }
  }
  set_text(options.job_id, allocation.name, "SLURM_STEP_ID");
}

}  // namespace

Result<std::vector<int>> parse_slurm_counts(std::string_view text) {
  std::vector<int> counts;
  for (auto item : split_words(text, ',')) {
    int times = 1;
    if (const auto bracket = item.find("(x"); bracket != item.npos && item.ends_with(')')) {
      auto number =
          parse_int(item.substr(bracket + 2, item.size() - bracket - 3), 1, kMaxCount, "");
      if (!number) return refuse("'{}' is no number of nodes", item);
      times = *number;
      item = item.substr(0, bracket);
    }
    auto count = parse_int(item, 0, kMaxCount, "");
    if (!count) return refuse("'{}' is no number", item);
    if (counts.size() + static_cast<std::size_t>(times) > kMaxCount) return refuse("too many");
    counts.insert(counts.end(), static_cast<std::size_t>(times), *count);
  }
  return counts;
}

std::optional<Duration> parse_slurm_time_left(std::string_view text) {
  std::chrono::seconds left{0};
  const auto end = text.find_first_of(" \n");
  text = text.substr(0, end);
  if (const auto dash = text.find('-'); dash != text.npos) {
    const auto days = parse_int(text.substr(0, dash), 0, 100'000, "");
    if (!days) return std::nullopt;
    left = std::chrono::hours(24 * *days);
    text.remove_prefix(dash + 1);
  }
  std::chrono::seconds clock{0};
  const auto parts = split_words(text, ':');
  if (parts.empty() || parts.size() > 3) return std::nullopt;
  for (const auto part : parts) {
    const auto number = parse_int(part, 0, 100'000, "");
    if (!number) return std::nullopt;
    clock = clock * 60 + std::chrono::seconds(*number);
  }
  return left + clock;
}

Result<std::optional<SlurmAllocation>> read_slurm(const Environment& env) {
  SlurmAllocation allocation;
  const auto job = env("SLURM_JOB_ID");
  // Alone it is only a variable that the user has set.
  const bool told = env("SLURM_JOB_NODELIST") || env("SLURM_STEP_ID") || env("SLURM_HET_SIZE");
  if (!job || !told) return std::optional<SlurmAllocation>();
  allocation.job = *job;
  allocation.here = env("SLURMD_NODENAME").value_or("");
  if (const auto times = env("SLURM_RESTART_COUNT")) {
    const auto number = parse_int(*times, 0, kMaxNumber, "SLURM_RESTART_COUNT");
    if (!number) return refuse("Slurm: {}", number.error().what);
    allocation.requeued = *number;
  }
  if (const auto cpus = env("SLURM_CPUS_ON_NODE")) {
    const auto number = parse_int(*cpus, 0, kMaxCount, "");
    allocation.cpus_here = number ? *number : 0;
  }
  const auto step = env("SLURM_STEP_ID");
  const bool of_srun =
      step && std::find(std::begin(kNoSteps), std::end(kNoSteps), *step) == std::end(kNoSteps);
  auto done = of_srun ? read_step(env, allocation) : read_allocation(env, allocation);
  if (!done) return done.error();
  if (auto ok = check_tasks(allocation); of_srun && !ok) return ok.error();
  return std::optional(allocation);
}

bool left_to_scheduler(const Options& options) {
  return !options.standalone && !options.hosts && !options.hostfile &&
         !options.host_discovery_script && !(options.nnodes && *options.nnodes == "1");
}

void apply_slurm(const SlurmAllocation& allocation, Options& options) {
  if (allocation.step) return apply_step(allocation, options);
  // A user who says how the hosts meet starts them by hand.
  if (options.rdzv || options.master_addr || options.node_rank) return;
  std::string hosts;
  for (std::size_t i = 0; i < allocation.nodes.size(); ++i) {
    if (allocation.tasks[i] == 0) continue;
    hosts +=
        fmt::format("{}{}:{}", hosts.empty() ? "" : ",", allocation.nodes[i], allocation.tasks[i]);
  }
  options.hosts = {hosts, "SLURM_JOB_NODELIST"};
}

}  // namespace dlaunch
