#include "cli/emit_kubernetes.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/units.h"
#include "cli/option_table.h"
#include "cli/plan_parts.h"
#include "cli/segments.h"

namespace dlaunch {
namespace {

constexpr std::size_t kLongestName = 40;   // pods add their number, a JobSet its parts
constexpr std::size_t kLongestQueue = 63;  // a label's value
constexpr int kMostGpus = 1024;

// Whether a name is valid for a Service, and is a string in YAML without quotes.
bool is_label(const std::string& name) {
  static const std::set<std::string> no_strings = {"true", "false", "yes", "no",  "on",
                                                   "off",  "y",     "n",   "null"};
  if (no_strings.contains(name)) return false;
  const auto good = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= kLongestName && name[0] >= 'a' && name[0] <= 'z' &&
         good(name.back()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return good(c) || c == '-'; });
}

// "src/Train_v2.py" -> "train-v2-py"
std::string name_from(const std::string& program) {
  std::string name;
  for (const char c : program.substr(program.rfind('/') + 1)) {
    const auto lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool good = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (good || !name.empty()) name += good ? lower : '-';
  }
  name = name.substr(0, kLongestName);
  while (name.ends_with('-')) name.pop_back();
  return is_label(name) ? name : "dlaunch";
}

// Whether the name is valid as a label's value.
bool is_queue(const std::string& name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= kLongestQueue && letter(name.front()) &&
         letter(name.back()) && std::all_of(name.begin(), name.end(), [&](char c) {
           return letter(c) || c == '-' || c == '.';
         });
}

Result<KubernetesJob::Kind> kind_of(const Text& emit) {
  using Kind = KubernetesJob::Kind;
  std::array<std::pair<std::string_view, Kind>, 4> kinds;
  for (const Kind kind : {Kind::job, Kind::jobset, Kind::trainjob, Kind::lws}) {
    kinds[static_cast<std::size_t>(kind)] = {word_of(kind), kind};
  }
  return one_of(emit, kinds);
}

// The GPUs of each pod.
Result<int> gpus_of(const Options& options) {
  if (!options.gpus) return 0;
  return parse_int(*options.gpus, 1, kMostGpus, options.gpus.source);
}

Error needs_gpus(const std::string& source) {
  return refuse("{} uses the GPUs of a pod: it needs --gpus", source);
}

// Refuses options that name hosts or are for this machine alone.
Result<void> check_hosts(const Options& options) {
  for (const Text* option :
       {&options.hosts, &options.hostfile, &options.ssh_command, &options.ssh_logins,
        &options.ssh_tree, &options.host_discovery_script, &options.node_rank, &options.topology,
        &options.rack, &options.rdzv, &options.master_addr}) {
    if (!*option) continue;
    return refuse("{} and {} contradict each other: Kubernetes chooses the hosts", option->source,
                  options.emit.source);
  }
  if (options.secret_file) {
    return refuse("{} and {} contradict each other: dlaunch writes a new secret into the YAML",
                  options.secret_file.source, options.emit.source);
  }
  return {};
}

// Options that the YAML expresses otherwise, or that are not for the pods.
const std::set<std::string_view> kNotForPods = {
    "emit",   "image",      "gpus",         "queue",       "job-id",       "env",
    "config", "dry-run",    "nnodes",       "np",          "rdzv-backend", "sites",
    "site",   "site-grace", "site-timeout", "site-linger", "site-wait",    "site-journal"};

// The options as words, in the order of the table.
void add_options(const Options& options, std::vector<std::string>& words) {
  for (const OptionRow& row : option_table()) {
    if (kNotForPods.contains(row.name)) continue;
    const std::string flag = "--" + std::string(row.name);
    if (const auto* text = std::get_if<Text Options::*>(&row.target)) {
      if (options.**text) words.insert(words.end(), {flag, *(options.**text)});
    } else if (const auto* on = std::get_if<Switch Options::*>(&row.target)) {
      if (options.**on) words.push_back(flag);
    }
  }
}

// Writes segments of a command line; options before the first program are the first's alone.
Result<void> add_programs(const Options& given, const Plan& plan, std::vector<std::string>& words) {
  Options options = given;
  if (options.multi_prog) {
    return refuse(
        "{}: dlaunch cannot write {} into the file: give the programs with ':' between them",
        options.emit.source, options.multi_prog.source);
  }
  for (Segment& segment : options.segments) {
    const auto& program = segment.program;
    if (&segment != &options.segments.back() &&
        std::find(program.begin(), program.end(), ":") != program.end()) {
      return refuse("{}: {} has an argument ':', so it must be the last of the programs",
                    options.emit.source, program[0]);
    }
    if (!segment.chdir) segment.chdir = options.chdir;
    if (!segment.module && !segment.no_python) {
      segment.module = options.module;
      segment.no_python = options.no_python;
    }
  }
  options.np = options.nproc = options.chdir = options.app = {};
  options.module = options.no_python = {};
  add_options(options, words);
  for (const auto& [name, value] : plan.env) words.insert(words.end(), {"-genv", name, value});
  for (std::size_t number = 0; number < plan.programs.size(); ++number) {
    auto& env = options.segments[number].env.values;
    env.clear();
    for (const auto& [name, value] : plan.programs[number].env) env.push_back(name + "=" + value);
  }
  const auto segments = words_of(options.segments);
  words.insert(words.end(), segments.begin(), segments.end());
  return {};
}

}  // namespace

