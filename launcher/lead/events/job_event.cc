#include "launcher/lead/events/job_event.h"

#include <fmt/format.h>

#include "base/signal_name.h"
#include "launcher/wire/json_text.h"

namespace dlaunch {
namespace job_event {
namespace {

using Json = nlohmann::ordered_json;

const char* action_word(Straggler::Action action) {
  static constexpr const char* kWords[] = {"slow", "over", "restart", "evict", "refrain"};
  return kWords[static_cast<int>(action)];
}

const char* action_word(HangFinding::Action action) {
  return action == HangFinding::Action::warning ? "warning" : "replace";
}

Json fields_of(const Queued& e) {
  return {{"event", "queued"}, {"host", e.host}, {"program", e.program}};
}

Json fields_of(const JobStarted& e) {
  return {{"event", "job_started"}, {"host", e.host},
          {"program", e.program},   {"size", e.size},
          {"min_size", e.min_size}, {"max_size", e.max_size},
          {"spares", e.spares},     {"max_restarts", e.max_restarts}};
}

Json fields_of(const LeadTaken& e) {
  return {{"event", "lead_taken"}, {"host", e.host}, {"round", e.round}};
}

Json fields_of(const HostJoined& e) { return {{"event", "host_joined"}, {"host", e.host}}; }

Json fields_of(const HostLost& e) {
  return {{"event", "host_lost"}, {"host", e.host}, {"ranks", format_rank_set(e.ranks)}};
}

Json fields_of(const Start& e) {
  return {{"event", "start"},
          {"round", e.round},
          {"ranks", format_rank_set(e.ranks)},
          {"spares", e.spares},
          {"all", e.all}};
}

Json fields_of(const Round& e) {
  return {{"event", "round"},
          {"round", e.round},
          {"size", e.size},
          {"without_s", seconds_or_null(e.without)}};
}

Json fields_of(const Resize& e) {
  return {{"event", "resize"}, {"round", e.round}, {"from", e.from}, {"to", e.to}};
}

Json fields_of(const WorkerEnded& e) {
  const bool failed = e.how == Ending::failed;
  Json out = {{"event", failed ? "failure" : "exit"},
              {"rank", number_or_null(e.rank)},
              {"host", e.host},
              {"pid", e.pid},
              {"round", e.round}};
  if (failed) out["kind"] = word_of(kFailureWords, e.kind);
  out["exit_code"] = e.signal == 0 ? Json(e.exit_code) : Json();
  out["signal"] = e.signal != 0 ? Json(signal_name(e.signal)) : Json();
  if (failed) {
    out["lost_peer"] = number_or_null(e.lost_peer);
  } else {
    out["stopped"] = e.how == Ending::stopped;
  }
  out["ran_s"] = to_seconds(e.ran);
  return out;
}

Json fields_of(const StartFailed& e) {
  return {{"event", "start_failure"}, {"rank", number_or_null(e.rank)}, {"what", e.what}};
}

Json fields_of(const Restart& e) {
  return {{"event", "restart"},
          {"reason", word_of(kFailureWords, e.reason)},
          {"round", e.round},
          {"restarts_used", e.used},
          {"restarts_left", e.left}};
}

Json fields_of(const Commit& e) {
  return {{"event", "commit"}, {"version", e.version}, {"commits", e.commits}, {"round", e.round}};
}

Json fields_of(const Straggler& e) {
  return {{"event", "straggler"},           {"action", action_word(e.action)},
          {"rank", number_or_null(e.rank)}, {"peer", number_or_null(e.peer)},
          {"ratio", or_null(e.ratio)},      {"what", e.what}};
}

Json fields_of(const HangFinding& e) {
  return {{"event", "hang"},
          {"action", action_word(e.action)},
          {"ranks", format_rank_set(e.ranks)},
          {"what", e.what},
          {"hung_s", seconds_or_null(e.hung)}};
}

Json fields_of(const Order& e) { return {{"event", "order"}, {"what", e.what}}; }

Json fields_of(const Signal& e) { return {{"event", "signal"}, {"signal", signal_name(e.signal)}}; }

Json fields_of(const GoodputSums& e) {
  Json out = {{"event", "goodput"}, {"round", e.round}};
  for (const auto& [figure, value] : e.summary.totals.figures()) out[figure] = value;
  out["culprit"] = number_or_null(e.summary.culprit);
  out["culprit_s"] = to_seconds(e.summary.cost);
  out["culprit_host"] = text_or_null(e.summary.host);
  out["culprit_cause"] = text_or_null(e.summary.cause);
  return out;
}

Json fields_of(const JobEnded& e) {
  return {{"event", "job_ended"},       {"exit_code", e.exit_code},
          {"round", e.round},           {"restarts_used", e.restarts_used},
          {"ran_s", to_seconds(e.ran)}, {"what", e.what}};
}

Json fields_of(const Lost& e) { return {{"event", "lost"}, {"events", e.events}}; }

}  // namespace
}  // namespace job_event

std::string rfc3339(std::chrono::sys_time<std::chrono::milliseconds> time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count(),
                     clock.subseconds().count());
}

std::string render_json(const JobEvent& event, const EventTime& time, std::string_view job_id) {
  job_event::Json line = {{"time", rfc3339(time.wall)},
                          {"monotonic", to_seconds(time.monotonic.time_since_epoch())},
                          {"job", job_id}};
  line.update(std::visit([](const auto& e) { return job_event::fields_of(e); }, event));
  return json_text(line) + "\n";
}

}  // namespace dlaunch
