#include "launcher/lead/control/job_status.h"

#include <cmath>

#include "launcher/wire/json_text.h"

namespace dlaunch {
namespace {

using nlohmann::json;

json json_of(const FlightEntry& operation, TimePoint now) {
  return {{"operation", operation.what},
          {"state", kFlightStateNames[static_cast<int>(operation.state)]},
          {"since_s",
           to_seconds(now - (has_ended(operation.state) ? operation.ended : operation.started))}};
}

json json_of(const NodeGpu& gpu) {
  return {{"number", gpu.number},
          {"instance", number_or_null(gpu.instance)},
          {"utilisation", number_or_null(gpu.utilisation)},
          {"temperature", number_or_null(gpu.temperature)},
          {"memory_bytes", gpu.memory_used},
          {"memory_total_bytes", gpu.memory_total},
          {"ecc_errors", number_or_null(gpu.ecc_errors)}};
}

// Adds the figures of a process.
void add_figures(json& out, const NodeWorker& figures) {
  const double over = to_seconds(figures.rate.over);
  const auto rate = [over](std::uint64_t what) {
    return over > 0 ? static_cast<double>(what) / over : 0.0;
  };
  out["round"] = figures.round;
  out["cpu_s"] = to_seconds(figures.cpu);
  out["memory_bytes"] = figures.memory;
  out["operations_per_s"] = rate(figures.rate.operations);
  out["bytes_per_s"] = rate(figures.rate.bytes);
  if (!figures.gpus_known) return;
  out["gpus"] = json::array();
  for (const NodeGpu& gpu : figures.gpus) out["gpus"].push_back(json_of(gpu));
}

json json_of(const JobStatus& status, const WorkerStatus& worker) {
  json out = {
      {"host", worker.host},
      {"local_rank", number_or_null(worker.local_rank)},
      {"state", worker.state},
      {"elastic", worker.linked},
      {"step_s", or_null(worker.step_s)},
      {"wait_s", or_null(worker.wait_s)},
      {"program", text_or_null(worker.program)},
      {"rank", number_or_null(worker.rank)},
      {"pid", worker.pid > 0 ? json(worker.pid) : json()},
      {"ran_s", seconds_or_null(worker.ran)},
      {"last_operation", worker.operation ? json_of(*worker.operation, status.now) : json()}};
  for (const char* key :
       {"round", "cpu_s", "memory_bytes", "operations_per_s", "bytes_per_s", "gpus"}) {
    out[key] = nullptr;
  }
  if (worker.pid > 0) add_figures(out, worker.figures);
  return out;
}

json json_of(const GoodputSummary& goodput) {
  json out = {{"culprit", number_or_null(goodput.culprit)},
              {"culprit_s", to_seconds(goodput.cost)},
              {"culprit_host", text_or_null(goodput.host)},
              {"culprit_cause", text_or_null(goodput.cause)}};
  for (const auto& [name, value] : goodput.totals.figures()) out[name] = value;
  return out;
}

json json_of(const LateRanks& late) {
  return {{"ranks", late.ranks},
          {"waiting", late.waiting},
          {"waited_s", to_seconds(late.waited)},
          {"text", late.text}};
}

// JSON has no infinity, and none of the numbers that are none.
json json_of(double number) { return std::isfinite(number) ? json(number) : json(); }

json json_of(const RunPace& pace) {
  json values = json::object();
  for (const auto& [name, value] : pace.last.values) values[name] = json_of(value);
  return {{"rank", pace.rank},
          {"step", pace.last.step},
          {"total", pace.last.total > 0 ? json(pace.last.total) : json()},
          {"steps_per_s", or_null(pace.steps_per_s)},
          {"left_s", seconds_or_null(pace.left)},
          {"age_s", to_seconds(pace.age)},
          {"values", values}};
}

}  // namespace

const char* name(JobState state) {
  static constexpr const char* kNames[] = {"starting", "forming", "active", "ending", "ended"};
  return kNames[static_cast<int>(state)];
}

const char* name(JobPhase phase) {
  static constexpr const char* kNames[] = {"queued", "launching", "running", "finished", "failed"};
  return kNames[static_cast<int>(phase)];
}

JobPhase phase_of(JobState state, bool had_round, std::optional<int> exit_code) {
  if (exit_code) return *exit_code == 0 ? JobPhase::finished : JobPhase::failed;
  if (state == JobState::idle) return JobPhase::queued;
  return had_round ? JobPhase::running : JobPhase::launching;
}

std::string render_json(const JobStatus& status) {
  json workers = json::array(), others = json::array();
  for (const auto& worker : status.workers) {
    (worker.rank >= 0 ? workers : others).push_back(json_of(status, worker));
  }
  json late = json::array();
  for (const LateRanks& wait : status.late) late.push_back(json_of(wait));
  const json out = {{"job_id", status.job_id},
                    {"host", status.host},
                    {"program", status.program},
                    {"state", name(status.state)},
                    {"phase", name(status.phase)},
                    {"waits_for", status.waits_for},
                    {"hosts", status.hosts},
                    {"round", status.round},
                    {"size", status.size},
                    {"target_size", status.target_size},
                    {"max_size", status.max_size},
                    {"ran_s", to_seconds(status.ran)},
                    {"progress", status.pace ? json_of(*status.pace) : json()},
                    {"restarts",
                     {{"used", status.restarts_used},
                      {"left", status.restarts_left},
                      {"limit", status.restarts.restarts},
                      {"window_s", seconds_or_null(status.restarts.window)}}},
                    {"goodput", status.goodput ? json_of(*status.goodput) : json()},
                    {"late", late},
                    {"workers", workers},
                    {"spares", others}};
  return json_text(out);
}

}  // namespace dlaunch