Result<void> check_emit(const Options& options) {
  if (is_mistaken(options.gpus) && !options.emit) {
    return refuse(
        "{} has no effect without --emit; did you mean --nproc {}, a worker for each GPU?",
        options.gpus.source, *options.gpus);
  }
  for (const Text* option : {&options.image, &options.queue}) {
    if (!is_mistaken(*option) || options.emit) continue;
    return refuse("{} has no effect without --emit", option->source);
  }
  if (const auto gpus = gpus_of(options); !gpus) return gpus.error();
  if (options.emit && options.sites) {
    return refuse(
        "{} and {} contradict each other: what is written has a secret of its own, and its pods "
        "have no address that other sites reach",
        options.sites.source, options.emit.source);
  }
  if (!options.emit || options.gpus) return {};
  for (const Text* option : {&options.nproc, &options.bind}) {
    if (*option && (**option).ends_with("gpu")) return needs_gpus(option->source + " gpu");
  }
  return options.isolate_gpus ? needs_gpus(options.isolate_gpus.source) : Result<void>();
}

Machine as_pod(Machine machine, const Options& options) {
  const auto count = gpus_of(options);
  std::vector<GpuFiles> gpus(static_cast<std::size_t>(count ? *count : 0));
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    gpus[i].information = fmt::format("GPU UUID: {}\n", i);
    gpus[i].local_cpus = "0-1023";  // near all CPUs: only the pod knows which are near
  }
  machine.gpus = [gpus] { return gpus; };
  machine.hcas = [] { return std::vector<Hca>(); };
  machine.file_kind = [](const std::string&) { return FileKind::absent; };
  machine.can_create = machine.check_secret = [](const std::string&) { return Result<void>(); };
  machine.interface_address = [](const std::string&) { return Result<std::string>("0.0.0.0"); };
  machine.stderr_is_terminal = false;  // no warning that our own CPUs are few
  const auto own = std::move(machine.environment);
  machine.environment = [own](const std::string& name) {
    const bool ours =
        name == "CUDA_VISIBLE_DEVICES" || name.starts_with("SLURM") || is_of_batch(name);
    return ours ? std::nullopt : own(name);
  };
  return machine;
}

Result<KubernetesJob> kubernetes_job(const Options& options, const Plan& plan) {
  auto kind = kind_of(options.emit);
  if (!kind) return kind.error();
  if (auto ok = check_hosts(options); !ok) return ok.error();
  if (!options.image) return refuse("{} needs --image", options.emit.source);
  KubernetesJob job{.image = *options.image,
                    .nodes = plan.nodes.max,
                    .min_nodes = plan.nodes.min,
                    .grace = plan.grace,
                    .survives_losses = plan.survives_losses(),
                    .kind = *kind};
  if (options.queue && !is_queue(*options.queue)) {
    return refuse("{}: '{}' is no name of a queue: up to {} of a-z, 0-9, - and .",
                  options.queue.source, *options.queue, kLongestQueue);
  }
  job.queue = options.queue.value.value_or("");
  const auto gpus = gpus_of(options);
  if (!gpus) return gpus.error();
  job.gpus = *gpus;
  const auto& program = options.segments.empty() ? options.program : options.segments[0].program;
  job.name = options.job_id ? *options.job_id : name_from(program.at(0));
  if (!is_label(job.name)) {
    return refuse("{}: '{}' is no name for Kubernetes: up to {} of a-z, 0-9 and -, a letter first",
                  options.job_id.source, job.name, kLongestName);
  }
  job.command = {"dlaunch", "--job-id", job.name};
  if (options.nnodes) job.command.insert(job.command.end(), {"--nnodes", *options.nnodes});
  const std::string secret = std::string(kPodSecretFolder) + "/secret";
  job.command.insert(job.command.end(), {"--secret-file", secret});
  if (!plan.programs.empty()) {
    if (auto added = add_programs(options, plan, job.command); !added) return added.error();
    return job;
  }
  if (options.np) job.command.insert(job.command.end(), {"-n", *options.np});
  add_options(options, job.command);
  for (const auto& [name, value] : plan.env) {
    job.command.insert(job.command.end(), {"--env", name + "=" + value});
  }
  job.command.emplace_back("--");
  job.command.insert(job.command.end(), options.program.begin(), options.program.end());
  return job;
}

}  // namespace dlaunch
