#include "cli/ctl/options.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "base/exit_code.h"
#include "base/nearest.h"
#include "base/units.h"
#include "base/version.h"

namespace dlaunch::ctl {
namespace {

using Command = ControlRequest::Command;

// The words of a command besides its name.
struct Words {
  Options options;
  int number = -1;
  std::string host, timeout;
};

CLI::App* declare(CLI::App& app, const char* name, const char* help) {
  CLI::App* command = app.add_subcommand(name, help);
  command->fallthrough();  // --job may come after the command, too
  return command;
}

void declare_all(CLI::App& app, Words& words) {
  app.add_option("--job", words.options.job, "the job's id (default: the only job that runs)")
      ->type_name("ID");
  auto* const leader =
      app.add_option("--leader", words.options.leader,
                     "ask a job that is led from another machine; the value is that of its --rdzv");
  auto* const secret = app.add_option("--secret-file", words.options.secret_file,
                                      "with --leader: the --secret-file of that job");
  leader->type_name("HOST:PORT")->needs(secret)->needs("--job");
  secret->type_name("FILE")->needs(leader);
  app.add_flag("--tls", words.options.tls, "with --leader: that job has --tls")->needs(leader);
  const auto may_be_json = [&words](CLI::App* command) {
    command->add_flag("--json", words.options.json, "print JSON");
  };
  const auto sends = [&words](CLI::App* command, Command what) {
    command->callback([&words, what] { words.options.request = ControlRequest{what, {}}; });
  };
  const auto number = [&words](CLI::App* command, const char* name, const char* help) {
    return command->add_option(name, words.number, help)->check(CLI::Range(0, 1 << 30));
  };

  CLI::App* status = declare(app, "status", "show what the job and its workers are doing");
  may_be_json(status);
  sends(status, Command::status);
  CLI::App* top = declare(app, "top", "show the load of each worker, again and again");
  may_be_json(top);
  top->add_option("--interval", words.options.interval_s, "seconds between updates (1)")
      ->check(CLI::Range(0.1, 3600.0));
  top->add_flag("--once", words.options.once, "measure one interval, and print once");
  sends(top, Command::top);
  CLI::App* goodput = declare(app, "goodput", "show where the job's time went");
  may_be_json(goodput);
  sends(goodput, Command::goodput);
  CLI::App* events = declare(app, "events", "show what has happened in the job, as lines of JSON");
  events->add_flag("--follow", words.options.follow, "also print later events, until the job ends");
  sends(events, Command::events);
  CLI::App* tail = declare(app, "tail", "show the last lines of a worker's output");
  number(tail, "RANK", "the worker's rank")->required();
  tail->add_option("-n,--lines", words.options.lines, "how many (10)")->check(CLI::Range(0, 1000));
  tail->add_flag("-f,--follow", words.options.follow, "also print later lines, until the job ends");
  sends(tail, Command::tail);
  CLI::App* wait = declare(app, "wait", "wait for the job's end, and exit with its exit code");
  wait->callback([&words] { words.options.wait = true; });
  wait->add_option("--timeout", words.timeout, "wait for no longer, and exit with 75")
      ->type_name("TIME");
  CLI::App* list = declare(app, "list", "list this user's jobs on this machine");
  may_be_json(list);
  CLI::App* stacks = declare(app, "stacks", "show the stacks of the workers' threads");
  number(stacks, "RANK", "only the worker with this rank");
  may_be_json(stacks);
  sends(stacks, Command::stacks);
  CLI::App* resize = declare(app, "resize", "let an elastic job grow or shrink");
  number(resize, "WORKERS", "the new number of workers")->required();
  sends(resize, Command::resize);
  CLI::App* restart = declare(app, "restart", "put a new process in a worker's place");
  number(restart, "RANK", "the worker's rank")->required();
  sends(restart, Command::restart);
  const auto names_host = [&](CLI::App* command) {
    command->add_option("HOST", words.host, "the host's name")->required();
  };
  CLI::App* drain = declare(app, "drain", "let an elastic job continue without a host");
  names_host(drain);
  sends(drain, Command::drain);
  CLI::App* undrain = declare(app, "undrain", "let that host have workers again");
  names_host(undrain);
  sends(undrain, Command::undrain);
  sends(declare(app, "stop", "end the job, as SIGTERM to dlaunch does"), Command::stop);
}

// The nearest valid word: an option, also of the given command, or a command.
std::string suggestion(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  const auto add_options = [&](const CLI::App& of) {
    for (const CLI::Option* option : of.get_options()) {
      for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    }
  };
  if (word.starts_with('-')) {
    add_options(app);
    for (const CLI::App* command : app.get_subcommands()) add_options(*command);
  } else if (app.get_subcommands().empty()) {
    for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  }
  return did_you_mean(word, std::vector<std::string_view>(names.begin(), names.end()));
}

}  // namespace

Options read_options(const std::vector<std::string>& words) {
  CLI::App app{"Shows or changes a running job of dlaunch.", "dlaunchctl"};
  app.set_version_flag("--version", "dlaunchctl " DLAUNCH_VERSION);
  app.require_subcommand(1);
  Words found;
  declare_all(app, found);
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());  // CLI11 wants them reversed
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    found.options.say = app.help();
  } catch (const CLI::CallForVersion& e) {
    found.options.say = std::string(e.what()) + "\n";
  } catch (const CLI::ParseError& e) {
    const auto strange = app.remaining(true);
    const bool no_command = app.get_subcommands().empty();
    if (!strange.empty() && (no_command || strange.front().starts_with('-'))) {
      throw Failure{kExitUsage, "there is no '" + strange.front() + "'" +
                                    suggestion(app, strange.front()) + "; see --help"};
    }
    throw Failure{kExitUsage, std::string(e.what()) + "; see --help"};
  }
  if (!found.timeout.empty()) {
    const auto timeout = parse_duration(found.timeout);
    if (!timeout) throw Failure{kExitUsage, "--timeout: " + timeout.error().what};
    found.options.timeout = *timeout;
  }
  if (found.options.request && found.number >= 0) found.options.request->number = found.number;
  if (found.options.request) found.options.request->host = found.host;
  if (!found.options.request && !found.options.wait && !found.options.job.empty()) {
    throw Failure{kExitUsage, "list lists all jobs: leave out --job"};
  }
  return found.options;
}

}  // namespace dlaunch::ctl
