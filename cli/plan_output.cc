#include <map>

#include "base/text.h"
#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

// torchrun's 0, 1, 2, 3 as two bits: for all workers, or for some local ranks.
struct Streams {
  unsigned all = 0;
  std::map<int, unsigned> of;

  unsigned at(int local_rank) const {
    const auto own = of.find(local_rank);
    return own == of.end() ? all : own->second;
  }
};

// "3", or "0:1,1:2", with none for other local ranks.
Result<Streams> streams(const Text& option) {
  Streams found;
  if (!option) return found;
  if (option.value->find(':') == std::string::npos) {
    auto number = parse_int(*option, 0, 3, option.source);
    if (!number) return refuse("{}, or LOCAL_RANK:NUMBER,...", number.error().what);
    found.all = static_cast<unsigned>(*number);
    return found;
  }
  for (const auto item : split_words(*option, ',')) {
    const auto colon = item.find(':');
    if (colon == item.npos) {
      return refuse("{}: '{}' is not LOCAL_RANK:NUMBER", option.source, item);
    }
    auto rank = parse_int(std::string(item.substr(0, colon)), 0, kMaxWorkers - 1, option.source);
    if (!rank) return rank.error();
    auto number = parse_int(std::string(item.substr(colon + 1)), 0, 3, option.source);
    if (!number) return number.error();
    if (!found.of.emplace(*rank, *number).second) {
      return refuse("{}: local rank {} is listed twice", option.source, *rank);
    }
  }
  return found;
}

StreamSet on_terminal(unsigned redirects, unsigned tee) {
  return static_cast<StreamSet>((~redirects | tee) & 3u);
}

void plan_tee(OutputPlan& output, const Streams& redirects, const Streams& tee) {
  output.tee = on_terminal(redirects.all, tee.all);
  for (const auto* some : {&redirects.of, &tee.of}) {
    for (const auto& [rank, unused] : *some) {
      output.tee_of[rank] = on_terminal(redirects.at(rank), tee.at(rank));
    }
  }
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
  plan_tee(output, *redirects, *tee);
  return {};
}

// Refuses options that shape lines on the terminal if we show none.
Result<void> check_terminal_flags(const Options& options, OutputMode mode) {
  if (mode == OutputMode::prefix || mode == OutputMode::merged) return {};
  Result<void> fine;
  const auto check = [&](const auto& option) {
    if (!fine || !is_mistaken(option)) return;
    fine = refuse("{} has no effect with {} {}", option.source, options.output.source,
                  *options.output);
  };
  check(options.only_rank);
  check(options.progress_bars);
  check(options.timestamps);
  check(options.label);
  check(options.redirects);
  check(options.tee);
  check(options.prefix_template);
  return fine;
}

Result<void> plan_bars(PlanDraft& draft) {
  const Text& option = draft.options.progress_bars;
  OutputPlan& output = draft.plan().output;
  output.cursor = draft.machine.environment("TERM").value_or("dumb") != "dumb";
  return set_word(option, kBarWords, output.bars);
}

// Nothing is drawn where workers themselves write to our terminal.
Result<void> plan_progress(PlanDraft& draft) {
  const Text& option = draft.options.progress;
  OutputPlan& output = draft.plan().output;
  if (draft.options.quiet) output.progress = ProgressMode::none;
  if (output.mode == OutputMode::raw) {
    if (is_mistaken(option)) {
      return refuse("{} has no effect with {} raw", option.source, draft.options.output.source);
    }
    output.progress = ProgressMode::none;
    return {};
  }
  return set_word(option, kProgressWords, output.progress);
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

// torchrun's own variable holds if no option sets the prefix.
std::string asked_prefix(const PlanDraft& draft) {
  const Text& option = draft.options.prefix_template;
  if (option) return *option;
  return draft.machine.environment("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE").value_or("");
}

bool wants_color(const Machine& machine) {
  return machine.stdout_is_terminal && machine.environment("NO_COLOR").value_or("").empty() &&
         machine.environment("TERM").value_or("dumb") != "dumb";
}

// srun's --output takes the name of a file.
Error hint_at_files(Error error, const std::string& mode) {
  if (mode.find_first_of("/.%") == mode.npos) return error;
  error.what += "; --log-dir DIR writes what workers print to files";
  return error;
}

// "9400" -> "127.0.0.1:9400"
Result<void> plan_metrics(PlanDraft& draft) {
  const Text& option = draft.options.metrics;
  if (!option) return {};
  constexpr std::string_view kUnix = "unix:";
  const std::string& where = *option;
  if (where.starts_with(kUnix)) {
    const std::string path = where.substr(kUnix.size());
    if (path.empty()) return refuse("{}: 'unix:' needs a path", option.source);
    draft.plan().metrics = std::string(kUnix) + path;
    return {};
  }
  const bool only_port = where.find(':') == std::string::npos;
  auto endpoint = parse_endpoint(only_port ? "127.0.0.1:" + where : where);
  if (!endpoint) return refuse("{}: {}", option.source, endpoint.error().what);
  draft.plan().metrics = to_string(*endpoint);
  return {};
}

}  // namespace

Result<void> plan_output(PlanDraft& draft) {
  static_assert(static_cast<unsigned>(StreamSet::out) == 1 &&
                static_cast<unsigned>(StreamSet::err) == 2 &&
                static_cast<unsigned>(StreamSet::both) == 3);
  const Options& options = draft.options;
  OutputPlan& output = draft.plan().output;
  if (options.output) {
    auto mode = one_of(options.output, kOutputWords);
    if (!mode) return hint_at_files(mode.error(), *options.output);
    output.mode = *mode;
  }
  if (auto done = check_terminal_flags(options, output.mode); !done) return done.error();
  if (auto done = plan_files(draft); !done) return done.error();
  if (options.only_rank) {
    auto ranks = parse_rank_set(*options.only_rank, draft.most_workers());
    if (!ranks) return refuse("{}: {}", options.only_rank.source, ranks.error().what);
    output.only_ranks = std::move(*ranks);
  }
  if (auto done = plan_bars(draft); !done) return done.error();
  if (auto done = plan_progress(draft); !done) return done.error();
  if (auto done = plan_metrics(draft); !done) return done.error();
  output.timestamps = options.timestamps.on;
  draft.plan().goodput = options.goodput.on;
  if (options.trace) draft.plan().trace = *options.trace.value;
  output.prefix = asked_prefix(draft);
  output.color = wants_color(draft.machine);
  return plan_stdin(draft);
}

}  // namespace dlaunch
