#include "launcher/lead/metrics/metrics_text.h"

#include <cmath>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace dlaunch {
namespace {

using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

// In a label's value.
std::string label_value(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return out + "\"";
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

class MetricsWriter {
 public:
  MetricsWriter(MetricsForm form, const std::string& job) : form_(form), job_(label_value(job)) {}

  // A family begins, and its samples follow. Its name is without _total.
  void gauge(std::string_view name, std::string_view help) { begin(name, "gauge", "", help); }
  void counter(std::string_view name, std::string_view help) {
    begin(name, "counter", "_total", help);
  }
  // The same for a family of one sample.
  template <class Number>
  void gauge(std::string_view name, std::string_view help, Number value) {
    gauge(name, help);
    sample(value);
  }
  template <class Number>
  void counter(std::string_view name, std::string_view help, Number value) {
    counter(name, help);
    sample(value);
  }
  // Its samples are parts().
  void histogram(std::string_view name, std::string_view help) {
    begin(name, "histogram", "", help);
  }
  template <class Number>
  void part(std::string_view suffix, Number value, Labels labels) {
    const std::string family = sample_name_;
    sample_name_ += suffix;
    sample(value, labels);
    sample_name_ = family;
  }
  // Text about the job: its value is 1.
  void info(std::string_view name, std::string_view help, Labels labels) {
    const bool open = form_ == MetricsForm::openmetrics;
    begin(name, open ? "info" : "gauge", "_info", help);
    sample(1, labels);
  }
  template <class Number>
  void sample(Number value, Labels labels = {}) {
    fmt::format_to(std::back_inserter(text_), "{}{{job_id={}", sample_name_, job_);
    for (const auto& [label, what] : labels) {
      fmt::format_to(std::back_inserter(text_), ",{}={}", label, label_value(what));
    }
    fmt::format_to(std::back_inserter(text_), "}} {}\n", value);
  }
  std::string take() {
    if (form_ == MetricsForm::openmetrics) text_ += "# EOF\n";
    return std::move(text_);
  }

 private:
  void begin(std::string_view name, std::string_view type, std::string_view suffix,
             std::string_view help) {
    sample_name_ = fmt::format("dlaunch_{}{}", name, suffix);
    const std::string family =
        form_ == MetricsForm::openmetrics ? fmt::format("dlaunch_{}", name) : sample_name_;
    fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", family, help, family,
                   type);
  }

  const MetricsForm form_;
  const std::string job_;
  std::string sample_name_;
  std::string text_;
};

void add_job(MetricsWriter& out, const JobStatus& job) {
  out.info("job", "The job.", {{"host", job.host}, {"program", job.program}});
  out.gauge("job_state", "1 for the state that the job is in.");
  for (const JobPhase phase : kJobPhases) {
    out.sample(job.phase == phase ? 1 : 0, {{"state", name(phase)}});
  }
  out.gauge("job_run_seconds", "For how long this dlaunch has led the job.", to_seconds(job.ran));
  out.gauge("job_round", "The number of the newest round.", job.round);
  out.gauge("job_workers", "The number of workers in the newest round.", job.size);
  out.gauge("job_workers_wanted", "The number of workers that the job grows to.", job.target_size);
  out.gauge("job_workers_limit", "The largest number of workers.", job.max_size);
  out.gauge("job_restarts_left", "The number of restarts that would be granted now.",
            job.restarts_left);
}

// What the program reports of its progress.
void add_progress(MetricsWriter& out, const std::optional<RunPace>& pace) {
  if (!pace) return;
  out.gauge("job_step", "The step that the program has reported.", pace->last.step);
  if (pace->last.total > 0) {
    out.gauge("job_steps_planned", "The number of steps that the program plans.", pace->last.total);
  }
  if (pace->steps_per_s) {
    out.gauge("job_steps_per_second", "The program's steps in a second, of late.",
              *pace->steps_per_s);
  }
  if (pace->left) {
    out.gauge("job_left_seconds", "The time until the last step, at this rate.",
              to_seconds(*pace->left));
  }
  if (pace->last.values.empty()) return;
  out.gauge("job_value", "A number that the program has reported.");
  std::set<std::string> names;  // a label stands in one sample only
  for (const auto& [name, value] : pace->last.values) {
    if (names.insert(name).second) out.sample(number_text(value), {{"name", name}});
  }
}

void add_by_kind(MetricsWriter& out, const char* label,
                 const std::map<FailureKind, std::uint64_t>& counts) {
  for (const auto& [word, kind] : job_event::kFailureWords) {
    const auto found = counts.find(kind);
    out.sample(found == counts.end() ? 0 : found->second, {{label, word}});
  }
}

void add_counters(MetricsWriter& out, const JobCounters& counters) {
  out.counter("rounds", "Rounds that have begun.", counters.rounds);
  out.counter("failures", "Workers that have failed, by kind.");
  add_by_kind(out, "kind", counters.failures);
  out.counter("restarts", "Restarts, by reason.");
  add_by_kind(out, "reason", counters.restarts);
  out.counter("hosts_lost", "Hosts that were lost.", counters.hosts_lost);
  out.counter("commits", "Commits of the program's state.", counters.commits);
  out.gauge("commit_version", "The version of the newest commit.", counters.version);
  out.counter("hang_findings", "Findings that a worker hangs, or no longer does.", counters.hangs);
  out.counter("straggler_findings", "Findings that a worker or a connection is slow.",
              counters.stragglers);
  out.counter("steps", "Collectives of all ranks.", counters.steps);
}

void add_goodput(MetricsWriter& out, const GoodputCounters& goodput) {
  if (!goodput.goodput) return;
  out.gauge("goodput_ratio", "The share of compute and transfer in the time of all ranks.",
            *goodput.goodput);
  out.counter("rank_seconds",
              "The time of all ranks, by account, and by the rank that it is due to.");
  for (const auto& [key, time] : goodput.counters) {
    const double seconds = to_seconds(time);
    const std::string culprit =
        key.culprit.value_or(-1) < 0 ? "other" : std::to_string(*key.culprit);
    if (key.cause) {
      out.sample(seconds, {{"account", key.account},
                           {"culprit", culprit},
                           {"cause", word_of(kWaitCauseWords, *key.cause)}});
    } else if (key.culprit) {
      out.sample(seconds, {{"account", key.account}, {"culprit", culprit}});
    } else {
      out.sample(seconds, {{"account", key.account}});
    }
  }
}

void add_steps(MetricsWriter& out, const JobCounters& counters) {
  if (!counters.last_step) return;
  const auto each = [&](double RankTimes::*what) {
    int rank = 0;
    for (const RankTimes& times : counters.last_step->ranks) {
      out.sample(times.*what, {{"rank", std::to_string(rank++)}});
    }
  };
  out.gauge("rank_step_seconds", "The time from one collective of all ranks to the next, of late.");
  each(&RankTimes::step);
  out.gauge("rank_collective_seconds", "The time within each of these collectives, of late.");
  each(&RankTimes::in_op);
}

// bound(i) is the upper bound of class i; the last class has none.
template <class Bound>
void add_buckets(MetricsWriter& out, const TallySums& tally,
                 const std::vector<std::uint64_t>& classes, Bound bound) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    sum += classes[i];
    const std::string le = i + 1 < classes.size() ? fmt::format("{}", bound(i)) : "+Inf";
    out.part("_bucket", sum,
             {{"kind", kCollectiveNames[tally.kind]},
              {"size", kTallySizeNames[tally.size]},
              {"le", le}});
  }
}

