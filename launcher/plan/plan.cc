#include "launcher/plan/plan.h"

#include <array>

#include <fmt/format.h>

#include "base/fnv1a.h"
#include "base/text.h"
#include "base/units.h"
#include "base/version.h"

namespace dlaunch {

const char* name_of(Starter starter) {
  static constexpr std::array kNames = {"ssh", "srun", "pbsdsh", "blaunch", "qrsh", "flux"};
  return kNames[static_cast<std::size_t>(starter)];
}

std::string NodesPlan::where_elected() const {
  if (!etcd) return "the folder " + folder;
  std::string text;
  for (const auto& server : etcd->endpoints) {
    text += (text.empty() ? "etcd at " : ", ") + to_string(server);
  }
  return text;
}

std::string NodesPlan::rack_of(int number, const std::string& host, const std::string& said) const {
  if (!said.empty()) return said;
  std::string found = rack_in(racks, host);
  const auto place = static_cast<std::size_t>(number);
  const bool listed = number >= 0 && place < hosts.size();
  return found.empty() && listed ? rack_in(racks, hosts[place].name) : found;
}

const JobRole* role_of(const std::vector<JobRole>& roles, int rank) {
  for (const JobRole& role : roles) {
    if (rank >= role.first && rank < role.first + role.count) return &role;
  }
  return nullptr;
}

std::set<int> serving_ranks(const std::vector<JobRole>& roles) {
  std::set<std::string_view> names;
  for (const JobRole& role : roles) names.insert(role.name);
  const bool chief_assigns = names.contains("ps") && names.contains("chief");
  std::set<int> ranks;
  for (const JobRole& role : roles) {
    if (role.name != "ps" && !(chief_assigns && role.name == "worker")) continue;
    for (int i = 0; i < role.count; ++i) ranks.insert(role.first + i);
  }
  return ranks;
}

std::string in_words(const RankChoice& choice) {
  if (choice.all) return "all ranks";
  return (choice.ranks.size() == 1 ? "rank " : "ranks ") + format_rank_set(choice.ranks);
}

std::string stdin_of(const Plan& plan) {
  if (plan.stdin_to == StdinPlan::none) return "none";
  return plan.stdin_to == StdinPlan::all ? "all" : std::to_string(plan.stdin_rank);
}

int Plan::program_of(int rank) const {
  for (std::size_t number = 0; number < programs.size(); ++number) {
    if (programs[number].ranks.contains(rank)) return static_cast<int>(number);
  }
  return 0;
}

const std::vector<std::string>& Plan::argv_of(int rank) const {
  return programs.empty() ? argv : programs[static_cast<std::size_t>(program_of(rank))].argv;
}

const std::vector<std::string>& Plan::command_of(int rank) const {
  if (!debugging.under.has(rank)) return argv_of(rank);
  return debugging.commands.at(static_cast<std::size_t>(program_of(rank)));
}

const std::string& Plan::chdir_of(int rank) const {
  if (programs.empty()) return chdir;
  const auto& own = programs[static_cast<std::size_t>(program_of(rank))].chdir;
  return own.empty() ? chdir : own;
}

namespace {

std::string quoted_words(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : " ") + shell_quoted(word);
  return out;
}

// The ranks of each program, for hosts to compare; without paths, because they may differ.
std::string shares_of(const Plan& plan) {
  std::string text;
  for (const JobProgram& program : plan.programs) {
    text += (text.empty() ? ", programs of ranks " : " : ") + format_rank_set(program.ranks);
  }
  return text;
}

std::string sites_of(const SitesPlan& sites) {
  if (sites.list.empty()) return "";
  return fmt::format(", --sites {}, --site {}", to_string(sites.list), sites.own);
}

// Each host that may be elected has the file.
std::string topology_of(const NodesPlan& nodes) {
  if (!nodes.elects() || nodes.racks.empty()) return "";
  Fnv1a sum;
  for (const auto& [host, rack] : nodes.racks) sum.add(host + " " + rack + "\n");
  return fmt::format(", --topology of {} hosts ({:016x})", nodes.racks.size(), sum.value());
}

std::string roles_of(const Plan& plan) {
  std::string text;
  for (const JobRole& role : plan.roles) {
    text += fmt::format("{}{}={}", text.empty() ? ", --roles " : ",", role.name, role.count);
  }
  return text;
}

}  // namespace

std::string command_line(const Plan& plan) {
  if (plan.programs.empty()) return quoted_words(plan.argv);
  std::string text;
  for (const JobProgram& program : plan.programs) {
    text += (text.empty() ? "" : " : ") + quoted_words(program.argv);
  }
  return text;
}

std::string what_must_agree(const Plan& plan) {
  const auto& nodes = plan.nodes;
  const std::string patience = nodes.host_timeout == NodesPlan().host_timeout
                                   ? ""
                                   : ", --host-timeout " + format_duration(nodes.host_timeout);
  return fmt::format("dlaunch {}, --nnodes {}:{}{}{}{}{}{}", DLAUNCH_VERSION, nodes.min, nodes.max,
                     patience, shares_of(plan), roles_of(plan), sites_of(plan.sites),
                     topology_of(nodes));
}

}  // namespace dlaunch
