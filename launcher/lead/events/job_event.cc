#include "launcher/lead/events/job_event.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/signal_name.h"

namespace dlaunch {
namespace job_event {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(int number) { return number >= 0 ? Json(number) : Json(); }
Json text_or_null(std::string_view text) { return text.empty() ? Json() : Json(text); }

const char* action_word(Straggler::Action action) {
  static constexpr const char* kWords[] = {"slow", "over", "restart", "evict", "refrain"};
  return kWords[static_cast<int>(action)];
}

const char* action_word(HangFinding::Action action) {
  return action == HangFinding::Action::warning ? "warning" : "replace";
}

const char* name(const Queued&) { return "queued"; }
const char* name(const JobStarted&) { return "job_started"; }
const char* name(const LeadTaken&) { return "lead_taken"; }
const char* name(const HostJoined&) { return "host_joined"; }
const char* name(const HostLost&) { return "host_lost"; }
const char* name(const Start&) { return "start"; }
const char* name(const Round&) { return "round"; }
const char* name(const Resize&) { return "resize"; }
const char* name(const WorkerEnded& e) { return e.how == Ending::failed ? "failure" : "exit"; }
const char* name(const StartFailed&) { return "start_failure"; }
const char* name(const Restart&) { return "restart"; }
const char* name(const Commit&) { return "commit"; }
const char* name(const Straggler&) { return "straggler"; }
const char* name(const HangFinding&) { return "hang"; }
const char* name(const Order&) { return "order"; }
const char* name(const Signal&) { return "signal"; }
const char* name(const GoodputSums&) { return "goodput"; }
const char* name(const JobEnded&) { return "job_ended"; }
const char* name(const Lost&) { return "lost"; }

void add(Json& out, const Queued& e) {
  out["host"] = e.host;
  out["program"] = e.program;
}

void add(Json& out, const JobStarted& e) {
  out["host"] = e.host;
  out["program"] = e.program;
  out["size"] = e.size;
  out["min_size"] = e.min_size;
  out["max_size"] = e.max_size;
  out["spares"] = e.spares;
  out["max_restarts"] = e.max_restarts;
}

void add(Json& out, const LeadTaken& e) {
  out["host"] = e.host;
  out["round"] = e.round;
}

void add(Json& out, const HostJoined& e) { out["host"] = e.host; }

void add(Json& out, const HostLost& e) {
  out["host"] = e.host;
  out["ranks"] = format_rank_set(e.ranks);
}

void add(Json& out, const Start& e) {
  out["round"] = e.round;
  out["ranks"] = format_rank_set(e.ranks);
  out["spares"] = e.spares;
  out["all"] = e.all;
}

void add(Json& out, const Round& e) {
  out["round"] = e.round;
  out["size"] = e.size;
  out["without_s"] = e.without ? Json(to_seconds(*e.without)) : Json();
}

void add(Json& out, const Resize& e) {
  out["round"] = e.round;
  out["from"] = e.from;
  out["to"] = e.to;
}

void add(Json& out, const WorkerEnded& e) {
  out["rank"] = number_or_null(e.rank);
  out["host"] = e.host;
  out["pid"] = e.pid;
  out["round"] = e.round;
  if (e.how == Ending::failed) out["kind"] = std::string(word_of(kFailureWords, e.kind));
  out["exit_code"] = e.signal == 0 ? Json(e.exit_code) : Json();
  out["signal"] = e.signal != 0 ? Json(signal_name(e.signal)) : Json();
  if (e.how == Ending::failed) {
    out["lost_peer"] = number_or_null(e.lost_peer);
  } else {
    out["stopped"] = e.how == Ending::stopped;
  }
  out["ran_s"] = to_seconds(e.ran);
}

void add(Json& out, const StartFailed& e) {
  out["rank"] = number_or_null(e.rank);
  out["what"] = e.what;
}

void add(Json& out, const Restart& e) {
  out["reason"] = std::string(word_of(kFailureWords, e.reason));
  out["round"] = e.round;
  out["restarts_used"] = e.used;
  out["restarts_left"] = e.left;
}

void add(Json& out, const Commit& e) {
  out["version"] = e.version;
  out["commits"] = e.commits;
  out["round"] = e.round;
}

void add(Json& out, const Straggler& e) {
  out["action"] = action_word(e.action);
  out["rank"] = number_or_null(e.rank);
  out["peer"] = number_or_null(e.peer);
  out["ratio"] = e.ratio ? Json(*e.ratio) : Json();
  out["what"] = e.what;
}

void add(Json& out, const HangFinding& e) {
  out["action"] = action_word(e.action);
  out["ranks"] = format_rank_set(e.ranks);
  out["what"] = e.what;
}

void add(Json& out, const Order& e) { out["what"] = e.what; }

void add(Json& out, const Signal& e) { out["signal"] = signal_name(e.signal); }

void add(Json& out, const GoodputSums& e) {
  out["round"] = e.round;
  for (const auto& [figure, value] : e.summary.totals.figures()) out[figure] = value;
  out["culprit"] = number_or_null(e.summary.culprit);
  out["culprit_s"] = to_seconds(e.summary.cost);
  out["culprit_host"] = text_or_null(e.summary.host);
  out["culprit_cause"] = text_or_null(e.summary.cause);
}

void add(Json& out, const JobEnded& e) {
  out["exit_code"] = e.exit_code;
  out["round"] = e.round;
  out["restarts_used"] = e.restarts_used;
  out["ran_s"] = to_seconds(e.ran);
  out["what"] = e.what;
}

void add(Json& out, const Lost& e) { out["events"] = e.events; }

struct Line {
  Json json;

  template <class Event>
  void operator()(const Event& event) {
    json["event"] = name(event);
    add(json, event);
  }
};

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
  job_event::Line line;
  line.json["time"] = rfc3339(time.wall);
  line.json["monotonic"] = to_seconds(time.monotonic.time_since_epoch());
  line.json["job"] = std::string(job_id);
  std::visit(line, event);
  // Words of programs and other hosts: bytes that are no UTF-8 become U+FFFD.
  return line.json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace dlaunch