void add_collectives(MetricsWriter& out, const JobCounters& counters) {
  const auto each = [&](auto what) {
    for (const auto& [key, sums] : counters.tallies) {
      TallySums tally = sums;
      tally.kind = static_cast<std::uint8_t>(key.first);
      tally.size = static_cast<std::uint8_t>(key.second);
      what(tally, {{"kind", kCollectiveNames[tally.kind]}, {"size", kTallySizeNames[tally.size]}});
    }
  };
  out.histogram("collective_seconds", "The time of a collective on one rank, by kind and size.");
  each([&](const TallySums& tally, Labels labels) {
    add_buckets(out, tally, tally.times, [](std::size_t i) {
      return static_cast<double>(tally_bound(kTallyFirstNs, i)) / 1e9;
    });
    out.part("_count", std::accumulate(tally.times.begin(), tally.times.end(), std::uint64_t{0}),
             labels);
    out.part("_sum", static_cast<double>(tally.ns) / 1e9, labels);
  });
  out.histogram("collective_bytes_per_second", "The rate of a collective on one rank.");
  each([&](const TallySums& tally, Labels) {
    add_buckets(out, tally, tally.rates,
                [](std::size_t i) { return static_cast<double>(tally_bound(kTallyFirstRate, i)); });
  });
  out.counter("collective_bytes", "The bytes of collectives, by kind and size.");
  each([&](const TallySums& tally, Labels labels) { out.sample(tally.bytes, labels); });
}

