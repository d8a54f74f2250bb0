// dlaunchctl: one question to one job of this user, and its answer.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "base/print.h"
#include "cli/ctl/follow.h"
#include "cli/ctl/jobs.h"
#include "cli/ctl/options.h"
#include "cli/ctl/render.h"
#include "cli/ctl/top.h"

namespace dlaunch::ctl {
namespace {

using nlohmann::json;
using Command = ControlRequest::Command;

std::string list(bool as_json) {
  const auto jobs = running_jobs();
  if (!as_json) return render_list(jobs);
  json all = json::array();
  for (const auto& job : jobs) {
    const auto known = [](const std::string& text) { return text.empty() ? json() : json(text); };
    all.push_back({{"folder", job.folder},
                   {"status", job.status},
                   {"job_id", known(id_of(job))},
                   {"led_by", known(job.led.by)}});
  }
  return all.dump(2) + "\n";
}

// The name of the member that holds an answer.
const char* answer_key(Command command) {
  if (command == Command::status) return "status";
  if (command == Command::goodput) return "goodput";
  return command == Command::stacks ? "stacks" : "done";
}

RunningJob remote_job(const Options& options) {
  auto remote = parse_leader(options.leader);
  if (!remote) throw Failure{kExitUsage, "--leader: " + remote.error().what};
  auto secret = Secret::load(options.secret_file);
  if (!secret) throw Failure{kExitNoInput, "--secret-file: " + secret.error().what};
  secret->set_encrypts(options.tls);
  remote->job_id = options.job;
  remote->secret = *secret;
  return {.folder = "", .status = nullptr, .remote = *remote};
}

std::string run(const Options& options, int& exit_code) {
  if (!options.say.empty()) return options.say;
  if (!options.request && !options.wait) return list(options.json);
  const auto jobs = options.leader.empty() ? running_jobs() : std::vector{remote_job(options)};
  const RunningJob& job = options.leader.empty() ? choose(jobs, options.job) : jobs.front();
  if (options.wait) return exit_code = run_wait(job, options.timeout), "";
  const Command command = options.request->command;
  if (command == Command::top) return run_top(job, options), "";
  if (command == Command::events) return run_events(job, options.follow), "";
  if (command == Command::tail) return run_tail(job, options), "";
  const json answer = ask(job, *options.request).at(answer_key(command));
  if (options.json) return answer.dump(2) + "\n";
  if (command == Command::status) return render_status(answer);
  if (command == Command::stacks) return render_stacks(answer);
  if (command == Command::goodput) return render_goodput(answer);
  return answer.get<std::string>() + "\n";
}

}  // namespace
}  // namespace dlaunch::ctl

int main(int argc, char** argv) {
  using namespace dlaunch;
  try {
    const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
    int exit_code = kExitOk;
    const std::string text = ctl::run(ctl::read_options(words), exit_code);
    if (print_all(text)) return exit_code;
    std::perror("dlaunchctl: write to stdout");
    return kExitSystem;
  } catch (const ctl::Failure& e) {
    std::fprintf(stderr, "dlaunchctl: %s\n", e.what.c_str());
    return e.exit_code;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "dlaunchctl: the job's answer makes no sense: %s\n", e.what());
    return kExitInternal;
  }
}
