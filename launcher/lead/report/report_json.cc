#include <algorithm>

#include "base/signal_name.h"
#include "launcher/lead/report/goodput_report.h"
#include "launcher/lead/report/report.h"
#include "launcher/wire/json_text.h"

namespace dlaunch {
namespace {

using nlohmann::json;

const char* json_word(JobEnding end) {
  static constexpr const char* kNames[] = {"succeeded",    "worker_failed", "given_up",
                                           "spawn_failed", "interrupted",   "timed_out",
                                           "setup_failed"};
  return kNames[static_cast<int>(end)];
}

const char* json_word(Stage stage) {
  static constexpr const char* kNames[] = {"none", "fork", "chdir", "bind", "stdio", "exec"};
  return kNames[static_cast<int>(stage)];
}

// The last operations of libdlring, or of NCCL; times are before the worker's end.
json last_operations(const WorkerEnd& worker) {
  constexpr std::size_t kMost = 8;
  json list = json::array();
  const auto& flight = worker.flight;
  for (std::size_t i = flight.size() - std::min(flight.size(), kMost); i < flight.size(); ++i) {
    json entry = {{"operation", flight[i].what},
                  {"state", kFlightStateNames[static_cast<int>(flight[i].state)]},
                  {"started_before_s", to_seconds(worker.ended - flight[i].started)}};
    if (has_ended(flight[i].state)) {
      entry["ended_before_s"] = to_seconds(worker.ended - flight[i].ended);
    }
    list.push_back(std::move(entry));
  }
  return list;
}

// A worker's error file, as JSON if it is JSON. Deeper nesting is left out, because copying and
// writing recurse.
json error_of(const std::string& file) {
  constexpr int kDeepest = 64;
  const auto shallow = [](int depth, json::parse_event_t, const json&) {
    return depth <= kDeepest;
  };
  json parsed = json::parse(file, shallow, false);
  return parsed.is_discarded() ? json(file) : parsed;
}

json worker_json(const JobFacts& facts, const WorkerEnd& worker, const char* role) {
  json out = {{"role", role},
              {"rank", worker.rank},
              {"local_rank", number_or_null(worker.local_rank)},
              {"host", worker.host.empty() ? facts.host : worker.host},
              {"pid", worker.pid},
              {"ended_ns", (worker.ended - facts.started).count()},
              {"ran_s", to_seconds(worker.ended - worker.started)}};
  const std::string program = program_of(facts, worker.rank);
  if (!program.empty()) out["program"] = program;
  if (worker.signal != 0) {
    out["signal"] = worker.signal;
    out["signal_name"] = describe_signal(worker.signal);
    out["core_dumped"] = worker.core_dumped;
  } else {
    out["exit_code"] = worker.exit_code;
  }
  if (worker.signal_we_sent != 0) out["signal_sent_by_dlaunch"] = worker.signal_we_sent;
  if (worker.clock_error > Duration::zero()) out["clock_error_s"] = to_seconds(worker.clock_error);
  if (worker.by_chaos) out["by_chaos"] = true;
  if (!worker.hung.empty()) out["hung"] = worker.hung;
  if (worker.oom_evidence) out["out_of_memory"] = worker.oom_text;
  if (worker.peer_lost >= 0) out["lost_peer"] = worker.peer_lost;
  if (!worker.corrupt.empty()) out["corrupt"] = worker.corrupt;
  if (!worker.flight.empty()) out["last_operations"] = last_operations(worker);
  if (!worker.stderr_tail.empty()) out["stderr_tail"] = worker.stderr_tail;
  if (worker.traceback) {
    out["traceback"] = worker.traceback->lines;
    out["traceback_before_s"] = to_seconds(worker.ended - worker.traceback->begun);
    if (!worker.traceback->first.empty()) {
      out["first_traceback"] = worker.traceback->first;
      out["exceptions_between"] = worker.traceback->between;
    }
  }
  if (worker.silent_since_traceback > Duration::zero()) {
    out["silent_since_traceback_s"] = to_seconds(worker.silent_since_traceback);
  }
  if (!worker.stderr_log.empty()) out["stderr_log"] = worker.stderr_log;
  if (!worker.error_file.empty()) out["error"] = error_of(worker.error_file);
  return out;
}

const char* role_of(const Verdict& verdict, std::size_t worker) {
  auto is_in = [&](const std::vector<std::size_t>& group) {
    return std::ranges::find(group, worker) != group.end();
  };
  if (is_in(verdict.own_failures)) return "failed_later";
  if (is_in(verdict.consequences)) return "consequence";
  if (is_in(verdict.stopped)) return "stopped";
  return "succeeded";
}

}  // namespace

std::string render_json(const JobFacts& facts, const Verdict& verdict) {
  json out = {{"job_id", facts.job_id},
              {"host", facts.host},
              {"program", facts.program},
              {"nproc", facts.nproc},
              {"end", json_word(facts.end)},
              {"exit_code", verdict.exit_code},
              {"round", facts.round},
              {"restarts_used", facts.restarts_used},
              {"max_restarts", facts.max_restarts.restarts},
              {"ran_s", to_seconds(facts.ended - facts.started)}};
  if (!facts.ended_by.empty()) out["ended_by"] = facts.ended_by;
  if (facts.max_restarts.window) {
    out["max_restarts_window_s"] = to_seconds(*facts.max_restarts.window);
  }
  if (facts.signal_received != 0) out["signal_received"] = facts.signal_received;
  if (facts.waits && !facts.waits->empty()) out["waits"] = *facts.waits;
  if (!facts.failed_what.empty()) {
    out["start_failure"] = {{"rank", facts.failed_rank},
                            {"stage", json_word(facts.failed_stage)},
                            {"errno", facts.failed_errno},
                            {"what", facts.failed_what}};
  }
  if (!facts.still_running.empty()) out["left_behind"] = facts.still_running;
  if (facts.goodput) out["goodput"] = goodput_json(*facts.goodput);
  const auto text = render_text(facts, verdict, false);
  if (!text.empty()) {
    out["summary"] = text.front();
    out["text"] = text;
  }
  if (verdict.left_early >= 0) out["left_early"] = verdict.left_early;
  if (verdict.lost_unseen >= 0) out["lost_unseen"] = verdict.lost_unseen;
  if (verdict.lost_host) out["lost_host"] = facts.lost_host;
  if (verdict.lost_each_other) out["lost_each_other"] = true;
  const auto name_ranks = [&](const char* key, const std::vector<std::size_t>& workers) {
    for (const auto i : workers) out[key].push_back(facts.workers[i].rank);
  };
  name_ranks("maybe_first", verdict.maybe_first);
  name_ranks("left_before", verdict.left_before);
  name_ranks("maybe_cause", verdict.maybe_cause);
  name_ranks("likely_cause", verdict.likely_cause);
  if (verdict.gave_up_waiting) out["gave_up_waiting"] = true;
  if (!verdict.suspects.ranks.empty()) {
    out["suspect_ranks"] = verdict.suspects.ranks;
    out["only_suspect"] = verdict.suspects.only_one;
  }
  for (const StackGroup& group : verdict.groups) {
    out["stacks"].push_back({{"ranks", group.ranks},
                             {"place", group.place},
                             {"waits", group.waits},
                             {"stopped", group.stopped},
                             {"frames", group.frames}});
  }
  if (verdict.root)
    out["root_cause"] = worker_json(facts, facts.workers[*verdict.root], "root_cause");
  json others = json::array();
  for (std::size_t i = 0; i < facts.workers.size(); ++i) {
    if (verdict.root != i) {
      others.push_back(worker_json(facts, facts.workers[i], role_of(verdict, i)));
    }
  }
  out["others"] = std::move(others);  // in the order in which they ended
  return json_text(out, 2);
}

}  // namespace dlaunch
