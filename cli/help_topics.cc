#include "cli/help_topics.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/nearest.h"
#include "cli/foreign_options.h"
#include "cli/help.h"
#include "cli/option_table.h"

namespace dlaunch {
namespace {

constexpr std::string_view kExitCodes = R"(Exit codes:
  0        all workers ended with 0
  1 … 255  the exit code of the worker that failed first; 128 plus the signal that killed it
  64       the command line is wrong
  65       a file that dlaunch reads is malformed
  66       a file that dlaunch reads cannot be read
  69       the store, a port or a host is not available, or a host was lost
  70       dlaunch has a bug, or lost its own agent
  71       the system refused what dlaunch needs
  73       a file or folder cannot be written
  75       --timeout ended the job
  76       --verify found corrupt data, and the job did not go on
  126      the program cannot be executed
  127      the program is not there
man dlaunch, EXIT STATUS, has all of them.
)";

constexpr std::string_view kEnvironment = R"(Environment:
  Most options have a variable: DLAUNCH_LOG_DIR for --log-dir. A flag counts before the variable,
  and both before --config. torchrun's PET_NNODES and the like count where ours are not set.

  Workers see RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT,
  ROLE_NAME and the rest of torchrun's variables; OMPI_COMM_WORLD_RANK and HOROVOD_RANK, too.
  Programs that import TensorFlow get a TF_CONFIG.

  PYTHON_EXEC  the Python for scripts and --module [python3]
  NO_COLOR     no colours
  TMPDIR       where dlaunch keeps the job's folder
)";

constexpr std::string_view kMacros =
    R"(Macros, in the program, its arguments and the values of --env:
  ${rank} ${local_rank} ${world_size} ${local_world_size} ${node_rank} ${round}
  ${host} ${job_id} ${master_addr} ${master_port} ${program_rank}
Quote them against the shell: -x JAX_COORDINATOR_ADDRESS='${master_addr}:${master_port}'.
$${rank} stands for ${rank} itself.
)";

struct Topic {
  std::string_view name;
  std::string_view text;  // "": a topic made of a group or a launcher
};
constexpr Topic kTopics[] = {{"workers", ""},
                             {"placement", ""},
                             {"output", ""},
                             {"failure", ""},
                             {"nodes", ""},
                             {"general", ""},
                             {"exit-codes", kExitCodes},
                             {"environment", kEnvironment},
                             {"macros", kMacros},
                             {"coming-from-torchrun", ""},
                             {"coming-from-accelerate", ""},
                             {"coming-from-deepspeed", ""},
                             {"coming-from-horovodrun", ""},
                             {"coming-from-mpirun", ""},
                             {"coming-from-mpiexec", ""},
                             {"coming-from-srun", ""}};
constexpr std::string_view kFrom = "coming-from-";

std::string dashed(std::string_view name) {
  return fmt::format("{}{}", name.size() > 1 ? "--" : "-", name);
}

std::string with_value(std::string_view text) {
  std::string said(text);
  for (auto at = said.find("{}"); at != std::string::npos; at = said.find("{}")) {
    said.replace(at, 2, "VALUE");
  }
  return said;
}

// A launcher's options that have no option of the same name here.
std::string launcher_text(const ForeignTable& table) {
  std::string text = fmt::format(
      "Most command lines of {} work as they are; dlaunch -v says what it did with each option.\n",
      table.launcher);
  for (const auto& [fate, heading] : {std::pair(Fate::ours, "Taken as options of dlaunch"),
                                      std::pair(Fate::nothing, "Accepted, and they change nothing"),
                                      std::pair(Fate::refused, "Refused")}) {
    std::string items;
    for (const ForeignOption& option : table.options) {
      if (option.fate != fate) continue;
      for (const auto name : split_words(option.names, ' ')) items += "  " + dashed(name) + "\n";
      items += wrapped(with_value(option.text), 6);
    }
    if (!items.empty()) text += fmt::format("\n{}:\n{}", heading, items);
  }
  return text;
}

std::string text_of(const Topic& topic) {
  if (!topic.text.empty()) return std::string(topic.text);
  for (const ForeignTable& table : foreign_tables()) {
    if (topic.name.starts_with(kFrom) && topic.name.substr(kFrom.size()) == table.launcher) {
      return launcher_text(table);
    }
  }
  const auto* const first = std::begin(kTopics);
  return group_text(kGroups[&topic - first]);  // the groups come first, in their order
}

}  // namespace

std::string topic_names() {
  std::string names;
  for (const Topic& topic : kTopics) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", topic.name);
  }
  return names;
}

Result<std::string> topic_text(const std::string& topic) {
  if (topic.empty()) {
    return "Topics:\n" + wrapped(topic_names(), 2) + "Options: dlaunch help --nproc\n";
  }
  std::vector<std::string_view> names;
  for (const Topic& one : kTopics) {
    const bool launcher = one.name.starts_with(kFrom) && one.name.substr(kFrom.size()) == topic;
    if (one.name == topic || launcher) return text_of(one);
    names.push_back(one.name);
    if (one.name.starts_with(kFrom)) names.push_back(one.name.substr(kFrom.size()));
  }
  const std::string option = topic.substr(std::min(topic.find_first_not_of('-'), topic.size()));
  if (const OptionRow* row = find_option(option)) return option_text(*row);
  const ForeignMatch match = find_foreign(option);
  if (match.option != nullptr) {
    return wrapped(
        fmt::format("{} of {}: {}", dashed(option), match.launcher, with_value(match.option->text)),
        0);
  }
  for (const OptionRow& row : option_table()) names.push_back(row.name);
  return usage_error(fmt::format("there is no topic '{}'{}; topics: {}", topic,
                                 did_you_mean(option, names), topic_names()));
}

}  // namespace dlaunch
