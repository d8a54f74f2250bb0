// Workers that a person debugs.
#include <algorithm>

#include "base/rank_set.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/debugger.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

constexpr int kMostPanes = 64;

Result<RankChoice> ranks_of(const PlanDraft& draft, const Text& option) {
  if (*option == "all") return RankChoice{.all = true, .ranks = {}};
  auto ranks = parse_rank_set(*option, draft.most_workers());
  if (!ranks) return refuse("{}: {}, or all", option.source, ranks.error().what);
  return RankChoice{.all = false, .ranks = std::move(*ranks)};
}

Result<RankChoice> rank_of(const PlanDraft& draft, const Text& option) {
  if (*option == "all" || *option == "on-failure") return RankChoice{.all = true, .ranks = {}};
  auto rank = parse_int(*option, 0, draft.most_workers() - 1, option.source);
  if (!rank) return refuse("{}, all or on-failure", rank.error().what);
  return RankChoice{.all = false, .ranks = {*rank}};
}

// The others wait for a worker that a person debugs, for as long as the person takes.
Result<void> lift_limits(PlanDraft& draft, const Text& why) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  for (const Text* limit : {&options.hang_timeout, &options.hang_warning, &options.straggler}) {
    if (!is_mistaken(*limit)) continue;
    return refuse("{} has no effect with {}: a person may stop a worker for any time",
                  limit->source, why.source);
  }
  plan.hang_timeout = plan.hang_warning = Duration::max();
  plan.straggler = StragglerMode::off;
  if (draft.joins) return {};  // the leader says it
  draft.built.warnings.push_back(fmt::format(
      "{}: the limits for hangs, stragglers and new workers are off in this job", why.source));
  return {};
}

bool is_in_path(const Machine& machine, const std::string& program) {
  const std::string folders = machine.environment("PATH").value_or("");
  const auto all = split_words(folders, ':');
  return std::any_of(all.begin(), all.end(), [&](std::string_view folder) {
    return machine.file_kind(fmt::format("{}/{}", folder, program)) == FileKind::executable;
  });
}

