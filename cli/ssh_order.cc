#include "cli/ssh_order.h"

#include <algorithm>
#include <array>

#include "base/codec.h"
#include "cli/option_table.h"
#include "launcher/plan/plan.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMaxText = 8 << 20;
constexpr std::uint32_t kMaxItems = 1 << 20;

constexpr std::array<std::string_view, 27> kOfAHost = {
    "HOME",     "USER",       "LOGNAME", "SHELL",      "HOST",      "HOSTNAME",     "HOSTTYPE",
    "MACHTYPE", "OSTYPE",     "TMPDIR",  "TMP",        "TEMP",      "PWD",          "OLDPWD",
    "SHLVL",    "_",          "DISPLAY", "XAUTHORITY", "MAIL",      "TTY",          "UID",
    "WINDOWID", "KRB5CCNAME", "STY",     "TMUX",       "TMUX_PANE", "INVOCATION_ID"};
constexpr std::array<std::string_view, 6> kPrefixes = {
    "SSH_", "XDG_", "DBUS_", "BASH_FUNC_", "SYSTEMD_", "SLURM_TOPOLOGY_ADDR"};

// Variables that a scheduler's launcher sets or keeps on each host: the job's devices there, and
// the number of the task.
constexpr std::array<std::string_view, 11> kOfAStep = {"CUDA_VISIBLE_DEVICES",
                                                       "ROCR_VISIBLE_DEVICES",
                                                       "HIP_VISIBLE_DEVICES",
                                                       "GPU_DEVICE_ORDINAL",
                                                       "ZE_AFFINITY_MASK",
                                                       "NVIDIA_VISIBLE_DEVICES",
                                                       "PBS_TASKNUM",
                                                       "PBS_NODENUM",
                                                       "PBS_VNODENUM",
                                                       "PBS_MOMPORT",
                                                       "FLUX_URI"};

bool is_of_a_step(std::string_view name) {
  return name.starts_with("SLURM") || name.starts_with("LSF_PM_") ||
         std::find(kOfAStep.begin(), kOfAStep.end(), name) != kOfAStep.end();
}

void put_list(Writer& out, const std::vector<std::string>& items) {
  out.put(static_cast<std::uint32_t>(items.size()));
  for (const auto& item : items) out.put_string(item);
}

std::vector<std::string> get_list(Reader& in) {
  std::vector<std::string> items;
  const auto size = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < size && i < kMaxItems && in.ok(); ++i) {
    items.emplace_back(in.get_string(kMaxText));
  }
  return items;
}

// The values of a given option, with their source.
struct Given {
  std::vector<std::string> values;
  std::string source;
};

Given given(const Options& options, const OptionRow& row) {
  if (const auto* text = std::get_if<Text Options::*>(&row.target)) {
    const Text& one = options.**text;
    return one ? Given{{*one}, one.source} : Given{};
  }
  if (const auto* list = std::get_if<List Options::*>(&row.target)) {
    const List& many = options.**list;
    return {many.values, many.source};
  }
  const Switch& one = options.*std::get<Switch Options::*>(row.target);
  return one ? Given{{"true"}, one.source} : Given{};
}

void set(Options& options, const OptionRow& row, Given what) {
  if (const auto* text = std::get_if<Text Options::*>(&row.target)) {
    options.** text = {std::move(what.values.front()), std::move(what.source)};
  } else if (const auto* list = std::get_if<List Options::*>(&row.target)) {
    options.** list = {std::move(what.values), std::move(what.source)};
  } else {
    options.*std::get<Switch Options::*>(row.target) = {true, std::move(what.source)};
  }
}

// A switch's words are for messages, which the leader has printed.
void put_segment(Writer& out, const Segment& segment) {
  put_list(out, segment.program);
  for (const Text* text : {&segment.np, &segment.chdir}) out.put_string(text->value.value_or(""));
  out.put_string(segment.ranks);
  put_list(out, segment.env.values);
  for (const Switch* one : {&segment.module, &segment.no_python}) {
    out.put(static_cast<std::uint8_t>(one->on));
  }
}

Segment get_segment(Reader& in) {
  Segment segment;
  segment.program = get_list(in);
  for (Text* text : {&segment.np, &segment.chdir}) {
    const std::string value(in.get_string(kMaxText));
    if (!value.empty()) text->value = value;
  }
  segment.ranks = in.get_string(kMaxText);
  segment.env = {get_list(in), "--env"};
  for (Switch* one : {&segment.module, &segment.no_python}) one->on = in.get<std::uint8_t>() != 0;
  if (segment.program.empty()) segment.program.emplace_back();
  return segment;
}

