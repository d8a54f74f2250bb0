#include "cli/report/report_data.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/bus_factor.h"
#include "base/flight_tally.h"
#include "base/version.h"
#include "elastic/wait_finder.h"
#include "launcher/wire/json_text.h"

namespace dlaunch {
namespace {

using nlohmann::json;

constexpr int kMostRanks = 1 << 20;
constexpr int kDeepest = 64;  // copying and writing recurse

json parse(std::string_view text) {
  const auto shallow = [](int depth, json::parse_event_t, const json&) {
    return depth <= kDeepest;
  };
  return json::parse(text, shallow, false);
}

// None: null, with a note unless the file is absent.
json object_of(const std::string& text, const char* name, json& notes) {
  if (text.empty()) return nullptr;
  json found = parse(text);
  if (found.is_object()) return found;
  notes.push_back(fmt::format("{} is not a JSON object; this report leaves it out", name));
  return nullptr;
}

// The objects of a file, one on each line, that have a number under `key`.
json objects_in(std::string_view text, const char* name, const char* key, json& notes) {
  json lines = json::array();
  std::size_t bad = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    json line = parse(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const bool good = line.is_object() && line.contains(key) && line[key].is_number();
    if (good) {
      lines.push_back(std::move(line));
    } else {
      ++bad;
    }
  }
  if (bad > 0) notes.push_back(fmt::format("{}: {} unreadable lines are left out", name, bad));
  return lines;
}

double number_in(const json& object, const char* key, double otherwise = 0) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

bool is_event(const json& line, const char* event) {
  const auto found = line.find("event");
  return found != line.end() && *found == event;
}

// The job's own facts: job.json, and what the events say of its end.
json job_of(json job, const json& events) {
  if (!job.is_object()) job = json::object();
  for (const char* key : {"program", "id", "started"}) {
    if (!job.contains(key) || !job[key].is_string()) job[key] = "";
  }
  if (!job.contains("hosts") || !job["hosts"].is_array()) job["hosts"] = json::array();
  job["size"] = 0;
  job["outcome"] = "running";
  job["exit_code"] = nullptr;
  if (events.empty()) return job;
  const double begun = number_in(events.front(), "monotonic");
  job["ran_s"] = number_in(events.back(), "monotonic") - begun;
  for (const json& event : events) {
    if (is_event(event, "round")) job["size"] = number_in(event, "size");
    if (!is_event(event, "job_ended")) continue;
    const double code = number_in(event, "exit_code", 1);
    job["exit_code"] = code;
    job["outcome"] = code == 0 ? "succeeded" : "failed";
    job["ran_s"] = number_in(event, "ran_s", job["ran_s"]);
  }
  return job;
}

// Its place in kWaitCauseWords; -1: not known.
int cause_in(const json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_string()) return -1;
  const auto cause = value_of(kWaitCauseWords, found->get_ref<const std::string&>());
  return cause ? static_cast<int>(*cause) : -1;
}

int rank_in(const json& row, const char* key) {
  const double rank = number_in(row, key, -1);
  return rank >= 0 && rank < kMostRanks ? static_cast<int>(rank) : -1;
}

json cause_words() {
  json words = json::array();
  for (const auto& [word, cause] : kWaitCauseWords) words.push_back(std::string(word));
  return words;
}

// The samples of waiting.jsonl as columns: each rank has one value for each time. Causes are places
// in "causes"; -1 stands for a cause or rank that is not known.
json waiting_of(const json& samples, double begun) {
  json times = json::array(), lengths = json::array();
  struct Columns {
    std::map<std::string, std::vector<double>> sums;
    std::map<std::string, std::vector<int>> names;
  };
  std::map<int, Columns> ranks;
  std::size_t count = 0;
  for (const json& sample : samples) {
    const auto rows = sample.find("ranks");
    if (rows == sample.end() || !rows->is_array()) continue;
    const double length = number_in(sample, "seconds");
    if (!(length > 0)) continue;
    times.push_back(number_in(sample, "monotonic") - begun);
    lengths.push_back(length);
    ++count;
    for (const json& row : *rows) {
      const int rank = row.is_object() ? rank_in(row, "rank") : -1;
      if (rank < 0) continue;
      auto& [sums, names] = ranks[rank];
      const auto put = [count](auto& column, auto missing, auto value) {
        column.resize(count, missing);
        column.back() = value;
      };
      for (const char* key : {"waiting", "caused"}) put(sums[key], 0.0, number_in(row, key));
      for (const char* key : {"waiting_cause", "caused_cause"}) {
        put(names[key], -1, cause_in(row, key));
      }
      put(names["waited_for"], -1, rank_in(row, "waited_for"));
    }
  }
  json out = json::array();
  for (auto& [rank, columns] : ranks) {
    json row = {{"rank", rank}};
    const auto add = [&](auto& lists, auto missing) {
      for (auto& [key, values] : lists) {
        values.resize(count, missing);
        row[key] = values;
      }
    };
    add(columns.sums, 0.0);
    add(columns.names, -1);
    out.push_back(std::move(row));
  }
  return {{"t", times}, {"dt", lengths}, {"ranks", out}, {"causes", cause_words()}};
}

// Of the samples of bandwidth.jsonl: each collective and class of sizes, with its bus bandwidth as
// nccl-tests defines it, in the whole job and in the best sample.
class Bandwidth {
 public:
  void take(const json& sample) {
    const double ranks = number_in(sample, "ranks");
    const auto rows = sample.find("collectives");
    if (!(ranks >= 2 && ranks < kMostRanks) || rows == sample.end() || !rows->is_array()) return;
    ranks_ = static_cast<int>(ranks);
    for (const json& row : *rows) {
      if (row.is_object()) take(row, static_cast<int>(ranks));
    }
  }
  json all(const json& limits) const {
    json list = json::array();
    for (const auto& [key, sum] : sums_) {
      const double limit = limit_of(key, limits);
      list.push_back({{"collective", std::string(kCollectiveNames[key.first])},
                      {"size", std::string(kTallySizeNames[key.second])},
                      {"calls", sum.calls},
                      {"busbw", sum.bus_bytes / sum.seconds},
                      {"best", sum.best},
                      {"limit", limit > 0 ? json(limit) : json()}});
    }
    return list;
  }

