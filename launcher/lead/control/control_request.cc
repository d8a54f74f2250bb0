#include "launcher/lead/control/control_request.h"

#include <signal.h>

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace dlaunch {
namespace {

using nlohmann::json;
using ControlCommand = ControlRequest::Command;

struct CommandRow {
  const char* name;
  ControlCommand command;
  const char* key;  // of its number; nullptr: it has none
  bool needs_number;
};
constexpr CommandRow kCommands[] = {
    {"status", ControlCommand::status, nullptr, false},
    {"resize", ControlCommand::resize, "size", true},
    {"restart", ControlCommand::restart, "rank", true},
    {"stacks", ControlCommand::stacks, "rank", false},
    {"stop", ControlCommand::stop, nullptr, false},
    {"top", ControlCommand::top, nullptr, false},
    {"drain", ControlCommand::drain, nullptr, false},
    {"undrain", ControlCommand::undrain, nullptr, false},
    {"goodput", ControlCommand::goodput, nullptr, false},
    {"events", ControlCommand::events, nullptr, false},
    {"tail", ControlCommand::tail, "rank", true},
};

Result<int> number_in(const json& value, const char* key) {
  const bool fits =
      value.is_number_integer() && value >= 0 && value <= std::numeric_limits<int>::max();
  if (!fits) return protocol_error(fmt::format("\"{}\" is not a number from 0", key));
  return value.get<int>();
}

bool names_host(ControlCommand command) {
  return command == ControlCommand::drain || command == ControlCommand::undrain;
}

bool can_follow(ControlCommand command) {
  return command == ControlCommand::events || command == ControlCommand::tail;
}

const CommandRow* find_command(const json& object) {
  const auto found = object.find("command");
  if (found == object.end() || !found->is_string()) return nullptr;
  const auto* const row = std::ranges::find_if(kCommands, [&](const CommandRow& r) {
    return found->get_ref<const std::string&>() == r.name;
  });
  return row == std::end(kCommands) ? nullptr : row;
}

}  // namespace

Result<ControlRequest> parse_control_request(std::string_view text) {
  if (text.size() > kMaxControlRequest) return protocol_error("the request is too long");
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return protocol_error("the request is not a JSON object");
  const CommandRow* const row = find_command(object);
  if (row == nullptr) return protocol_error("the request has no command that this dlaunch knows");
  ControlRequest request{.command = row->command, .number = {}};
  for (const auto& [key, value] : object.items()) {
    if (key == "command") continue;
    if (key == "host" && names_host(row->command)) {
      if (!value.is_string()) return protocol_error("\"host\" is not a name");
      request.host = value.get<std::string>();
      continue;
    }
    if (key == "after" && can_follow(row->command)) {
      if (!value.is_number_unsigned()) return protocol_error("\"after\" is not a number from 0");
      request.after = value.get<std::uint64_t>();
      continue;
    }
    if (row->key == nullptr || key != row->key) {
      return protocol_error(fmt::format("\"{}\" has no meaning for {}", escaped(key), row->name));
    }
    auto number = number_in(value, row->key);
    if (!number) return number.error();
    request.number = *number;
  }
  if (names_host(row->command) && request.host.empty()) {
    return protocol_error(fmt::format("{} needs a \"host\"", row->name));
  }
  if (row->needs_number && !request.number) {
    return protocol_error(fmt::format("{} needs a \"{}\"", row->name, row->key));
  }
  return request;
}

std::string encode(const ControlRequest& request) {
  const CommandRow& row = kCommands[static_cast<int>(request.command)];
  json object = {{"command", row.name}};
  if (request.number) object[row.key] = *request.number;
  if (!request.host.empty()) object["host"] = request.host;
  if (request.after) object["after"] = *request.after;
  return object.dump();
}

namespace {

ControlDecision refuse(std::string why) { return {.refused = std::move(why)}; }

ControlDecision order(JobCore::Event event, std::string done) {
  return {.event = event, .done = std::move(done)};
}

bool is_over(const JobStatus& job) {
  return job.state == JobState::ending || job.state == JobState::ended;
}

std::string workers(int count) {
  return count == 1 ? "1 worker" : fmt::format("{} workers", count);
}

const WorkerStatus* of_rank(const JobStatus& job, int rank) {
  const auto found = std::ranges::find(job.workers, rank, &WorkerStatus::rank);
  return rank < 0 || found == job.workers.end() ? nullptr : &*found;
}

ControlDecision no_such_rank(const JobStatus& job, int rank) {
  return refuse(dlaunch::no_such_rank(rank, job.size));
}

// Why its size cannot change now; "": it can.
std::string why_fixed(const JobStatus& job) {
  const auto is = [&](auto what) {
    return std::ranges::any_of(
        job.workers, [&](const WorkerStatus& worker) { return worker.rank >= 0 && what(worker); });
  };
  if (!is([](const WorkerStatus& worker) { return worker.linked; })) {
    return "its program does not take part in elastic rounds, or not yet: see dl_rejoin in "
           "dlring(3)";
  }
  if (is([](const WorkerStatus& worker) { return worker.state == "done"; })) {
    return "some of its workers have finished already";
  }
  return "";
}

const HostStatus* find_host(const JobStatus& job, const std::string& name) {
  const auto found = std::ranges::find_if(job.all_hosts, [&](const HostStatus& host) {
    return !host.name.empty() && (host.name == name || host.listed_as == name);
  });
  return found == job.all_hosts.end() ? nullptr : &*found;
}

ControlDecision no_such_host(const JobStatus& job, const std::string& name) {
  std::string names;
  for (const HostStatus& host : job.all_hosts) {
    if (!host.name.empty()) names += (names.empty() ? "" : ", ") + host.name;
  }
  return refuse(fmt::format("there is no host {} in this job: {}", escaped(name), names));
}

ControlDecision drain(const JobStatus& job, const std::string& name) {
  const HostStatus* const host = find_host(job, name);
  if (host == nullptr) return no_such_host(job, name);
  if (host->drained) return refuse(fmt::format("host {} is drained already", host->name));
  if (job.several_programs) {
    return refuse(
        "its ranks run different programs, and a smaller job would give them other ranks");
  }
  if (const std::string why = why_fixed(job); !why.empty()) return refuse(why);
  int others = 0;
  for (const HostStatus& other : job.all_hosts) {
    if (other.node != host->node && !other.drained) others += other.ranks;
  }
  if (host->ranks > 0 && others < std::max(job.min_size, 1)) {
    return refuse(
        fmt::format("the job cannot continue with fewer than {} (--nnodes MIN:MAX, "
                    "--min-nproc), and its other hosts have {}",
                    workers(job.min_size), others));
  }
  const auto leaving = std::ranges::count_if(job.workers, [&](const WorkerStatus& worker) {
    return worker.rank >= 0 && worker.up && worker.host == host->name;
  });
  ControlDecision decision;
  decision.drain = *host;
  decision.done =
      fmt::format("host {} is drained: its {} at the next commit", host->name,
                  leaving == 1 ? "worker leaves" : fmt::format("{} workers leave", leaving));
  if (leaving == 0) decision.done = fmt::format("host {} is drained", host->name);
  return decision;
}

ControlDecision undrain(const JobStatus& job, const std::string& name) {
  const HostStatus* const host = find_host(job, name);
  if (host == nullptr) return no_such_host(job, name);
  if (!host->drained) return refuse(fmt::format("host {} is not drained", host->name));
  ControlDecision decision;
  decision.drain = *host;
  decision.done = fmt::format("host {} may have workers again", host->name);
  if (host->left && host->listed_as.empty()) decision.done += ": start dlaunch there";
  return decision;
}

ControlDecision resize(const JobStatus& job, int size) {
  if (job.several_programs) {
    return refuse("its ranks run different programs, which a resize would give other ranks");
  }
  if (size < 1 || size > job.max_size) {
    return refuse(fmt::format("this job may have from 1 to {} (see --max-nproc), not {}",
                              workers(job.max_size), size));
  }
  if (const std::string why = why_fixed(job); !why.empty()) return refuse(why);
  if (size == job.size) return order(JobCore::Resize{size}, "the job has " + workers(size));
  return order(JobCore::Resize{size},
               fmt::format("the job goes from {} to {}", workers(job.size), size));
}

ControlDecision restart(const JobStatus& job, int rank) {
  const WorkerStatus* const worker = of_rank(job, rank);
  if (worker == nullptr) return no_such_rank(job, rank);
  if (!worker->up) return refuse(fmt::format("rank {} does not run: {}", rank, worker->state));
  return order(
      JobCore::Replace{worker->slot, FailureKind::voluntary},
      fmt::format("rank {} ({}) is restarted{}", rank,
                  worker->pid > 0 ? fmt::format("pid {}", worker->pid) : "on host " + worker->host,
                  worker->linked ? "" : ", and with it all that are not elastic"));
}

ControlDecision stacks(const JobStatus& job, std::optional<int> rank) {
  ControlDecision decision;
  if (rank) {
    const WorkerStatus* const worker = of_rank(job, *rank);
    if (worker == nullptr) return no_such_rank(job, *rank);
    if (worker->pid == 0 && worker->up) {
      return refuse(
          fmt::format("rank {} runs on host {}, which does not answer", *rank, worker->host));
    }
    if (worker->pid == 0)
      return refuse(fmt::format("rank {} has no process: {}", *rank, worker->state));
    decision.stacks_of.push_back(*worker);
    return decision;
  }
  for (const auto& worker : job.workers) {
    if (worker.pid > 0) decision.stacks_of.push_back(worker);
  }
  return decision;
}

}  // namespace

std::string no_such_rank(int rank, int size) {
  return fmt::format("there is no rank {}: the job has {}, counted from 0", rank, workers(size));
}

ControlDecision decide(const ControlRequest& request, const JobStatus& job) {
  const bool changes = request.command == ControlCommand::resize ||
                       request.command == ControlCommand::restart || names_host(request.command);
  if (changes && is_over(job)) return refuse("the job is ending");
  if (job.state == JobState::idle && (changes || request.command == ControlCommand::stacks ||
                                      request.command == ControlCommand::goodput)) {
    return refuse("the job has not begun, it waits for " + job.waits_for);
  }
  switch (request.command) {
    case ControlCommand::status:
    case ControlCommand::top:
    case ControlCommand::goodput:
    case ControlCommand::events:
    case ControlCommand::tail:
      return {};
    case ControlCommand::resize:
      return resize(job, request.number.value_or(-1));
    case ControlCommand::restart:
      return restart(job, request.number.value_or(-1));
    case ControlCommand::stacks:
      return stacks(job, request.number);
    case ControlCommand::drain:
      return drain(job, request.host);
    case ControlCommand::undrain:
      return undrain(job, request.host);
    case ControlCommand::stop:
      if (job.state == JobState::ended) return refuse("the job has ended");
      return order(JobCore::Signal{SIGTERM}, "the job gets SIGTERM");
  }
  return {};
}

std::string refer_to(const Referral& to) {
  return json{{"ok", false},
              {"error",
               fmt::format("job {} is led from host {}: ask dlaunchctl there", to.job_id, to.host)},
              {"job_id", to.job_id},
              {"led_by", to.host},
              {"leader", to.leader},
              {"tls", to.tls}}
      .dump();
}

}  // namespace dlaunch
