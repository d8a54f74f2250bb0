// --end-signal: the signal to workers before Slurm's time for the job is up.
#include <signal.h>

#include <algorithm>

#include "base/contract.h"
#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

using std::chrono::seconds;

constexpr auto kSignals = std::to_array<std::pair<std::string_view, int>>(
    {{"TERM", SIGTERM}, {"INT", SIGINT}, {"HUP", SIGHUP}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}});

// "USR1@5m", "TERM@30". False: none.
Result<bool> asked_signal(const Text& option, int& signal, Duration& lead) {
  if (!option) return true;
  if (*option == "none") return false;
  const auto at = (*option).find('@');
  if (at == std::string::npos) {
    return refuse("{}: '{}' is not SIGNAL@TIME, as USR1@5m, or none", option.source, *option);
  }
  Text name{(*option).substr((*option).starts_with("SIG") ? 3 : 0), option.source};
  name.value = (*name).substr(0, (*name).find('@'));
  auto number = one_of(name, kSignals);
  if (!number) return number.error();
  signal = *number;
  auto ok = set_duration({(*option).substr(at + 1), option.source}, lead);
  if (!ok) return ok.error();
  return true;
}

std::string_view name_of(int signal) {
  return std::find_if(kSignals.begin(), kSignals.end(),
                      [=](const auto& one) { return one.second == signal; })
      ->first;
}

}  // namespace

Result<void> plan_end_signal(PlanDraft& draft) {
  const Text& option = draft.options.end_signal;
  Plan& plan = draft.plan();
  plan.end_signal = SIGTERM;
  Duration lead = plan.grace + seconds(5);
  auto wanted = asked_signal(option, plan.end_signal, lead);
  if (!wanted) return wanted.error();
  const auto job = draft.machine.environment("SLURM_JOB_ID");
  const bool leads = !draft.joins && plan.nodes.lead != NodesPlan::Lead::no;
  // Workers of an outer job get the signal from the dlaunch that started them.
  const bool may_end = job && !draft.machine.environment(contract::kRound);
  if (is_mistaken(option) && !may_end && leads) {
    return refuse("{} has no effect outside a job of Slurm", option.source);
  }
  if (!*wanted || !may_end || !leads) return {};
  const auto left = draft.machine.slurm_time_left(*job);
  if (!left) return {};
  plan.end_signal_after = std::max(*left - lead, Duration::zero());
  draft.built.notes.push_back(
      fmt::format("Slurm gives this job another {}; SIG{} to the workers {} "
                  "before",
                  format_duration(*left), name_of(plan.end_signal), format_duration(lead)));
  return {};
}

}  // namespace dlaunch
