#include "cli/ctl/jobs.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <set>

#include <fmt/format.h>

#include "base/exit_code.h"
#include "base/nearest.h"
#include "base/socket.h"
#include "base/units.h"
#include "cli/ctl/leader_wait.h"
#include "cli/ctl/options.h"
#include "launcher/process/job_dir.h"

namespace dlaunch::ctl {
namespace {

using nlohmann::json;
using Command = ControlRequest::Command;

constexpr int kExitRefused = 1;

Failure no_answer(const std::string& folder, const std::string& why) {
  return {kExitRendezvous, fmt::format("the job in {} does not answer: {}", folder, why)};
}

Failure no_answer(const RemoteJob& job, const Error& why) {
  return {.exit_code = kExitRendezvous,
          .what = fmt::format("job {} does not answer: {}", job.job_id, why.what),
          .lasts = why.code == Errc::auth};
}

// Stacks take up to 5 s for each few workers, later events come when they come, and the user may
// interrupt; other answers come at once, unless dlaunch was stopped.
TimePoint patience(const ControlRequest& request) {
  if (request.command == Command::stacks || request.after) return kNever;
  return steady_now() + std::chrono::seconds(5);
}

std::string exchange(const std::string& folder, const ControlRequest& request, TimePoint deadline) {
  auto socket = connect_unix_path(folder + "/" + kControlSocket, SOCK_STREAM);
  if (!socket) throw no_answer(folder, socket.error().what);
  const std::string text = encode(request);
  // The request always fits into the socket's buffer.
  if (::send(socket->get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) {
    throw no_answer(folder, errno_error("send", errno).what);
  }
  ::shutdown(socket->get(), SHUT_WR);
  std::string answer;
  char bytes[16384];
  while (true) {
    pollfd readable{socket->get(), POLLIN, 0};
    if (::poll(&readable, 1, poll_timeout_ms(steady_now(), deadline)) == 0 &&
        steady_now() >= deadline) {
      throw no_answer(folder, "is its dlaunch stopped?");
    }
    const ssize_t n = ::recv(socket->get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (n == 0) return answer;
    if (n > 0) {
      answer.append(bytes, static_cast<std::size_t>(n));
    } else if (errno != EAGAIN && errno != EINTR) {
      throw no_answer(folder, errno_error("receive", errno).what);
    }
  }
}

std::string exchange(const RunningJob& job, const ControlRequest& request, TimePoint until) {
  const TimePoint deadline = std::min(patience(request), until);
  if (!job.remote) {
    std::string text = exchange(job.folder, request, deadline);
    return text.empty() ? throw no_answer(job.folder, "it has just ended") : text;
  }
  const auto text = exchange_remotely(*job.remote, request, deadline);
  return text ? *text : throw no_answer(*job.remote, text.error());
}

template <class Json>
Json answer_of(const RunningJob& job, const ControlRequest& request, TimePoint until = kNever) {
  const std::string text = exchange(job, request, until);
  Json answer = Json::parse(text, nullptr, false);
  if (answer.is_discarded() && !job.remote) {
    throw no_answer(job.folder, "it has ended in the middle of its answer");
  }
  if (!answer.is_object() || !answer.contains("ok")) {
    throw Failure{kExitInternal,
                  "the job's answer makes no sense: is its dlaunch another version?"};
  }
  return answer;
}

std::string names(const std::vector<RunningJob>& jobs) {
  std::string text;
  for (const auto& job : jobs) {
    text += text.empty() ? "" : ", ";
    const std::string id = id_of(job);
    text += id.empty() ? fmt::format("one that does not answer ({})", job.folder) : id;
  }
  return text;
}

std::string similar_id(const std::vector<RunningJob>& jobs, const std::string& id) {
  std::vector<std::string> ids;
  ids.reserve(jobs.size());
  for (const auto& job : jobs) ids.push_back(id_of(job));
  return did_you_mean(id, std::vector<std::string_view>(ids.begin(), ids.end()));
}

// How to reach the leader of a job that a dlaunch here follows.
std::optional<RemoteJob> leader_of(const std::string& folder, const json& referral) {
  auto remote = parse_leader(referral.value("leader", ""));
  auto secret = Secret::load(folder + "/" + kSecretInJobDir);
  if (!remote || !secret) return {};
  secret->set_encrypts(referral.value("tls", false));
  remote->job_id = referral.value("job_id", "");
  remote->secret = *secret;
  return *remote;
}

}  // namespace

std::string id_of(const RunningJob& job) {
  return job.status.is_null() ? job.led.id : job.status["job_id"].get<std::string>();
}

namespace {

template <class Json>
Json granted(Json answer) {
  if (!answer["ok"].template get<bool>()) {
    throw Failure{kExitRefused, answer.value("error", "refused")};
  }
  return answer;
}

}  // namespace

json ask(const RunningJob& job, const ControlRequest& request) {
  return granted(answer_of<json>(job, request));
}

nlohmann::ordered_json ask_in_order(const RunningJob& job, const ControlRequest& request,
                                    TimePoint until) {
  return granted(answer_of<nlohmann::ordered_json>(job, request, until));
}

std::vector<RunningJob> running_jobs() {
  std::vector<RunningJob> jobs;
  for (const auto& folder : running_job_dirs(folder_for_jobs())) {
    RunningJob& job = jobs.emplace_back(RunningJob{folder, nullptr});
    try {
      const json answer = answer_of<json>(job, {Command::status, {}});
      job.status = answer.value("status", json());
      job.led = {answer.value("job_id", ""), answer.value("led_by", "")};
      if (!job.led.id.empty()) job.remote = leader_of(job.folder, answer);
    } catch (const Failure&) {
      // An unanswering job is listed, too.
    }
  }
  // With an elected leader, its host also has a dlaunch that follows.
  std::set<std::string> led_here;
  for (const auto& job : jobs) {
    if (!job.status.is_null()) led_here.insert(id_of(job));
  }
  std::erase_if(jobs, [&](const RunningJob& job) { return led_here.contains(job.led.id); });
  return jobs;
}

namespace {

bool leads(const RunningJob& job, TimePoint until) {
  try {
    return ask_in_order(job, {Command::status, {}}, until).at("status").at("phase") != "queued";
  } catch (const Failure&) {
    return false;
  }
}

void say(const std::string& what) { std::fprintf(stderr, "dlaunchctl: %s\n", what.c_str()); }

// Of the job with this id, or in this folder, where it may not answer just now.
std::optional<RunningJob> look_for(const std::string& id, const std::string& folder) {
  const auto jobs = running_jobs();
  const auto found = std::ranges::find_if(jobs, [&](const RunningJob& one) {
    const std::string its = id_of(one);
    return its == id || (its.empty() && one.folder == folder);
  });
  return found == jobs.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

// The job's leader may be lost when dlaunchctl begins: the user's limit is all that it knows then.
LedJob::LedJob(RunningJob job, const Patience& patience)
    : job_(std::move(job)),
      patience_(patience),
      until_(patience.timeout ? deadline_after(steady_now(), *patience.timeout) : kNever) {
  if (job_.remote && patience.timeout) hosts_wait_ = patience.timeout;
}

nlohmann::ordered_json LedJob::ask(const ControlRequest& request) {
  while (true) {
    try {
      auto answer = ask_in_order(job_, request, until_);
      const auto& wait_ms = answer.at("next_leader_ms");
      hosts_wait_.reset();
      if (!wait_ms.is_null()) hosts_wait_ = std::chrono::milliseconds(wait_ms.get<std::int64_t>());
      return answer;
    } catch (const Failure& failure) {
      check_timeout();
      // The next leader refuses until its hosts have joined it.
      const bool changes = failure.exit_code == kExitRendezvous ||
                           (failure.exit_code == kExitRefused && !leads(job_, until_));
      if (!hosts_wait_ || !changes || failure.lasts) throw;
      find_next_leader(failure);
    }
  }
}

void LedJob::check_timeout() const {
  if (steady_now() < until_) return;
  throw Failure{kExitTimeout, fmt::format("the job has not ended within {} (--timeout)",
                                          format_duration(*patience_.timeout))};
}

void LedJob::find_next_leader(const Failure& why) {
  const bool tells = patience_.end_is_told;
  const std::string id = job_.remote ? job_.remote->job_id : id_of(job_);
  const TimePoint now = steady_now();
  LeaderWait wait(now, {.elsewhere = job_.folder.empty(),
                        .hosts_wait = tells ? hosts_wait_ : std::nullopt,
                        .until = until_});
  if (tells) {
    say(fmt::format("{}; waiting up to {} for the job's next leader", why.what,
                    format_duration(std::chrono::ceil<std::chrono::seconds>(wait.left(now)))));
  }
  while (!leads(job_, until_)) {
    ::poll(nullptr, 0, 200);
    check_timeout();
    if (const auto found = job_.folder.empty() ? std::nullopt : look_for(id, job_.folder)) {
      if (!id_of(*found).empty()) job_ = *found;
      wait.seen(steady_now());
    }
    if (wait.over(steady_now())) throw why;
  }
  if (tells) say(fmt::format("job {} has its next leader", id));
}

const RunningJob& choose(const std::vector<RunningJob>& jobs, const std::string& id) {
  std::vector<const RunningJob*> fitting;
  for (const auto& job : jobs) {
    const bool fits = id.empty() || id_of(job) == id;
    if (fits) fitting.push_back(&job);
  }
  if (fitting.size() == 1) return *fitting[0];
  if (jobs.empty()) {
    throw Failure{kExitRendezvous,
                  fmt::format("no job of yours is running here (looked in {}, see TMPDIR)",
                              folder_for_jobs())};
  }
  if (id.empty()) throw Failure{kExitUsage, "which job? Choose by --job: " + names(jobs)};
  throw Failure{
      kExitRendezvous,
      fmt::format("{} job has the id {}; running: {}{}", fitting.empty() ? "no" : "more than one",
                  id, names(jobs), fitting.empty() ? similar_id(jobs, id) : "")};
}

}  // namespace dlaunch::ctl
