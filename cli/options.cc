#include "cli/options.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/contract.h"
#include "cli/config_file.h"
#include "cli/option_table.h"
#include "cli/read_file.h"
#include "cli/scanner.h"
#include "cli/segments.h"
#include "cli/suggest.h"

namespace dlaunch {
namespace {

// Passes our entries to CLI11, which uses them where neither a flag nor the environment set a
// value.
class EntriesAsConfig : public CLI::Config {
 public:
  explicit EntriesAsConfig(std::vector<CLI::ConfigItem> entries) : items_(std::move(entries)) {}
  std::vector<CLI::ConfigItem> from_config(std::istream&) const override { return items_; }
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return ""; }

 private:
  std::vector<CLI::ConfigItem> items_;
};

// CLI11's options, a pair for each row of the table.
using Registered = std::vector<std::pair<const OptionRow*, CLI::Option*>>;

// torchrun's own variables, by which Kubeflow's training operator places a pod: PET_NNODES.
constexpr std::string_view kFromTorchrun[] = {"nnodes",
                                              "nproc-per-node",
                                              "node-rank",
                                              "rdzv-backend",
                                              "rdzv-endpoint",
                                              "rdzv-id",
                                              "standalone",
                                              "log-dir",
                                              "master-addr",
                                              "master-port",
                                              "max-restarts",
                                              "role",
                                              "local-ranks-filter",
                                              "redirects",
                                              "tee",
                                              "log-line-prefix-template",
                                              "module",
                                              "no-python",
                                              "run-path",
                                              "virtual-local-rank",
                                              "monitor-interval",
                                              "shutdown-timeout"};

// An empty variable counts as not set.
bool is_set(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value != nullptr && *value != '\0';
}

// torchrun's variables that are set, if ours are not.
std::map<const OptionRow*, std::string> torchrun_variables(bool inside_worker) {
  std::map<const OptionRow*, std::string> found;
  if (inside_worker) return found;
  for (const std::string_view name : kFromTorchrun) {
    const std::string theirs = env_name(name, "PET_");
    const OptionRow* row = find_option(name);
    if (is_set(theirs) && !is_set(env_name(*row))) found[row] = theirs;
  }
  return found;
}

Registered register_table(CLI::App& app) {
  app.set_help_flag();
  // A worker's environment describes the outer job; a dlaunch that it starts is a job of its own.
  const bool inside_worker = std::getenv(contract::kRound) != nullptr;
  const auto theirs = torchrun_variables(inside_worker);
  Registered registered;
  for (const OptionRow& row : option_table()) {
    const std::string name = "--" + std::string(row.name);
    CLI::Option* option = nullptr;
    if (std::holds_alternative<Switch Options::*>(row.target)) {
      option = app.add_flag(name)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    } else if (std::holds_alternative<List Options::*>(row.target)) {
      option = app.add_option(name)
                   ->expected(1, CLI::detail::expected_max_vector_size)
                   ->allow_extra_args(false)
                   ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    } else {
      option = app.add_option(name)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
    option->configurable(!row.has(kNoFile));
    const bool from_outside = inside_worker && row.has(kWorkerVar);
    if (!row.has(kNoEnv) && !from_outside) {
      const auto other = theirs.find(&row);
      option->envname(other != theirs.end() ? other->second : env_name(row));
    }
    registered.emplace_back(&row, option);
  }
  return registered;
}

// Words that CLI11 understands, last first as it wants them.
std::vector<std::string> plain_words(const std::vector<GivenOption>& given) {
  std::vector<std::string> words;
  words.reserve(given.size());
  for (const GivenOption& one : given) {
    std::string word = "--" + std::string(one.row->name);
    if (!one.value.empty()) word += "=" + one.value;
    words.push_back(std::move(word));
  }
  std::reverse(words.begin(), words.end());
  return words;
}

// Joins an array for an option that takes a list in one word: only-rank = [0, 2].
std::string joined(const std::vector<std::string>& values) {
  std::string text;
  for (const auto& value : values) text += (text.empty() ? "" : ",") + value;
  return text;
}

Result<std::vector<CLI::ConfigItem>> load_config(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return text.error();
  auto entries = parse_config(*text, path);
  if (!entries) return entries.error();
  std::vector<CLI::ConfigItem> items;
  std::set<const OptionRow*> seen;
  for (const ConfigEntry& entry : *entries) {
    const auto complain = [&](const std::string& what) {
      return Error{.code = Errc::protocol,
                   .what = fmt::format("{}:{}: {}", path, entry.line, what)};
    };
    const OptionRow* row = entry.key.size() > 1 ? find_option(entry.key) : nullptr;
    if (row == nullptr || row->has(kNoFile)) {
      const std::string near = row == nullptr ? nearest_option(entry.key) : "";
      return complain(fmt::format("'{}' is not an option for a file{}", entry.key,
                                  near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
    if (!seen.insert(row).second) {
      return complain(fmt::format("'{}' is the same option as an earlier line's", entry.key));
    }
    CLI::ConfigItem item;
    item.name = row->name;
    item.inputs = entry.values;
    if (!std::holds_alternative<List Options::*>(row->target)) {
      item.inputs = {joined(entry.values)};
    }
    items.push_back(std::move(item));
  }
  return items;
}

Result<bool> to_bool(const std::string& text, const std::string& source) {
  for (const char* yes : {"true", "1", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"false", "0", "no", "off"}) {
    if (text == no) return false;
  }
  return Error{.code = Errc::usage,
               .what = fmt::format("{}: '{}' is not true or false", source, text)};
}

Result<void> fill(Options& options, const OptionRow& row, const std::vector<std::string>& values,
                  const std::string& source, bool flag) {
  if (const auto* text = std::get_if<Text Options::*>(&row.target)) {
    options.** text = Text{values.back(), source, flag};
  } else if (const auto* list = std::get_if<List Options::*>(&row.target)) {
    options.** list = List{values, source};
  } else {
    const auto on = to_bool(values.back(), source);
    if (!on) return on.error();
    options.*std::get<Switch Options::*>(row.target) = Switch{*on, source, flag};
  }
  return {};
}

// The spelling of each value of a repeatable option.
std::vector<std::string> spelled_in(const ScannedLine& line, const OptionRow& row) {
  std::vector<std::string> spelled;
  for (const GivenOption& given : line.options) {
    if (given.row == &row) spelled.push_back(given.spelled);
  }
  return spelled;
}

std::string flag_source(const ScannedLine& line, const OptionRow& row) {
  std::string source;
  for (const GivenOption& given : line.options) {
    if (given.row == &row) source = given.spelled;
  }
  return source;
}

// A flag makes other spellings of the same setting, from the environment or a file, void.
template <class... Other>
void leave_out(bool said_by_flag, Other&... others) {
  const auto drop = [](auto& option) {
    if (!option.flag) option = {};
  };
  if (said_by_flag) (drop(others), ...);
}

void let_flags_win(Options& o) {
  leave_out(o.hosts.flag || o.hostfile.flag || o.host_discovery_script.flag, o.hosts, o.hostfile,
            o.host_discovery_script, o.node_rank, o.standalone, o.master_addr);
  leave_out(o.node_rank.flag, o.hosts, o.hostfile, o.host_discovery_script);
  leave_out(o.standalone.flag, o.nnodes, o.node_rank, o.rdzv, o.master_addr, o.hosts, o.hostfile,
            o.host_discovery_script);
  leave_out(o.emit.flag, o.hosts, o.hostfile, o.host_discovery_script, o.ssh_command, o.ssh_logins,
            o.ssh_tree, o.node_rank, o.topology, o.rack, o.rdzv, o.master_addr, o.secret_file);
  leave_out(o.quiet.flag || o.verbose.flag, o.quiet, o.verbose);
}

// accelerate's --multi_gpu asks for all GPUs unless a number is given.
void let_multi_gpu_count(Options& o) {
  if (o.multi_gpu && !o.nproc && !o.np) o.nproc = {"gpu", o.multi_gpu.source, o.multi_gpu.flag};
}

Result<Options> merge(const ScannedLine& line) {
  CLI::App app;
  const Registered registered = register_table(app);
  auto words = plain_words(line.options);
  app.parse(words);
  std::set<const OptionRow*> before_file;
  std::string config;
  for (const auto& [row, option] : registered) {
    if (option->count() == 0) continue;
    before_file.insert(row);
    if (row->name == "config") config = option->results().back();
  }
  if (!config.empty()) {
    auto items = load_config(config);
    if (!items) return items.error();
    app.config_formatter(std::make_shared<EntriesAsConfig>(std::move(*items)));
    std::istringstream unused;
    app.parse_from_stream(unused);
  }
  Options options;
  for (const auto& [row, option] : registered) {
    if (option->count() == 0) continue;
    std::string source = flag_source(line, *row);
    const bool flag = !source.empty();
    if (!flag) {
      source = before_file.contains(row) ? option->get_envname()
                                         : fmt::format("{} in {}", row->name, config);
    }
    if (auto done = fill(options, *row, option->results(), source, flag); !done) {
      return done.error();
    }
    const auto* list = std::get_if<List Options::*>(&row->target);
    if (list != nullptr && flag) (options.**list).spelled = spelled_in(line, *row);
  }
  let_flags_win(options);
  let_multi_gpu_count(options);
  return options;
}

}  // namespace

Result<Options> read_options(const std::vector<std::string>& words) {
  auto line = scan_line(words);
  if (!line) return line.error();
  Options options;
  for (const GivenOption& given : line->options) {
    if (given.row->name == "help") options.help = {true, given.spelled};
    if (given.row->name == "help-all") options.help_all = {true, given.spelled};
    if (given.row->name == "version") options.version = {true, given.spelled};
    if (given.row->name == "check-build") options.check_build = {true, given.spelled};
    if (given.row->name == "cflags") options.cflags = {true, given.spelled};
    if (given.row->name == "libs") options.libs = {true, given.spelled};
  }
  if (options.help || options.help_all || options.version || options.check_build) return options;
  if (options.cflags || options.libs) {
    options.program = std::move(line->program);
    return options;
  }
  auto segments = take_segments(*line);
  if (!segments) return segments.error();
  try {
    auto merged = merge(*line);
    if (!merged) return merged.error();
    options = std::move(*merged);
  } catch (const CLI::Error& error) {
    return Error{.code = Errc::usage, .what = error.what()};
  }
  options.program = std::move(line->program);
  options.notes = std::move(line->notes);
  options.warnings = std::move(line->warnings);
  options.segments = std::move(*segments);
  return options;
}

}  // namespace dlaunch
