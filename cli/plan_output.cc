#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

// torchrun's 0, 1, 2, 3 as two bits.
Result<unsigned> streams(const Text& option) {
  if (!option) return 0u;
  if (option.value->find(':') != std::string::npos) {
    return refuse(
        "{}: streams per rank are not supported; give one of 0, 1, 2, 3 for all, and "
        "--only-rank to choose ranks",
        option.source);
  }
  auto number = parse_int(*option, 0, 3, option.source);
  if (!number) return number.error();
  return static_cast<unsigned>(*number);
}

Result<void> plan_files(PlanDraft& draft) {
  const Options& options = draft.options;
  OutputPlan& output = draft.plan().output;
  if (is_mistaken(options.redirects) && !options.log_dir) {
    return refuse("{} needs --log-dir: without log files everything is on the terminal",
                  options.redirects.source);
  }
  if (output.mode == OutputMode::files && !options.log_dir) {
    return refuse("{} files needs --log-dir", options.output.source);
  }
  if (!options.log_dir) return {};
  if (output.mode == OutputMode::raw || output.mode == OutputMode::none) {
    if (options.output.flag && !options.log_dir.flag) return {};
    return refuse("{} {} leaves nothing for {}: use --output files or prefix",
                  options.output.source, *options.output, options.log_dir.source);
  }
  output.log_dir = *options.log_dir;
  const FileKind kind = draft.machine.file_kind(output.log_dir);
  if (kind == FileKind::plain || kind == FileKind::executable) {
    return Error{.code = Errc::io,
                 .what = fmt::format("{}: {} is a file, not a folder", options.log_dir.source,
                                     output.log_dir)};
  }
  auto redirects = streams(options.redirects);
  if (!redirects) return redirects.error();
  auto tee = streams(options.tee);
  if (!tee) return tee.error();
  const unsigned on_terminal = (~*redirects | *tee) & 3u;
  output.tee = static_cast<StreamSet>(on_terminal);
  return {};
}

// What shapes lines on the terminal means nothing where none are shown by us.
Result<void> check_terminal_flags(const Options& options, OutputMode mode) {
  if (mode == OutputMode::prefix || mode == OutputMode::merged) return {};
  Result<void> fine;
  const auto check = [&](const auto& option) {
    if (!fine || !is_mistaken(option)) return;
    fine = refuse("{} has no effect with {} {}", option.source, options.output.source,
                  *options.output);
  };
  check(options.only_rank);
  check(options.timestamps);
  check(options.label);
  check(options.redirects);
  check(options.tee);
  return fine;
}

Result<void> plan_stdin(PlanDraft& draft) {
  const Text& option = draft.options.stdin_to;
  Plan& plan = draft.plan();
  if (!option) return {};
  if (*option == "none" || *option == "all") {
    plan.stdin_to = *option == "all" ? StdinPlan::all : StdinPlan::none;
    return {};
  }
  auto rank = parse_int(*option, 0, draft.most_workers() - 1, option.source);
  if (!rank) return refuse("{}, none or all", rank.error().what);
  plan.stdin_to = StdinPlan::one_rank;
  plan.stdin_rank = *rank;
  return {};
}

bool wants_color(const Machine& machine) {
  return machine.stdout_is_terminal && machine.environment("NO_COLOR").value_or("").empty() &&
         machine.environment("TERM").value_or("dumb") != "dumb";
}

}  // namespace

Result<void> plan_output(PlanDraft& draft) {
  static_assert(static_cast<unsigned>(StreamSet::out) == 1 &&
                static_cast<unsigned>(StreamSet::err) == 2 &&
                static_cast<unsigned>(StreamSet::both) == 3);
  const Options& options = draft.options;
  OutputPlan& output = draft.plan().output;
  if (options.output) {
    constexpr auto kModes =
        std::to_array<std::pair<std::string_view, OutputMode>>({{"prefix", OutputMode::prefix},
                                                                {"merged", OutputMode::merged},
                                                                {"raw", OutputMode::raw},
                                                                {"files", OutputMode::files},
                                                                {"none", OutputMode::none}});
    auto mode = one_of(options.output, kModes);
    if (!mode) return mode.error();
    output.mode = *mode;
  }
  if (auto done = check_terminal_flags(options, output.mode); !done) return done.error();
  if (auto done = plan_files(draft); !done) return done.error();
  if (options.only_rank) {
    auto ranks = parse_rank_set(*options.only_rank, draft.most_workers());
    if (!ranks) return refuse("{}: {}", options.only_rank.source, ranks.error().what);
    output.only_ranks = std::move(*ranks);
  }
  output.timestamps = options.timestamps.on;
  output.color = wants_color(draft.machine);
  return plan_stdin(draft);
}

}  // namespace dlaunch
