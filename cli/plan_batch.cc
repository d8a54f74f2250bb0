#include "cli/plan_batch.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

constexpr int kMaxSlots = 65536;

std::string value(const Environment& env, const char* name) { return env(name).value_or(""); }

// Of the file that a variable names.
Result<std::string> list_of(const Environment& env, const ReadFile& read_file, const char* name) {
  auto text = read_file(value(env, name));
  if (text) return text;
  Error error = text.error();
  error.what = fmt::format("{}: {}; {}", name, error.what, kWayOut);
  return error;
}

// The file has one line for each process.
Result<std::vector<HostEntry>> hosts_of_file(const Environment& env, const ReadFile& read_file,
                                             const char* name) {
  const auto text = list_of(env, read_file, name);
  if (!text) return text.error();
  auto hosts = parse_hostfile(*text, value(env, name));
  if (!hosts)
    return Error{.code = hosts.error().code,
                 .what = fmt::format("{}: {}", name, hosts.error().what)};
  return hosts;
}

// "hostA 4 hostB 2"
Result<std::vector<HostEntry>> hosts_with_counts(const std::string& text, const char* name) {
  const auto words = split_words(text, ' ');
  if (words.empty() || words.size() % 2 != 0) {
    return refuse("{}: '{}' is not HOST SLOTS HOST SLOTS …; {}", name, text, kWayOut);
  }
  std::string list;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const auto slots = parse_int(words[i + 1], 1, kMaxSlots, name);
    if (!slots) return refuse("{}; {}", slots.error().what, kWayOut);
    list += fmt::format("{}{}:{}", list.empty() ? "" : ",", words[i], *slots);
  }
  auto hosts = parse_host_list(list);
  if (!hosts) return refuse("{}: {}; {}", name, hosts.error().what, kWayOut);
  return hosts;
}

// "hostA hostA hostB"
Result<std::vector<HostEntry>> hosts_repeated(std::string text, const char* name) {
  std::replace(text.begin(), text.end(), ' ', '\n');
  auto hosts = parse_hostfile(text, name);
  if (!hosts) return refuse("{}: '{}' names no hosts; {}", name, text, kWayOut);
  return hosts;
}

// A job's script, or its interactive shell, is task 1; a task of pbsdsh has another number.
Result<void> check_first_task(const Environment& env) {
  const std::string task = value(env, "PBS_TASKNUM");
  if (task.empty() || task == "1") return {};
  return refuse(
      "PBS started this dlaunch as task {} of the job, by pbsdsh: start dlaunch once, without "
      "pbsdsh, and it starts the other hosts itself; or {}",
      task, kWayOutOnEachHost);
}

Result<BatchAllocation> read_pbs(const Environment& env, const ReadFile& read_file) {
  BatchAllocation allocation{.source = "PBS_NODEFILE", .starter = Starter::pbsdsh};
  if (auto ok = check_first_task(env); !ok) return ok.error();
  auto hosts = hosts_of_file(env, read_file, "PBS_NODEFILE");
  if (!hosts) return hosts.error();
  allocation.hosts = std::move(*hosts);
  if (allocation.hosts.size() > 1 && value(env, "PBS_JOBCOOKIE").empty()) {
    return refuse(
        "PBS: PBS_JOBCOOKIE is not set, and the hosts of the job need it to recognise each other; "
        "{}, which starts them by ssh",
        kWayOut);
  }
  return allocation;
}

Result<BatchAllocation> read_lsf(const Environment& env, const ReadFile& read_file) {
  BatchAllocation allocation{.source = "LSB_MCPU_HOSTS", .starter = Starter::blaunch};
  Result<std::vector<HostEntry>> hosts = std::vector<HostEntry>();
  if (const std::string counts = value(env, "LSB_MCPU_HOSTS"); !counts.empty()) {
    hosts = hosts_with_counts(counts, "LSB_MCPU_HOSTS");
  } else if (!value(env, "LSB_DJOB_HOSTFILE").empty()) {
    allocation.source = "LSB_DJOB_HOSTFILE";
    hosts = hosts_of_file(env, read_file, "LSB_DJOB_HOSTFILE");
  } else {
    allocation.source = "LSB_HOSTS";
    hosts = hosts_repeated(value(env, "LSB_HOSTS"), "LSB_HOSTS");
  }
  if (!hosts) return hosts.error();
  allocation.hosts = std::move(*hosts);
  return allocation;
}

// The file has a line for each host: "hostA 4 all.q@hostA UNDEFINED".
Result<BatchAllocation> read_grid_engine(const Environment& env, const ReadFile& read_file) {
  BatchAllocation allocation{.source = "PE_HOSTFILE", .starter = Starter::qrsh};
  auto text = list_of(env, read_file, "PE_HOSTFILE");
  if (!text) return text.error();
  std::string counts;
  std::replace_if(
      text->begin(), text->end(), [](char c) { return c == '\t' || c == '\r'; }, ' ');
  for (const auto line : split_words(*text, '\n')) {
    const auto words = split_words(line, ' ');
    if (words.empty()) continue;
    counts += fmt::format("{} {} ", words[0], words.size() > 1 ? words[1] : "");
  }
  auto hosts = hosts_with_counts(counts, "PE_HOSTFILE");
  if (!hosts) return hosts.error();
  allocation.hosts = std::move(*hosts);
  return allocation;
}

bool is_grid_engine(const Environment& env) {
  constexpr std::array kAll = {"SGE_ROOT", "JOB_ID", "PE_HOSTFILE"};
  return std::none_of(kAll.begin(), kAll.end(),
                      [&](const char* name) { return value(env, name).empty(); });
}

bool is_lsf(const Environment& env) {
  constexpr std::array kLists = {"LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE", "LSB_HOSTS"};
  return !value(env, "LSB_JOBID").empty() &&
         std::any_of(kLists.begin(), kLists.end(),
                     [&](const char* name) { return !value(env, name).empty(); });
}

}  // namespace

Result<std::optional<BatchAllocation>> read_batch(const Environment& env,
                                                  const ReadFile& read_file) {
  const bool pbs = !value(env, "PBS_JOBID").empty() && !value(env, "PBS_NODEFILE").empty();
  const bool lsf = is_lsf(env);
  if (!pbs && !lsf && !is_grid_engine(env)) return std::optional<BatchAllocation>();
  auto allocation = pbs   ? read_pbs(env, read_file)
                    : lsf ? read_lsf(env, read_file)
                          : read_grid_engine(env, read_file);
  if (!allocation) return allocation.error();
  return std::optional(std::move(*allocation));
}

void apply_batch(const BatchAllocation& allocation, Options& options) {
  // A user who says how the hosts meet starts them by hand.
  if (options.rdzv || options.master_addr || options.node_rank) return;
  std::string hosts;
  for (const HostEntry& host : allocation.hosts) {
    hosts += fmt::format("{}{}:{}", hosts.empty() ? "" : ",", host.host, host.slots.value_or(1));
  }
  options.hosts = {hosts, allocation.source};
}

bool is_of_batch(std::string_view variable) {
  return variable == "PE_HOSTFILE" || variable.starts_with("PBS_") ||
         variable.starts_with("LSB_") || variable.starts_with("FLUX_");
}

}  // namespace dlaunch
