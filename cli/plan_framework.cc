// --framework and --roles: a framework's variables beside torchrun's.
#include <algorithm>
#include <numeric>
#include <set>

#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

// Other spellings.
constexpr WordTable<Framework, 2> kTheirFrameworks = {
    {{"tf", Framework::tensorflow}, {"keras", Framework::tensorflow}}};

bool is_name(std::string_view word) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  return !word.empty() && word.find_first_not_of(kLetters) == std::string_view::npos;
}

// TensorFlow allows only one of these.
bool is_alone(std::string_view role) { return role == "chief" || role == "master"; }

Result<JobRole> parse_role(const std::string& word, const std::string& source, int first) {
  const auto equals = std::min(word.find('='), word.size());
  JobRole role{word.substr(0, equals), first, 1};
  if (!is_name(role.name)) {
    return refuse("{}: '{}' is not NAME or NAME=N, as in chief,worker=3,ps=2", source, word);
  }
  if (equals == word.size()) return role;
  auto count = parse_int(word.substr(equals + 1), 1, kMaxWorkers, source + " " + role.name);
  if (!count) return count.error();
  role.count = *count;
  if (is_alone(role.name) && role.count > 1) {
    return refuse("{}: a job has one {}, not {}", source, role.name, role.count);
  }
  return role;
}

int size_of(const std::vector<JobRole>& roles) {
  return std::accumulate(roles.begin(), roles.end(), 0,
                         [](int sum, const JobRole& role) { return sum + role.count; });
}

// In the order of their ranks.
Result<std::vector<JobRole>> parse_roles(const Text& text) {
  std::vector<JobRole> roles;
  std::set<std::string> names;
  for (std::size_t at = 0; at <= (*text).size();) {
    const auto comma = std::min((*text).find(',', at), (*text).size());
    auto role = parse_role((*text).substr(at, comma - at), text.source, size_of(roles));
    if (!role) return role.error();
    if (!names.insert(role->name).second) {
      return refuse("{}: there are two roles '{}'", text.source, role->name);
    }
    roles.push_back(std::move(*role));
    at = comma + 1;
  }
  if (size_of(roles) > kMaxWorkers) {
    return refuse("{}: {} workers are more than {}", text.source, size_of(roles), kMaxWorkers);
  }
  const bool works = std::any_of(roles.begin(), roles.end(), [](const JobRole& role) {
    return role.name != "ps" && role.name != "evaluator";
  });
  if (!works) return refuse("{}: no role does the work: add chief, or worker=N", text.source);
  return roles;
}

// An import of one of these modules on a line of its own.
bool imports_any(std::string_view text, std::initializer_list<std::string_view> modules) {
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    const bool import = line.starts_with("import ");
    if (!import && !line.starts_with("from ")) continue;
    line.remove_prefix(import ? 7 : 5);
    const std::string_view name = line.substr(0, line.find_first_of(" .,\r"));
    if (std::find(modules.begin(), modules.end(), name) != modules.end()) return true;
  }
  return false;
}

// The script imports it itself. Its Python may lack the package dlaunch, which would see the
// import.
bool imports_tensorflow(const PlanDraft& draft, const std::vector<std::string>& argv) {
  const auto script = std::find_if(argv.begin(), argv.end(),
                                   [](const std::string& word) { return word.ends_with(".py"); });
  if (script == argv.end()) return false;
  const std::string& chdir = draft.plan().chdir;
  const bool relative = !script->starts_with('/') && !chdir.empty();
  const auto text = draft.machine.read_file(relative ? chdir + "/" + *script : *script);
  return text && imports_any(*text, {"tensorflow", "tf_keras"}) &&
         !imports_any(*text, {"horovod", "dlaunch"});
}

}  // namespace

Result<void> count_roles(Options& options) {
  if (!options.roles || options.np || options.nproc) return {};
  auto roles = parse_roles(options.roles);
  if (!roles) return roles.error();
  options.np = {std::to_string(size_of(*roles)), options.roles.source, options.roles.flag};
  return {};
}

Result<void> plan_framework(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  if (options.framework) {
    auto framework = one_of(options.framework, kFrameworkWords, kTheirFrameworks);
    if (!framework) return framework.error();
    plan.framework = *framework;
  } else if (plan.port_range.empty() && imports_tensorflow(draft, plan.argv)) {
    plan.framework = Framework::tensorflow_if_possible;
  }
  if (options.roles) {
    auto roles = parse_roles(options.roles);
    if (!roles) return roles.error();
    plan.roles = std::move(*roles);
  }
  const int total = plan.nodes.total;
  if (plan.framework == Framework::tensorflow && total > kMostPeers) {
    return refuse("{}: TF_CONFIG has room for {} workers, and the job has {}",
                  options.framework.source, kMostPeers, total);
  }
  return {};
}

// Each role keeps its ranks, so their number must not change.
Result<void> check_roles(PlanDraft& draft) {
  const Options& options = draft.options;
  const Plan& plan = draft.plan();
  if (plan.roles.empty()) return {};
  const int needed = size_of(plan.roles), total = plan.nodes.total;
  const bool sizes_vary = plan.min_nproc < plan.nproc || plan.max_nproc > plan.nproc ||
                          plan.nodes.min < plan.nodes.max || draft.discovers;
  if (sizes_vary) {
    return refuse("{}: its roles have {} ranks, and this job may get more or fewer",
                  options.roles.source, needed);
  }
  if (total == 0 || total == needed) return {};
  return refuse("{}: its roles have {} ranks, and the job has {}", options.roles.source, needed,
                total);
}

}  // namespace dlaunch
