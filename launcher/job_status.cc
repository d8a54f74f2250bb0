#include "launcher/job_status.h"

#include <nlohmann/json.hpp>

namespace dlaunch {
namespace {

using nlohmann::json;

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

json describe(const FlightEntry& operation, TimePoint now) {
  static constexpr const char* kStates[] = {"", "running", "done", "failed"};
  const bool running = operation.state == FlightState::running;
  return {{"operation", operation.what},
          {"state", kStates[static_cast<int>(operation.state)]},
          {"since_s", seconds(now - (running ? operation.started : operation.ended))}};
}

json describe(const JobStatus& status, const WorkerStatus& worker) {
  json out = {{"host", worker.host},
              {"local_rank", worker.slot},
              {"state", worker.state},
              {"elastic", worker.linked}};
  out["rank"] = worker.rank >= 0 ? json(worker.rank) : json();
  out["pid"] = worker.pid > 0 ? json(worker.pid) : json();
  out["ran_s"] = worker.ran ? json(seconds(*worker.ran)) : json();
  out["last_operation"] = worker.operation ? describe(*worker.operation, status.now) : json();
  return out;
}

}  // namespace

const char* name(JobState state) {
  static constexpr const char* kNames[] = {"starting", "forming", "active", "ending", "ended"};
  return kNames[static_cast<int>(state)];
}

std::string render_json(const JobStatus& status) {
  json workers = json::array(), others = json::array();
  for (const auto& worker : status.workers) {
    (worker.rank >= 0 ? workers : others).push_back(describe(status, worker));
  }
  const json out = {{"job_id", status.job_id},
                    {"host", status.host},
                    {"program", status.program},
                    {"state", name(status.state)},
                    {"waits_for", status.waits_for},
                    {"hosts", status.hosts},
                    {"round", status.round},
                    {"size", status.size},
                    {"target_size", status.target_size},
                    {"max_size", status.max_size},
                    {"ran_s", seconds(status.ran)},
                    {"restarts",
                     {{"used", status.restarts_used},
                      {"left", status.restarts_left},
                      {"limit", status.restarts}}},
                    {"workers", workers},
                    {"spares", others}};
  return out.dump();
}

}  // namespace dlaunch
