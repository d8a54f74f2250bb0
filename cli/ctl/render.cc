#include "cli/ctl/render.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/rank_set.h"
#include "base/text.h"
#include "base/text_table.h"
#include "elastic/restart_policy.h"
#include "launcher/lead/control/progress_line.h"
#include "launcher/wire/stack_groups.h"

namespace dlaunch::ctl {
namespace {

using nlohmann::json;
using Row = std::vector<std::string>;

std::string number_or(const json& value, const char* otherwise) {
  return value.is_null() ? otherwise : std::to_string(value.get<int>());
}

std::string plain(const json& object, const char* key) {
  return escaped(object.at(key).get<std::string>());
}

std::string workers(int count) {
  return count == 1 ? "1 worker" : fmt::format("{} workers", count);
}

std::string last_operation(const json& operation) {
  if (operation.is_null()) return "-";
  const std::string state = operation.at("state");
  const std::string since = age(operation.at("since_s"));
  const std::string what = plain(operation, "operation");
  if (state == "running") return fmt::format("{}, for {} now", what, since);
  return fmt::format("{}, {} {} ago", what, state, since);
}

Row row_of(const json& worker, bool by_program) {
  const json& ran = worker.at("ran_s");
  Row row = {number_or(worker.at("rank"), "spare"),
             number_or(worker.at("pid"), "-"),
             plain(worker, "host"),
             plain(worker, "state"),
             ran.is_null() ? "-" : age(ran),
             last_operation(worker.at("last_operation"))};
  if (const json program = worker.value("program", json()); program.is_string()) {
    row.insert(row.begin() + 1, escaped(program.get<std::string>()));
  } else if (by_program) {
    row.insert(row.begin() + 1, "-");
  }
  return row;
}

// The job's ranks run different programs.
bool has_programs(const json& status) {
  const auto& workers = status.at("workers");
  return std::any_of(workers.begin(), workers.end(), [](const json& worker) {
    return worker.value("program", json()).is_string();
  });
}

std::string size_of(const json& status) {
  const int size = status.at("size"), target = status.at("target_size");
  std::string text = workers(size);
  if (target > size) text += fmt::format(" growing to {}", target);
  return text;
}

Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

RestartLimit limit_of(const json& restarts) {
  RestartLimit limit{.restarts = restarts.at("limit"), .window = {}};
  const json& window = restarts.at("window_s");
  if (!window.is_null()) limit.window = duration_of(window);
  return limit;
}

// "ranks 0,2-3", "spare"
std::string ranks_in_words(const std::vector<const json*>& workers) {
  RankSet ranks;
  for (const json* worker : workers) {
    if (!worker->at("rank").is_null()) ranks.insert(worker->at("rank").get<int>());
  }
  const bool spares = ranks.size() < workers.size();
  if (ranks.empty()) return workers.size() == 1 ? "spare" : "spares";
  return fmt::format("{} {}{}", ranks.size() == 1 ? "rank" : "ranks", format_rank_set(ranks),
                     spares ? " and spares" : "");
}

std::string lines_of(const json& worker) {
  std::string text = fmt::format("{} (pid {} on {}):\n", ranks_in_words({&worker}),
                                 worker.at("pid").get<int>(), plain(worker, "host"));
  for (const auto& line : worker.at("lines")) {
    text += fmt::format("  {}\n", escaped(line.get<std::string>()));
  }
  return text;
}

// ", round 2, 3 workers (at most 4)", if it has begun.
std::string round_of(const json& status) {
  const int round = status.at("round");
  if (round == 0) return "";
  return fmt::format(", round {}, {} (at most {})", round, size_of(status),
                     status.at("max_size").get<int>());
}

}  // namespace

std::string age(double seconds) {
  const auto whole = static_cast<long>(seconds);
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 60) return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 2 : 0);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {} h", whole / 86400, whole / 3600 % 24);
}

std::string late_in_words(const json& status) {
  constexpr std::size_t kShown = 3;
  std::string text;
  const json late = status.value("late", json::array());  // an earlier dlaunch has none
  for (std::size_t i = 0; i < std::min(late.size(), kShown); ++i)
    text += plain(late[i], "text") + "\n";
  if (late.size() > kShown) text += fmt::format("and {} more\n", late.size() - kShown);
  return text;
}