// One sample of each host that has come; what(host) is its value.
template <class What>
void each_host(MetricsWriter& out, const JobStatus& job, What what) {
  for (const HostStatus& host : job.all_hosts) {
    if (!host.name.empty()) out.sample(what(host), {{"host", host.name}});
  }
}

void add_hosts(MetricsWriter& out, const JobStatus& job) {
  out.gauge("host_ranks", "The number of ranks on the host.");
  each_host(out, job, [](const HostStatus& host) { return host.ranks; });
  out.gauge("host_drained", "1: the host is drained, or about to be.");
  each_host(out, job, [](const HostStatus& host) { return host.drained ? 1 : 0; });
}

// One sample of each worker that has a rank; what(worker) is its value.
template <class What>
void each_rank(MetricsWriter& out, const JobStatus& job, bool running, What what) {
  for (const WorkerStatus& worker : job.workers) {
    if (worker.rank < 0 || (running && worker.pid <= 0)) continue;
    out.sample(what(worker), {{"rank", std::to_string(worker.rank)}, {"host", worker.host}});
  }
}

void add_workers(MetricsWriter& out, const JobStatus& job) {
  out.gauge("worker_up", "1: the worker runs.");
  each_rank(out, job, false, [](const WorkerStatus& worker) { return worker.up ? 1 : 0; });
  out.gauge("worker_round", "The worker's round.");
  each_rank(out, job, true, [](const WorkerStatus& worker) { return worker.figures.round; });
  out.counter("worker_cpu_seconds", "CPU time of the worker's process.");
  each_rank(out, job, true,
            [](const WorkerStatus& worker) { return to_seconds(worker.figures.cpu); });
  out.gauge("worker_memory_bytes", "Resident memory of the worker's process.");
  each_rank(out, job, true, [](const WorkerStatus& worker) { return worker.figures.memory; });
  out.gauge("worker_operations_per_second", "Operations of libdlring, over the last seconds.");
  each_rank(out, job, true, [](const WorkerStatus& worker) {
    const double over = to_seconds(worker.figures.rate.over);
    return over > 0 ? static_cast<double>(worker.figures.rate.operations) / over : 0;
  });
}

// One sample of each GPU of each rank, if what(gpu) is not negative.
template <class What>
void each_gpu(MetricsWriter& out, const JobStatus& job, What what) {
  for (const WorkerStatus& worker : job.workers) {
    if (worker.rank < 0) continue;
    for (const NodeGpu& gpu : worker.figures.gpus) {
      if (what(gpu) < 0) continue;
      const std::string number = gpu.instance < 0 ? std::to_string(gpu.number)
                                                  : fmt::format("{}:{}", gpu.number, gpu.instance);
      out.sample(what(gpu),
                 {{"rank", std::to_string(worker.rank)}, {"host", worker.host}, {"gpu", number}});
    }
  }
}

void add_gpus(MetricsWriter& out, const JobStatus& job) {
  out.gauge("gpu_utilization_ratio", "The GPU's load, from 0 to 1.");
  each_gpu(out, job, [](const NodeGpu& gpu) { return gpu.utilisation / 100.0; });
  out.gauge("gpu_memory_bytes", "The GPU's memory in use.");
  each_gpu(out, job, [](const NodeGpu& gpu) { return static_cast<std::int64_t>(gpu.memory_used); });
  out.gauge("gpu_memory_limit_bytes", "The GPU's memory.");
  each_gpu(out, job,
           [](const NodeGpu& gpu) { return static_cast<std::int64_t>(gpu.memory_total); });
  out.gauge("gpu_temperature_celsius", "The GPU's temperature.");
  each_gpu(out, job, [](const NodeGpu& gpu) { return gpu.temperature; });
  out.gauge("gpu_ecc_errors", "Uncorrected ECC errors since the driver started.");
  each_gpu(out, job, [](const NodeGpu& gpu) { return gpu.ecc_errors; });
}

}  // namespace

std::string render_metrics(const JobStatus& job, const JobCounters& counters, MetricsForm form) {
  MetricsWriter out(form, job.job_id);
  add_job(out, job);
  add_progress(out, job.pace);
  add_counters(out, counters);
  add_goodput(out, counters.goodput);
  add_steps(out, counters);
  add_collectives(out, counters);
  add_hosts(out, job);
  add_workers(out, job);
  add_gpus(out, job);
  return out.take();
}

}  // namespace dlaunch