void put_options(Writer& out, const Options& options) {
  for (const OptionRow& row : option_table()) {
    const Given what = given(options, row);
    if (what.values.empty()) continue;
    out.put_string(row.name);
    out.put_string(what.source);
    put_list(out, what.values);
  }
  out.put_string("");
  put_list(out, options.program);
  out.put(static_cast<std::uint32_t>(options.segments.size()));
  for (const Segment& segment : options.segments) put_segment(out, segment);
}

// False: this dlaunch does not have one of the options.
bool get_options(Reader& in, Options& options) {
  while (in.ok()) {
    const std::string name(in.get_string(kMaxText));
    if (name.empty()) break;
    const OptionRow* row = find_option(name);
    Given what;
    what.source = in.get_string(kMaxText);
    what.values = get_list(in);
    if (row == nullptr || what.values.empty()) return false;
    set(options, *row, std::move(what));
  }
  options.program = get_list(in);
  const auto segments = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < segments && i < kMaxItems && in.ok(); ++i) {
    options.segments.push_back(get_segment(in));
  }
  return in.ok();
}

}  // namespace

std::string encode(const SshOrder& order) {
  Writer out;
  out.put_string(order.folder);
  out.put(static_cast<std::uint8_t>(order.stdout_is_terminal));
  out.put(static_cast<std::uint8_t>(order.stderr_is_terminal));
  put_list(out, order.environment);
  out.put(order.min_nodes);
  out.put(order.max_nodes);
  out.put(order.total);
  out.put(static_cast<std::uint8_t>(order.by_scheduler));
  put_list(out, order.tree_ssh);
  put_options(out, order.options);
  return out.take();
}

Result<SshOrder> decode_ssh_order(std::string_view bytes) {
  Reader in(bytes);
  SshOrder order;
  order.folder = in.get_string(kMaxText);
  order.stdout_is_terminal = in.get<std::uint8_t>() != 0;
  order.stderr_is_terminal = in.get<std::uint8_t>() != 0;
  order.environment = get_list(in);
  order.min_nodes = in.get<std::int32_t>();
  order.max_nodes = in.get<std::int32_t>();
  order.total = in.get<std::int32_t>();
  order.by_scheduler = in.get<std::uint8_t>() != 0;
  order.tree_ssh = get_list(in);
  if (get_options(in, order.options) && in.done() && order.min_nodes > 0 &&
      order.max_nodes >= order.min_nodes && order.total >= 0) {
    return order;
  }
  return Error{.code = Errc::protocol, .what = "a malformed order"};
}

std::vector<std::string> forwarded_environment(const std::vector<std::string>& environment,
                                               bool by_scheduler) {
  std::vector<std::string> kept;
  const std::string rack = env_name("rack");
  for (const std::string& item : environment) {
    const std::string_view name = std::string_view(item).substr(0, item.find('='));
    const bool of_a_host =
        name == rack || std::find(kOfAHost.begin(), kOfAHost.end(), name) != kOfAHost.end() ||
        std::any_of(kPrefixes.begin(), kPrefixes.end(),
                    [&](std::string_view prefix) { return name.starts_with(prefix); }) ||
        (by_scheduler && is_of_a_step(name));
    if (!of_a_host) kept.push_back(item);
  }
  return kept;
}

Options forwarded_options(const Options& options) {
  Options rest = options;
  for (Text Options::*leaders :
       {&Options::nproc,       &Options::np,           &Options::hosts,
        &Options::hostfile,    &Options::nnodes,       &Options::node_rank,
        &Options::rack,        &Options::ssh_command,  &Options::ssh_logins,
        &Options::ssh_tree,    &Options::ssh_port,     &Options::ssh_identity_file,
        &Options::include,     &Options::exclude,      &Options::host_discovery_script,
        &Options::rdzv,        &Options::rdzv_backend, &Options::master_addr,
        &Options::secret_file, &Options::error_file,   &Options::events,
        &Options::run_dir,     &Options::metrics,      &Options::timeout,
        &Options::min_nproc,   &Options::spares,       &Options::config,
        &Options::end_signal,  &Options::app}) {
    rest.*leaders = {};
  }
  // Each host reads its own address; a file is the leader's.
  if (rest.topology && *rest.topology != kSlurmTopology) rest.topology = {};
  rest.standalone = rest.dry_run = rest.multi_prog = {};
  return rest;
}

}  // namespace dlaunch