// An executable train.py is a program to the system; a debugger of Python needs its Python.
CommandWords with_python(const PlanDraft& draft, const CommandWords& command) {
  if (!command[0].ends_with(".py")) return command;
  CommandWords words = {python_of(draft.machine), "-u"};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

// The words of --debugger-command, or of the usual debugger for the command.
Result<CommandWords> debugger_for(const PlanDraft& draft, const CommandWords& command) {
  const Text& option = draft.options.debugger_command;
  if (!option) {
    if (is_python(command)) return pdb_words();
    if (is_in_path(draft.machine, "gdb")) return gdb_words();
    if (is_in_path(draft.machine, "lldb")) return lldb_words();
    return refuse("{}: neither gdb nor lldb is in PATH; --debugger-command names another debugger",
                  draft.options.debugger.source);
  }
  if (*option == "gdb") return gdb_words();
  if (*option == "lldb") return lldb_words();
  if (*option == "pdb") return pdb_words();
  if (*option == "debugpy") return debugpy_words();
  CommandWords words;
  for (const auto word : split_words(*option, ' ')) words.emplace_back(word);
  const bool module = !words.empty() && words[0] == "-m";
  if (words.size() >= (module ? 2U : 1U)) return words;
  return refuse("{}: '{}' names no debugger", option.source, *option);
}

// Only gdb and pdb can be opened on a program that has failed.
Result<bool> wants_native(const PlanDraft& draft) {
  const Text& option = draft.options.debugger_command;
  if (option && *option != "gdb" && *option != "pdb") {
    return refuse("{} {}: only gdb and pdb open on a rank that has failed", option.source, *option);
  }
  return option && *option == "gdb";
}

Result<CommandWords> failing_command(const PlanDraft& draft, const CommandWords& command) {
  auto native = wants_native(draft);
  if (!native) return native.error();
  const bool python = is_python(command) && !*native;
  if (!python && draft.options.debugger_command && !*native) {
    return refuse("{} pdb: '{}' is not run by Python", draft.options.debugger_command.source,
                  command[0]);
  }
  if (!python && !is_in_path(draft.machine, "gdb")) {
    return refuse("{} on-failure: gdb is not in PATH", draft.options.debugger.source);
  }
  return debugged_on_failure(command, *native);
}

// Whether the debugger of all ranks would need the terminal, which only one can have.
bool needs_terminal(const CommandWords& debugger) {
  return debugger == gdb_words() || debugger == lldb_words() || debugger == pdb_words();
}

// What a rank runs instead of `command`.
Result<CommandWords> debugged(PlanDraft& draft, const CommandWords& given) {
  const CommandWords command = with_python(draft, given);
  DebugPlan& debugging = draft.plan().debugging;
  if (debugging.on_failure) return failing_command(draft, command);
  auto debugger = debugger_for(draft, command);
  if (!debugger) return debugger.error();
  const bool has_pane = draft.plan().output.tmux;
  if (debugging.under.all && needs_terminal(*debugger) && !has_pane) {
    return refuse(
        "{} all: {} needs a terminal for each rank; use --tmux, --debugger-command debugpy, or "
        "--stop-at-start and 'gdb -p PID' in other terminals",
        draft.options.debugger.source,
        *debugger == pdb_words() ? std::string("pdb") : debugger->front());
  }
  debugging.on_terminal |= !debugging.under.all && !has_pane && *debugger != debugpy_words();
  auto words = under_debugger(command, *debugger);
  if (!words) return refuse("{}: {}", draft.options.debugger.source, words.error().what);
  return words;
}

// A program without a rank that is debugged keeps its command.
Result<void> plan_commands(PlanDraft& draft) {
  Plan& plan = draft.plan();
  if (plan.programs.empty()) {
    auto words = debugged(draft, plan.argv);
    if (!words) return words.error();
    plan.debugging.commands = {std::move(*words)};
    return {};
  }
  for (const JobProgram& program : plan.programs) {
    const bool is_debugged = std::any_of(program.ranks.begin(), program.ranks.end(),
                                         [&](int rank) { return plan.debugging.under.has(rank); });
    auto words = is_debugged ? debugged(draft, program.argv) : program.argv;
    if (!words) return words.error();
    plan.debugging.commands.push_back(std::move(*words));
  }
  return {};
}

Result<void> check_terminal(PlanDraft& draft) {
  const Text& option = draft.options.debugger;
  Plan& plan = draft.plan();
  if (!plan.debugging.uses_terminal()) return {};
  if (plan.nodes.several()) {
    return refuse(
        "{} {}: the debugger has this terminal, so all ranks must be on this host; use "
        "--stop-at-start, or --debugger-command debugpy",
        option.source, *option);
  }
  if (!draft.machine.has_terminal) {
    return refuse(
        "{} {}: dlaunch has no terminal, or runs in its background; use --stop-at-start, "
        "or --debugger-command debugpy",
        option.source, *option);
  }
  plan.output.cursor = false;  // progress bars would be drawn over the debugger's lines
  return {};
}

Result<void> plan_debugger(PlanDraft& draft) {
  const Text& option = draft.options.debugger;
  auto ranks = rank_of(draft, option);
  if (!ranks) return ranks.error();
  DebugPlan& debugging = draft.plan().debugging;
  debugging.under = std::move(*ranks);
  debugging.on_failure = *option == "on-failure";
  if (debugging.on_failure && draft.plan().output.tmux) {
    return refuse("{} on-failure has this terminal, and with {} the ranks have others",
                  option.source, draft.options.tmux.source);
  }
  if (auto done = plan_commands(draft); !done) return done;
  if (auto done = check_terminal(draft); !done) return done;
  return lift_limits(draft, option);
}

// No option may shape output that does not come to dlaunch.
Result<void> check_panes(const Options& options) {
  Result<void> fine;
  const auto check = [&](const auto& option) {
    if (!fine || !is_mistaken(option)) return;
    fine = refuse("{} has no effect with {}: each rank writes to its own pane", option.source,
                  options.tmux.source);
  };
  check(options.output);
  check(options.log_dir);
  check(options.only_rank);
  check(options.progress_bars);
  check(options.timestamps);
  check(options.label);
  check(options.prefix_template);
  check(options.stdin_to);
  return fine;
}

}  // namespace

Result<void> plan_tmux(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  if (!options.tmux) return {};
  if (auto done = check_panes(options); !done) return done;
  if (plan.nodes.several()) {
    return refuse("{}: all ranks must be on this host", options.tmux.source);
  }
  if (plan.nproc > kMostPanes) {
    return refuse("{}: {} ranks are too many for panes; {} may have some", options.tmux.source,
                  plan.nproc, kMostPanes);
  }
  if (plan.spares > 0 || plan.max_nproc > plan.nproc) {
    return refuse(
        "{}: only ranks that are there from the start have panes, so --spares and "
        "--max-nproc do not go with it",
        options.tmux.source);
  }
  plan.output.tmux = true;
  plan.stdin_to = StdinPlan::none;
  return {};
}

Result<void> plan_debugging(PlanDraft& draft) {
  const Options& options = draft.options;
  if (options.debugger && options.stop_at_start) {
    return refuse("{} and {} contradict each other", options.debugger.source,
                  options.stop_at_start.source);
  }
  if (is_mistaken(options.debugger_command) && !options.debugger) {
    return refuse("{} has no effect without --debugger", options.debugger_command.source);
  }
  if (options.debugger) return plan_debugger(draft);
  if (!options.stop_at_start) return {};
  auto ranks = ranks_of(draft, options.stop_at_start);
  if (!ranks) return ranks.error();
  draft.plan().debugging.stopped = std::move(*ranks);
  return lift_limits(draft, options.stop_at_start);
}

}  // namespace dlaunch