std::string progress_in_words(const json& status) {
  const json progress = status.value("progress", json());  // null from an earlier dlaunch, too
  if (progress.is_null()) return "";
  RunPace pace{.rank = progress.at("rank"), .last = {}, .age = {}};
  pace.last.step = progress.at("step");
  if (!progress.at("total").is_null()) pace.last.total = progress.at("total");
  if (!progress.at("steps_per_s").is_null()) pace.steps_per_s = progress.at("steps_per_s");
  if (!progress.at("left_s").is_null()) pace.left = duration_of(progress.at("left_s"));
  for (const auto& [name, value] : progress.at("values").items()) {
    pace.last.values.push_back({escaped(name), value.is_null() ? NAN : value.get<double>()});
  }
  return fmt::format("{}, {} ago\n", in_words(pace), age(progress.at("age_s")));
}

std::string render_status(const json& status) {
  const json& restarts = status.at("restarts");
  std::string text = fmt::format(
      "job {}: {}\n"
      "{}{}, for {}\n",
      plain(status, "job_id"), plain(status, "program"), plain(status, "state"), round_of(status),
      age(status.at("ran_s")));
  if (const std::string whom = plain(status, "waits_for"); !whom.empty()) {
    text += fmt::format("waits for {}\n", whom);
  }
  for (const auto& host : status.at("hosts")) {
    text += fmt::format("host {}\n", escaped(host.get<std::string>()));
  }
  text += late_in_words(status);
  text += progress_in_words(status);
  text += fmt::format("restarts: {} used, {} left (of {})\n\n", restarts.at("used").get<int>(),
                      restarts.at("left").get<int>(), format_restart_limit(limit_of(restarts)));
  std::vector<Row> rows = {{"RANK", "PID", "HOST", "STATE", "FOR", "LAST OPERATION"}};
  const bool by_program = has_programs(status);
  if (by_program) rows[0].insert(rows[0].begin() + 1, "PROGRAM");
  for (const char* kind : {"workers", "spares"}) {
    for (const auto& worker : status.at(kind)) rows.push_back(row_of(worker, by_program));
  }
  return text + text_table(rows, 2);
}

std::string render_goodput(const json& goodput) {
  std::string text;
  for (const auto& line : goodput.at("text")) {
    text += fmt::format("{}\n", escaped(line.get<std::string>()));
  }
  std::vector<Row> rows = {
      {"RANK", "COMPUTE%", "TRANSFER%", "WAITING%", "RECOVERY%", "LOST%", "START%"}};
  for (const auto& rank : goodput.at("ranks")) {
    const double wall = std::max(1e-9, rank.at("wall_s").get<double>());
    const auto share = [&](double seconds) { return fmt::format("{:.1f}", 100 * seconds / wall); };
    const auto sum = [&](const char* key) {
      double seconds = 0;
      for (const auto& part : rank.at(key)) seconds += part.at("s").get<double>();
      return share(seconds);
    };
    rows.push_back({std::to_string(rank.at("rank").get<int>()), share(rank.at("compute_s")),
                    share(rank.at("transfer_s")), sum("waiting"), sum("recovery"), sum("lost_work"),
                    share(rank.at("start_s"))});
  }
  return text + "\n" + text_table(rows, rows.front().size());
}

std::string render_stacks(const json& stacks) {
  std::map<int, std::vector<const json*>> groups;
  for (const auto& worker : stacks) groups[worker.at("group").get<int>()].push_back(&worker);
  std::string text;
  if (stacks.size() > 1) {
    for (const auto& [number, workers] : groups) {
      text += fmt::format("{}: {}\n", ranks_in_words(workers), plain(*workers.front(), "place"));
    }
  }
  for (const auto& [number, workers] : groups) {
    const bool known = workers.front()->at("place") != kUnknownPlace;
    const std::size_t shown = known ? 1 : workers.size();  // equal stacks once
    for (std::size_t i = 0; i < shown; ++i) text += lines_of(*workers[i]);
  }
  return text;
}

std::string render_list(const std::vector<RunningJob>& jobs) {
  if (jobs.empty()) return "";
  std::vector<Row> rows = {{"JOB", "STATE", "FOR", "SIZE", "PROGRAM"}};
  for (const auto& job : jobs) {
    if (!job.led.id.empty()) {
      rows.push_back({escaped(job.led.id), "led from host " + escaped(job.led.by), "-", "-",
                      "ask dlaunchctl there"});
    } else if (job.status.is_null()) {
      rows.push_back({"?", "does not answer", "-", "-", job.folder});
    } else {
      rows.push_back({plain(job.status, "job_id"), plain(job.status, "state"),
                      age(job.status.at("ran_s")), size_of(job.status),
                      plain(job.status, "program")});
    }
  }
  return text_table(rows, 0);
}

}  // namespace dlaunch::ctl
