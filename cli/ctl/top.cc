#include "cli/ctl/top.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/exit_code.h"
#include "base/print.h"
#include "base/text.h"
#include "base/text_table.h"
#include "base/units.h"
#include "cli/ctl/render.h"

namespace dlaunch::ctl {
namespace {

using nlohmann::json;
using Row = std::vector<std::string>;

constexpr Duration kEndLimit = std::chrono::seconds(5);
constexpr Duration kGpusLimit = std::chrono::seconds(6);  // the host's own limit is lower

std::string memory_text(double bytes) {
  constexpr double kGiB = 1 << 30, kMiB = 1 << 20;
  return bytes >= kGiB ? fmt::format("{:.3g} GiB", bytes / kGiB)
                       : fmt::format("{:.0f} MiB", bytes / kMiB);
}

std::string rate_text(double per_s) {
  return fmt::format("{:.{}f}", per_s, per_s > 0 && per_s < 10 ? 1 : 0);
}

std::vector<json> all_workers(const json& status) {
  std::vector<json> all;
  for (const char* kind : {"workers", "spares"}) {
    for (const auto& worker : status.at(kind)) all.push_back(worker);
  }
  return all;
}

using Processes = std::map<std::pair<std::string, int>, json>;  // by host and pid

std::pair<std::string, int> process_of(const json& worker) {
  return {worker.at("host"), worker.at("pid").is_null() ? 0 : worker.at("pid").get<int>()};
}

Processes processes_of(const json& status) {
  Processes all;
  if (status.is_null()) return all;
  for (const auto& worker : all_workers(status)) all[process_of(worker)] = worker;
  return all;
}

// Percent of one CPU.
std::string cpu_text(const json& worker, const json& before) {
  double cpu_s = worker.at("cpu_s"), over_s = worker.at("ran_s");
  if (!before.is_null() && !before.at("cpu_s").is_null() && before.at("ran_s") < over_s) {
    cpu_s -= before.at("cpu_s").get<double>();
    over_s -= before.at("ran_s").get<double>();
  }
  return over_s > 0 ? fmt::format("{:.0f}", std::max(0.0, 100 * cpu_s / over_s)) : "-";
}

// Sums up the GPUs of one worker: their number, mean, sum and maximum.
Row gpu_cells(const json& gpus) {
  if (gpus.is_null() || gpus.empty()) return Row(5, "-");
  std::string numbers;
  double used = 0, total = 0;
  int busy = 0, told = 0, hottest = -1;
  std::int64_t errors = -1;
  for (const auto& gpu : gpus) {
    numbers += (numbers.empty() ? "" : ",") + std::to_string(gpu.at("number").get<int>());
    if (!gpu.at("instance").is_null())
      numbers += ":" + std::to_string(gpu.at("instance").get<int>());
    used += gpu.at("memory_bytes").get<double>();
    total += gpu.at("memory_total_bytes").get<double>();
    if (!gpu.at("utilisation").is_null()) busy += gpu.at("utilisation").get<int>(), ++told;
    if (!gpu.at("temperature").is_null())
      hottest = std::max(hottest, gpu.at("temperature").get<int>());
    if (!gpu.at("ecc_errors").is_null())
      errors = std::max<std::int64_t>(errors, 0) + gpu.at("ecc_errors").get<std::int64_t>();
  }
  const auto from_zero = [](std::int64_t n) { return n < 0 ? "-" : std::to_string(n); };
  return {numbers, told > 0 ? std::to_string(busy / told) : "-",
          memory_text(used) + " of " + memory_text(total), from_zero(hottest), from_zero(errors)};
}

std::string doing(const json& operation) {
  if (operation.is_null()) return "-";
  const std::string what = escaped(operation.at("operation").get<std::string>());
  if (operation.at("state") != "running") return "(" + what + ")";
  return what + " for " + age(operation.at("since_s"));
}

// In milliseconds: from one collective of all ranks to the next.
std::string step_text(const json& worker) {
  const json& step_s = worker.at("step_s");
  return step_s.is_null() ? "-" : fmt::format("{:.3g}", 1000 * step_s.get<double>());
}

// The share of that time in which it waits for the last rank.
std::string wait_text(const json& worker) {
  const json &step_s = worker.at("step_s"), &wait_s = worker.at("wait_s");
  if (step_s.is_null() || wait_s.is_null() || step_s <= 0) return "-";
  // Both are means, of not quite the same collectives.
  return fmt::format("{:.0f}", 100 * std::min(1.0, wait_s.get<double>() / step_s.get<double>()));
}

Row top_row(const json& worker, const json& before, bool gpus) {
  const auto number = [&](const char* key, const char* otherwise) {
    return worker.at(key).is_null() ? otherwise : std::to_string(worker.at(key).get<int>());
  };
  Row row = {number("rank", "spare"), number("pid", "-"), number("round", "-")};
  if (worker.at("cpu_s").is_null()) {
    row.insert(row.end(), 4, "-");
  } else {
    row.push_back(cpu_text(worker, before));
    row.push_back(memory_text(worker.at("memory_bytes")));
    row.push_back(rate_text(worker.at("operations_per_s")));
    row.push_back(format_rate(worker.at("bytes_per_s")));
  }
  row.push_back(step_text(worker));
  row.push_back(wait_text(worker));
  if (gpus) {
    for (auto& cell : gpu_cells(worker.at("gpus"))) row.push_back(std::move(cell));
  }
  for (const char* key : {"host", "state"})
    row.push_back(escaped(worker.at(key).get<std::string>()));
  row.push_back(doing(worker.at("last_operation")));
  return row;
}

// A host that does not answer for a while says nothing about GPUs.
bool gpus_awaited(const json& status) {
  const auto all = all_workers(status);
  return std::any_of(all.begin(), all.end(), [](const json& worker) {
    return !worker.at("pid").is_null() && worker.at("gpus").is_null();
  });
}

// Replaces the screen's contents, or prints below the earlier text.
void show(const std::string& text, bool in_place, bool first) {
  std::string out = text;
  if (in_place) {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) size = {24, 80, 0, 0};
    out = "\x1b[H\x1b[J" + cut_to_screen(text, size.ws_row - 1, size.ws_col);
  } else if (!first) {
    out = "\n" + text;
  }
  if (!print_all(out)) throw Failure{kExitSystem, errno_error("write to stdout", errno).what};
}

// Waits for the moment that a job's end takes.
bool is_removed(const std::string& folder) {
  for (const TimePoint by = steady_now() + kEndLimit; steady_now() < by;) {
    if (::access(folder.c_str(), F_OK) != 0) return true;
    ::poll(nullptr, 0, 20);
  }
  return false;
}

// "goodput 93.1 %; rank 3 (host2) cost most, 4.2 % (link)\n", or of a busy host "goodput 70.2 %;
// host2 cost most, 28.3 %: waits for the busy host\n"
std::string goodput_line(const json& goodput) {
  const double all = goodput.is_null() ? 0 : goodput.at("rank_seconds").get<double>();
  if (all <= 0) return "";
  std::string line = fmt::format("goodput {:.1f} %", 100 * goodput.at("goodput").get<double>());
  const double cost = 100 * goodput.at("culprit_s").get<double>() / all;
  if (cost < 0.05) return line + "\n";
  const json &rank = goodput.at("culprit"), &name = goodput.at("culprit_host");
  const std::string host = name.is_null() ? "" : escaped(name.get<std::string>());
  if (rank.is_null()) {
    line += fmt::format("; {} cost most, {:.1f} %: waits for the busy host", host, cost);
  } else {
    line += fmt::format("; rank {}{} cost most, {:.1f} % ({})", rank.get<int>(),
                        host.empty() ? "" : fmt::format(" ({})", host), cost,
                        escaped(goodput.at("culprit_cause").get<std::string>()));
  }
  return line + "\n";
}

}  // namespace

