// dlaunch: parse, plan, run.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/print.h"
#include "base/secret.h"
#include "base/version.h"
#include "cli/build_flags.h"
#include "cli/check_build.h"
#include "cli/doctor/doctor.h"
#include "cli/doctor/gpu_facts.h"
#include "cli/doctor/host_test.h"
#include "cli/emit_kubernetes.h"
#include "cli/help.h"
#include "cli/help_topics.h"
#include "cli/plan_builder.h"
#include "cli/report/run_report.h"
#include "cli/ssh_node.h"
#include "launcher/agent/agent.h"
#include "launcher/lead/start/pbs_login.h"
#include "launcher/lead/start/ssh_login.h"
#include "launcher/lead/start/ssh_talk.h"
#include "launcher/node/mpi/pmix_program.h"
#include "launcher/node/watch/gpu_watch.h"
#include "launcher/node/watch/health_check.h"

namespace dlaunch {
namespace {

// Prints our own text on stdout; fails for a full disk, but not for a reader that has left.
int print(const std::string& text) {
  if (print_all(text)) return kExitOk;
  std::perror("dlaunch: write to stdout");
  return kExitSystem;
}

int give_up(const Error& error) {
  std::fputs(error_text(error).c_str(), stderr);
  return exit_code_of(error);
}

void tell(const BuiltPlan& built) {
  for (const auto& line : built.warnings) log_warn("{}", line);
  for (const auto& line : built.notes) log_info("{}", line);
  for (const auto& line : built.bindings) std::fprintf(stderr, "%s\n", line.c_str());
}

// Judges the job as pod 0 would here.
Result<std::string> kubernetes_text(const Options& options) {
  Options here = options;
  here.hosts = here.hostfile = here.ssh_command = here.master_addr = {};
  here.topology = here.rack = {};
  here.secret_file = {"the Secret's", options.emit.source};
  here.node_rank = {"0", "--node-rank"};
  here.rdzv = {"tcp://localhost:29400", "--rdzv"};
  auto built = build_plan(here, as_pod(this_machine(), options));
  if (!built) return built.error();
  Options seen = options;
  seen.segments = built->segments;
  auto job = kubernetes_job(seen, built->plan);
  auto secret = Secret::random();
  if (!job || !secret) return job ? secret.error() : job.error();
  job->secret = secret->bytes();
  for (const auto& line : built->warnings) log_warn("{}", line);
  return kubernetes_yaml(*job);
}

int emit(const Options& options) {
  set_log_level(log_level_of(options));
  const auto text = kubernetes_text(options);
  return text ? print(*text) : give_up(text.error());
}

// `dlaunch help TOPIC`.
int help(const std::string& topic) {
  const auto text = topic_text(topic);
  return text ? print(*text) : give_up(text.error());
}

int run(const std::vector<std::string>& given) {
  if (!given.empty() && given[0] == kHelpWord && given.size() <= 2) {
    return help(given.size() == 2 ? given[1] : "");
  }
  if (!given.empty() && given[0] == kReportWord) {
    return run_report({given.begin() + 1, given.end()});
  }
  const bool doctor = !given.empty() && given[0] == kDoctorWord;
  const bool tests = given.size() == 3 && given[0] == kHostTestWord;
  auto options = read_options(doctor  ? doctor_words({given.begin() + 1, given.end()})
                              : tests ? host_test_words(given[1], given[2])
                                      : given);
  if (!options) return give_up(options.error());
  if (options->help_all) return print(help_all_text());
  if (options->help) return print(help_text());
  if (options->check_build) return print(build_text());
  if (options->version) return print("dlaunch " DLAUNCH_VERSION "\n");
  if (options->cflags || options->libs) {
    const auto flags = own_build_flags(*options);
    return flags ? print(*flags + "\n") : give_up(flags.error());
  }

  if (doctor) {
    if (auto ok = check_doctor(*options); !ok) return give_up(ok.error());
    options = doctor_options(std::move(*options));
  }
  if (auto ok = check_emit(*options); !ok) return give_up(ok.error());
  if (options->emit) return emit(*options);
  auto built = build_plan(*options, this_machine());
  if (!built) return give_up(built.error());
  built->plan.says_all = doctor || tests;
  set_log_level(log_level_of(*options));
  tell(*built);
  if (options->dry_run) return print(describe(built->plan));
  return run_job(built->plan);
}

// The words with which dlaunch starts itself for a part of its work. The word counts only with that
// many arguments; else it is a program of the user.
using Arguments = std::vector<std::string>;
struct OwnWord {
  const char* word;
  std::size_t least, most;  // arguments
  int (*run)(const Arguments& arguments);
};
constexpr std::size_t kAny = SIZE_MAX;
constexpr OwnWord kOwnWords[] = {
    {kSshNodeWord, 0, kAny, [](const Arguments& a) { return run_ssh_node(a.empty() ? "" : a[0]); }},
    {kSshLoginWord, 0, kAny, run_ssh_login},
    {kSshConnectWord, 0, kAny, run_ssh_connect},
    {kPbsLoginWord, 0, kAny, run_pbs_login},
    {kPbsTaskWord, 1, 1,
     [](const Arguments& a) {
       const int code = connect_pbs_task(a[0]);
       return code == kExitOk ? run_ssh_node("") : code;
     }},
    {kPmixServerWord, 0, 0, [](const Arguments&) { return run_pmix_server(); }},
    {kGpuFiguresWord, 0, 0, [](const Arguments&) { return run_gpu_figures(); }},
    {kGpuTestWord, 1, 1, [](const Arguments& a) { return run_gpu_test(a[0] == "speed"); }},
    {kDoctorWorkerWord, 0, 0, [](const Arguments&) { return run_doctor_worker(); }},
    {kHostTestWorkerWord, 1, 1, [](const Arguments& a) { return run_host_test_worker(a[0]); }},
};

int run_words(const std::vector<std::string>& words) {
  if (words.empty()) return run(words);
  const std::size_t arguments = words.size() - 1;
  for (const OwnWord& own : kOwnWords) {
    if (words[0] != own.word || arguments < own.least || arguments > own.most) continue;
    return own.run({words.begin() + 1, words.end()});
  }
  return run(words);
}

}  // namespace
}  // namespace dlaunch

int main(int argc, char** argv) {
  return dlaunch::run_words({argv + (argc > 0 ? 1 : 0), argv + argc});
}
