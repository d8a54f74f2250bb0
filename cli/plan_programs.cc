// The workers' programs: one, or several, each on ranks of its own.
#include <algorithm>
#include <set>

#include "base/rank_set.h"
#include "base/units.h"
#include "cli/plan_parts.h"
#include "cli/segments.h"

namespace dlaunch {
namespace {

// torchrun gives a script to python; mpirun executes an executable. dlaunch does both: only a
// file.py that the system could not execute by that name gets a python3.
bool needs_python(const PlanDraft& draft, const std::string& word, const std::string& chdir) {
  if (!word.ends_with(".py")) return false;
  const bool relative = word[0] != '/' && !chdir.empty();
  const FileKind kind = draft.machine.file_kind(relative ? chdir + "/" + word : word);
  const bool by_path = word.find('/') != std::string::npos;
  return kind == FileKind::plain || (kind == FileKind::executable && !by_path);
}

struct Command {
  const std::vector<std::string>& program;
  const Switch& module;
  const Switch& no_python;
  const std::string& chdir;
};

Result<std::vector<std::string>> argv_for(const PlanDraft& draft, const Command& command) {
  const auto& program = command.program;
  if (program[0].empty()) return refuse("the program's name is empty");
  if (command.module && command.no_python) {
    return refuse("{} and {} contradict each other", command.module.source,
                  command.no_python.source);
  }
  std::vector<std::string> argv;
  const Switch& run_path = draft.options.run_path;
  if (command.module && run_path) {
    return refuse("{} and {} contradict each other", command.module.source, run_path.source);
  }
  const bool script = !command.no_python && needs_python(draft, program[0], command.chdir);
  // torchrun's --run-path uses runpy.run_path; Python does the same for a script: its __name__ is
  // __main__ and sys.argv is its own.
  if (command.module || run_path || script) {
    argv.push_back(python_of(draft.machine));
    argv.push_back("-u");  // else lines would stay in Python's buffer until a worker ends
    if (command.module) argv.push_back("-m");
  }
  argv.insert(argv.end(), program.begin(), program.end());
  return argv;
}

Result<void> add_env(PlanDraft& draft, const List& given, EnvVariables& env) {
  static const std::set<std::string_view> each_has_its_own = {"RANK",
                                                              "LOCAL_RANK",
                                                              "ROLE_RANK",
                                                              "HOROVOD_RANK",
                                                              "HOROVOD_LOCAL_RANK",
                                                              "OMPI_COMM_WORLD_RANK",
                                                              "OMPI_COMM_WORLD_LOCAL_RANK",
                                                              "PMI_RANK",
                                                              "PMI_FD"};
  for (std::size_t value = 0; value < given.values.size(); ++value) {
    const std::string& item = given.values[value];
    const std::string& source = given.source_of(value);
    const auto equals = std::min(item.find('='), item.size());
    const std::string name = item.substr(0, equals);
    if (name.empty()) return refuse("{}: '{}' has no name", source, item);
    if (each_has_its_own.contains(name)) {
      return refuse("{} {}: each worker has its own, which dlaunch gives it; leave it out", source,
                    name);
    }
    if (equals < item.size()) {
      env.emplace_back(name, item.substr(equals + 1));
    } else if (auto ours = draft.machine.environment(name)) {
      env.emplace_back(name, *ours);
    } else {
      draft.built.warnings.push_back(
          fmt::format("{} {}: it is not set here, so it is not passed on", source, name));
    }
  }
  return {};
}

// -- Several programs

// The workers of all segments; --multi-prog's ranks count if no other option gives the number.
Result<int> total_of(const Options& options) {
  int total = 0, highest = -1;
  bool open = false;
  for (const Segment& segment : options.segments) {
    auto count = count_of(segment);
    if (!count) return count.error();
    total += *count;
    if (segment.nproc && (options.nnodes || options.hosts || options.hostfile)) {
      return refuse(
          "{} counts the workers of each host, and a program's ranks may be on several: "
          "say -n",
          segment.nproc.source);
    }
    open |= segment.ranks == "*";
    if (segment.ranks.empty() || segment.ranks == "*") continue;
    auto ranks = parse_rank_set(segment.ranks, kMaxWorkers);
    if (!ranks) return ranks.error();
    highest = std::max(highest, *ranks->rbegin());
  }
  if (total > kMaxWorkers)
    return refuse("the programs have {} workers, more than {}", total, kMaxWorkers);
  const bool counted = options.np || options.nproc || options.hosts || options.hostfile ||
                       options.nnodes || options.host_discovery_script;
  return total > 0 || open || counted ? total : highest + 1;
}

// A value from the environment or a --config file may be meant for jobs without a program.
bool is_meant(const Options& options) {
  return options.app && (options.app.flag || (options.program.empty() && options.segments.empty()));
}

Result<std::vector<Segment>> segments_in_file(const Machine& machine, const Options& options) {
  if (options.app && options.multi_prog) {
    return refuse("{} and {} contradict each other", options.app.source, options.multi_prog.source);
  }
  if (options.app) {
    if (!options.program.empty() || !options.segments.empty()) {
      return refuse("{} names a file of programs, and the command line a program, too: '{}'",
                    options.app.source,
                    options.program.empty() ? options.segments[0].program[0] : options.program[0]);
    }
    if (options.np || options.nproc) {
      const Text& count = options.np ? options.np : options.nproc;
      if (count.flag)
        return refuse("{}: {} says how many workers each program has", count.source, *options.app);
    }
    auto text = machine.read_file(*options.app);
    if (!text) return text.error();
    return parse_app_file(*text, *options.app);
  }
  if (options.program.size() != 1) {
    return refuse("{} takes one file and nothing after it: dlaunch -n N --multi-prog FILE",
                  options.multi_prog.source);
  }
  auto text = machine.read_file(options.program[0]);
  if (!text) return text.error();
  return parse_multi_prog(*text, options.program[0]);
}

Error in_program(std::size_t number, Error error) {
  error.what = fmt::format("program {}: {}", number, error.what);
  return error;
}

// The ranks of this segment, if each rank needs one.
Result<RankSet> ranks_for(const Segment& segment, int& next, const RankSet& named, int total) {
  RankSet ranks;
  if (segment.ranks.empty()) {
    auto count = count_of(segment);
    if (!count) return count.error();
    for (int i = 0; i < *count; ++i) ranks.insert(next++);
    return ranks;
  }
  if (segment.ranks != "*") return parse_rank_set(segment.ranks, kMaxWorkers);
  if (total == 0) return refuse("'*' needs a number of workers that is known: say -n");
  for (int rank = 0; rank < total; ++rank) {
    if (!named.contains(rank)) ranks.insert(rank);
  }
  return ranks;
}

// Each rank must have a program; `all`: the ranks that have one.
Result<void> check_ranks(const Plan& plan, const RankSet& all) {
  const int total = plan.nodes.total;
  if (total == 0) return {};
  if (!all.empty() && *all.rbegin() >= total) {
    return refuse("rank {} has a program, but the job has {} workers", *all.rbegin(), total);
  }
  for (int rank = 0; rank < total; ++rank) {
    if (!all.contains(rank)) return refuse("rank {} of {} has no program", rank, total);
  }
  return {};
}

Result<void> plan_several(PlanDraft& draft) {
  Plan& plan = draft.plan();
  RankSet named, all;
  for (const Segment& segment : draft.options.segments) {
    if (segment.ranks.empty() || segment.ranks == "*") continue;
    auto ranks = parse_rank_set(segment.ranks, kMaxWorkers);
    if (!ranks) return ranks.error();
    named.insert(ranks->begin(), ranks->end());
  }
  int next = 0;
  for (const Segment& segment : draft.options.segments) {
    const auto number = static_cast<std::size_t>(&segment - draft.options.segments.data());
    JobProgram program;
    program.segment = number;
    program.chdir = segment.chdir.value.value_or("");
    const Switch& module = segment.module ? segment.module : draft.options.module;
    const Switch& no_python = segment.no_python ? segment.no_python : draft.options.no_python;
    const std::string& chdir = program.chdir.empty() ? plan.chdir : program.chdir;
    auto argv = argv_for(draft, {segment.program, module, no_python, chdir});
    if (!argv) return in_program(number, argv.error());
    program.argv = std::move(*argv);
    if (auto done = add_env(draft, segment.env, program.env); !done) {
      return in_program(number, done.error());
    }
    auto ranks = ranks_for(segment, next, named, plan.nodes.total);
    if (!ranks) return in_program(number, ranks.error());
    if (ranks->empty()) continue;  // '*' with no rank left
    program.ranks = std::move(*ranks);
    all.insert(program.ranks.begin(), program.ranks.end());
    plan.programs.push_back(std::move(program));
  }
  if (plan.programs.empty()) return refuse("no rank has a program");
  plan.argv = plan.programs[0].argv;
  return check_ranks(plan, all);
}

}  // namespace

// An empty PYTHON_EXEC counts as not set.
std::string python_of(const Machine& machine) {
  const std::string said = machine.environment("PYTHON_EXEC").value_or("");
  return said.empty() ? "python3" : said;
}

Result<void> read_programs(const Machine& machine, Options& options) {
  if (!is_meant(options)) options.app = {};
  if (options.app || options.multi_prog) {
    if (options.multi_prog && !options.segments.empty()) {
      return refuse("{} and ':' contradict each other", options.multi_prog.source);
    }
    auto segments = segments_in_file(machine, options);
    if (!segments) return segments.error();
    options.segments = std::move(*segments);
  }
  if (options.segments.empty()) return {};
  options.program = options.segments[0].program;
  auto total = total_of(options);
  if (!total) return total.error();
  if (*total > 0) options.np = {std::to_string(*total), "-n of all programs", true};
  return {};
}

Result<void> plan_programs(PlanDraft& draft) {
  const Options& options = draft.options;
  if (!draft.gpu_list.empty()) {
    draft.plan().env.emplace_back("CUDA_VISIBLE_DEVICES", draft.gpu_list);
  }
  if (auto done = add_env(draft, options.env, draft.plan().env); !done) return done;
  if (!options.segments.empty()) return plan_several(draft);
  if (options.program.empty()) {
    return options.module ? refuse("no module given: dlaunch -m MODULE [argument ...]")
                          : refuse("no program given: dlaunch [options] program [argument ...]");
  }
  auto argv =
      argv_for(draft, {options.program, options.module, options.no_python, draft.plan().chdir});
  if (!argv) return argv.error();
  draft.plan().argv = std::move(*argv);
  return {};
}

// A rank keeps its program: no option may move it to a process that runs another one.
Result<void> check_programs(PlanDraft& draft) {
  const Options& options = draft.options;
  const Plan& plan = draft.plan();
  if (plan.programs.size() < 2) return {};
  const auto no = [&](const std::string& source, const char* why) {
    return refuse("{}: {}, and ranks of this job run different programs", source, why);
  };
  if (plan.spares > 0) return no(options.spares.source, "a spare takes any rank's place");
  if (options.min_nproc && plan.min_nproc < plan.nproc) {
    return no(options.min_nproc.source, "a smaller job gives its ranks new numbers");
  }
  if (options.max_nproc && plan.max_nproc > plan.nproc) {
    return no(options.max_nproc.source, "nothing says which program more ranks would run");
  }
  if (draft.discovers) {
    return no(options.host_discovery_script.source, "hosts come and go with their ranks");
  }
  if (plan.nodes.min < plan.nodes.max) {
    return no(options.nnodes.source, "a smaller job gives its ranks new numbers");
  }
  return {};
}

}  // namespace dlaunch