std::string render_top(const json& now, const json& before) {
  const auto workers = all_workers(now);
  const auto then = processes_of(before);
  const bool gpus = std::any_of(workers.begin(), workers.end(), [](const json& worker) {
    return !worker.at("gpus").is_null() && !worker.at("gpus").empty();
  });
  std::string text =
      fmt::format("job {}: {}, round {}, {} of at most {} workers, for {}\n",
                  escaped(now.at("job_id").get<std::string>()), now.at("state").get<std::string>(),
                  now.at("round").get<int>(), now.at("size").get<int>(),
                  now.at("max_size").get<int>(), age(now.at("ran_s")));
  if (const auto whom = escaped(now.at("waits_for").get<std::string>()); !whom.empty()) {
    text += fmt::format("waits for {}\n", whom);
  }
  text += late_in_words(now);
  text += progress_in_words(now);
  text += goodput_line(now.at("goodput"));
  Row head = {"RANK", "PID", "ROUND", "CPU%", "MEMORY", "OP/S", "DATA", "STEP MS", "WAIT%"};
  if (gpus) head.insert(head.end(), {"GPU", "GPU%", "GPU MEMORY", "TEMP", "ECC"});
  const std::size_t numbers = head.size();
  head.insert(head.end(), {"HOST", "STATE", "OPERATION"});
  std::vector<Row> rows = {head};
  for (const auto& worker : workers) {
    const auto was = then.find(process_of(worker));
    rows.push_back(top_row(worker, was != then.end() ? was->second : json(), gpus));
  }
  return text + text_table(rows, numbers);
}

std::string cut_to_screen(const std::string& text, int lines, int columns) {
  std::string cut;
  int line = 0, column = 0;
  for (const char c : text) {
    if (c == '\n') {
      if (++line >= lines) return cut;
      cut += c;
      column = 0;
      continue;
    }
    if ((c & 0xc0) != 0x80) ++column;  // counts characters, not bytes
    if (column <= columns) cut += c;
  }
  return cut;
}

void run_top(const RunningJob& job, const Options& options) {
  const bool in_place = !options.once && !options.json && ::isatty(STDOUT_FILENO) == 1;
  const TimePoint begin = steady_now();
  LedJob led(job, {});
  json before;
  for (bool first = true;;) {
    json now;
    try {
      now = led.ask({ControlRequest::Command::top, {}}).at("status");
    } catch (const Failure&) {
      const std::string& folder = led.where().folder;
      if (before.is_null() || (!folder.empty() && !is_removed(folder))) throw;
      return;  // the job has ended
    }
    const bool early = before.is_null() || (gpus_awaited(now) && steady_now() - begin < kGpusLimit);
    if (!options.once || !early) {
      show(options.json ? now.dump() + "\n" : render_top(now, before), in_place,
           first || options.json);
      if (options.once) return;
      first = false;
    }
    before = std::move(now);
    ::poll(nullptr, 0, static_cast<int>(1000 * options.interval_s));
  }
}

}  // namespace dlaunch::ctl