 private:
  struct Sum {
    double calls = 0, bus_bytes = 0, seconds = 0, best = 0;
  };
  template <class Words>
  static std::size_t index_of(const Words& words, const json& row, const char* key) {
    const auto found = row.find(key);
    if (found == row.end() || !found->is_string()) return std::size(words);
    const auto& word = found->get_ref<const std::string&>();
    return static_cast<std::size_t>(std::find(std::begin(words), std::end(words), word) -
                                    std::begin(words));
  }
  void take(const json& row, int ranks) {
    const std::size_t kind = index_of(kCollectiveNames, row, "kind");
    const std::size_t size = index_of(kTallySizeNames, row, "size");
    const double seconds = number_in(row, "ns") / 1e9;
    if (kind == kTallyKinds || size == kTallySizeClasses || !(seconds > 0)) return;
    const std::string_view name = kCollectiveNames[kind];
    const double parts = counts_parts(name) ? ranks : 1;
    const double bus_bytes = number_in(row, "bytes") * parts * bus_factor(name, ranks);
    Sum& sum = sums_[{kind, size}];
    sum.calls += number_in(row, "calls");
    sum.bus_bytes += bus_bytes;
    sum.seconds += seconds;
    sum.best = std::max(sum.best, bus_bytes / seconds);
  }

  // 0: not known.
  double limit_of(const std::pair<std::size_t, std::size_t>& key, const json& limits) const {
    const int hosts = static_cast<int>(std::clamp(number_in(limits, "hosts"), 0.0, 1.0 * ranks_));
    if (hosts > 1) {
      const double line = number_in(limits, "line_bytes_per_s");
      return bus_limit(kCollectiveNames[key.first], line, ranks_, hosts);
    }
    const auto copies = limits.find("copies_bytes_per_s");
    if (hosts != 1 || copies == limits.end()) return 0;
    return number_in(*copies, kTallySizeNames[key.second].data());
  }

  std::map<std::pair<std::size_t, std::size_t>, Sum> sums_;
  int ranks_ = 0;  // in the last sample
};

// The time of each step: what one commit takes, in a round.
json steps_of(const json& events, double begun) {
  json times = json::array(), lengths = json::array();
  double before = -1;
  for (const json& event : events) {
    if (is_event(event, "round")) before = -1;
    if (!is_event(event, "commit")) continue;
    const double now = number_in(event, "monotonic");
    const double commits = std::max(1.0, number_in(event, "commits", 1));
    if (before >= 0) {
      times.push_back(now - begun);
      lengths.push_back((now - before) / commits);
    }
    before = now;
  }
  return {{"t", times}, {"s", lengths}, {"what", "The time from commit to commit"}};
}

// Pairs of words.
json environment_of(const json& job) {
  json pairs = json::array();
  if (!job.is_object() || !job.contains("environment") || !job["environment"].is_array()) {
    return pairs;
  }
  for (const json& pair : job["environment"]) {
    if (pair.is_array() && pair.size() == 2) pairs.push_back(pair);
  }
  return pairs;
}

std::string without_tags(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) out.append(c == '<' ? "\\u003c" : std::string(1, c));
  return out;
}

}  // namespace

std::string report_data(const RunFiles& files) {
  json notes = json::array();
  json data = {{"version", DLAUNCH_VERSION}};
  json events = objects_in(files.events, "events.jsonl", "monotonic", notes);
  const json samples = objects_in(files.waiting, "waiting.jsonl", "monotonic", notes);
  Bandwidth bandwidth;
  for (const json& sample : objects_in(files.bandwidth, "bandwidth.jsonl", "monotonic", notes)) {
    bandwidth.take(sample);
  }
  const json limits = object_of(files.limits, "limits.json", notes);
  data["bandwidth"] = bandwidth.all(limits);
  data["limits"] = {{"hosts", number_in(limits, "hosts")},
                    {"copiers", number_in(limits, "copiers")},
                    {"interface", limits.is_object() ? limits.value("interface", json()) : json()}};
  const double begun = events.empty() ? 0 : number_in(events.front(), "monotonic");
  const json job = object_of(files.job, "job.json", notes);
  data["environment"] = environment_of(job);
  data["report"] = object_of(files.error, "error.json", notes);
  const json& report = data["report"];
  data["goodput"] = report.is_object() && report.contains("goodput") ? report["goodput"] : json();
  data["series"] = waiting_of(samples, begun);
  data["series"]["steps"] = steps_of(events, begun);
  data["job"] = job_of(job, events);
  data["events"] = std::move(events);
  data["notes"] = std::move(notes);
  return without_tags(json_text(data));
}

}  // namespace dlaunch
