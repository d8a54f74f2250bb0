#include "launcher/lead/report/trace_text.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "base/flight.h"
#include "base/ring_names.h"
#include "base/text.h"
#include "elastic/wait_finder.h"
#include "launcher/wire/json_text.h"

namespace dlaunch {
namespace {

using nlohmann::json;

// The job's own process; ranks have their number plus one, because viewers treat 0 specially.
constexpr int kJobTrack = 1'000'000;
int track_of(int rank) { return rank + 1; }

std::string name_of(const Span& span) {
  if (span.kind == SpanKind::wait) return "wait for operations in the background";
  if (span.what == kFlightSend) return fmt::format("send to rank {}", span.peer);
  if (span.what == kFlightRecv) {
    return span.peer < 0 ? "recv from any rank" : fmt::format("recv from rank {}", span.peer);
  }
  return std::string(span.what < std::size(kCollectiveNames) ? kCollectiveNames[span.what] : "?");
}

class TraceText {
 public:
  TraceText(const Trace& trace, const std::function<void(std::string_view)>& write)
      : trace_(trace), write_(write) {}

  void write() {
    write_(R"({"displayTimeUnit":"ms","traceEvents":[)");
    write_job();
    for (const auto& [rank, of] : trace_.ranks) write_rank(rank, of);
    write_waits();
    write_("\n],\"otherData\":" + json_text(metadata()) + "}\n");
  }

 private:
  // Microseconds since the job's beginning.
  double time(TimePoint at) const {
    return static_cast<double>((at - trace_.begun).count()) / 1000;
  }
  double time(Duration length) const { return static_cast<double>(length.count()) / 1000; }

  void event(const json& what) {
    write_(first_ ? "\n" : ",\n");
    first_ = false;
    write_(json_text(what));
  }

  void name_track(int track, const std::string& name, int order) {
    event({{"ph", "M"}, {"name", "process_name"}, {"pid", track}, {"args", {{"name", name}}}});
    event({{"ph", "M"},
           {"name", "process_sort_index"},
           {"pid", track},
           {"args", {{"sort_index", order}}}});
  }

  void write_job() {
    name_track(kJobTrack, "job " + escaped(trace_.job_id), -1);
    for (std::size_t i = 0; i < trace_.rounds.size(); ++i) {
      const auto& round = trace_.rounds[i];
      const TimePoint to = i + 1 < trace_.rounds.size() ? trace_.rounds[i + 1].from : trace_.ended;
      slice(kJobTrack, fmt::format("round {}", round.number), "round", round.from, to,
            {{"ranks", round.size}}, 1);
    }
    for (const auto& mark : trace_.marks) {
      event({{"ph", "i"},
             {"name", mark.what},
             {"cat", "job"},
             {"s", mark.rank < 0 ? "g" : "p"},
             {"pid", mark.rank < 0 ? kJobTrack : track_of(mark.rank)},
             {"tid", 1},
             {"ts", time(mark.at)}});
    }
  }

  void write_rank(int rank, const Trace::Rank& of) {
    name_track(track_of(rank), fmt::format("rank {} on {}", rank, escaped(of.host)), rank);
    static constexpr const char* kThreads[] = {"program", "background", "waits"};
    for (int thread = 1; thread <= 3; ++thread) {
      event({{"ph", "M"},
             {"name", "thread_name"},
             {"pid", track_of(rank)},
             {"tid", thread},
             {"args", {{"name", kThreads[thread - 1]}}}});
    }
    TimePoint left{};
    int round = 0;
    for (const auto& operation : of.operations) {
      const Span& span = operation.span;
      const bool own = span.kind != SpanKind::background;
      if (own && round == operation.round && span.entered > left) {
        slice(track_of(rank), "compute", "compute", left, span.entered, json::object(), 1);
      }
      if (own) left = span.left, round = operation.round;
      slice(track_of(rank), name_of(span), "dlring", span.entered, span.left,
            arguments(of, operation), own ? 1 : 2);
    }
  }

  static json arguments(const Trace::Rank& of, const Trace::Operation& operation) {
    const Span& span = operation.span;
    json args = {{"round", operation.round}};
    if (span.kind == SpanKind::wait) return args;
    args["seq"] = span.seq;
    args["group"] = span.group;
    args["dtype"] = span.dtype < std::size(kDtypeNames) ? kDtypeNames[span.dtype] : "?";
    args["bytes"] = span.dtype < std::size(kDtypeBytes) ? span.count * kDtypeBytes[span.dtype] : 0;
    if (span.op < std::size(kOpNames)) args["op"] = kOpNames[span.op];
    if (span.failed) args["failed"] = true;
    const auto texts = of.texts.find(operation.round);
    if (span.how > 0 && texts != of.texts.end() && span.how <= texts->second.size()) {
      args["algorithm"] = texts->second[span.how - 1U];
    }
    return args;
  }

  void slice(int track, const std::string& name, const char* category, TimePoint from, TimePoint to,
             const json& args, int thread) {
    event({{"ph", "X"},
           {"name", name},
           {"cat", category},
           {"pid", track},
           {"tid", thread},
           {"ts", time(from)},
           {"dur", time(to - from)},
           {"args", args}});
  }

  void write_waits() {
    WaitFinder finder;
    for (const auto& [rank, of] : trace_.ranks) {
      for (const auto& operation : of.operations) {
        finder.add(operation.round, rank, of.node, operation.span);
      }
    }
    std::map<int, std::vector<TimePoint>> ends;  // of the waits of each rank
    for (Wait wait : finder.take(TimePoint::max())) {
      if (comes_from_link(wait)) wait.cause = WaitCause::link;
      ends[wait.rank].push_back(wait.to);
      write_wait(wait, false);
    }
    for (const auto& [rank, of] : trace_.ranks) {
      std::ranges::sort(ends[rank]);
      write_link_waits(rank, of, ends[rank]);
    }
  }

  // A slice of its own for each wait, within the operation, and an arrow to it from the culprit.
  void write_wait(const Wait& wait, bool estimate) {
    if (wait.to - wait.from < least_span(1)) return;
    json args = {{"rank", wait.culprit},
                 {"cause", std::string(word_of(kWaitCauseWords, wait.cause))}};
    if (estimate) args["estimate"] = true;
    slice(track_of(wait.rank), fmt::format("wait for rank {}", wait.culprit), "wait", wait.from,
          wait.to, args, 3);
    if (wait.rank == wait.culprit) return;  // for its own links
    const auto end = [&](const char* kind, int track, int thread) {
      json flow = {{"ph", kind},   {"name", "waited for"}, {"cat", "wait"},      {"id", arrows_},
                   {"pid", track}, {"tid", thread},        {"ts", time(wait.to)}};
      if (*kind == 'f') flow["bp"] = "e";
      event(flow);
    };
    end("s", track_of(wait.culprit), 1);
    end("f", track_of(wait.rank), 3);
    ++arrows_;
  }

  const std::map<int, double>& slow_links_at(TimePoint at) const {
    static const std::map<int, double> kNone;
    const auto next =
        std::upper_bound(trace_.slow_links.begin(), trace_.slow_links.end(), at,
                         [](TimePoint when, const auto& links) { return when < links.from; });
    return next == trace_.slow_links.begin() ? kNone : std::prev(next)->shares;
  }

  // The culprit's links were slow then, and it spent most of the wait in operations of its own.
  bool comes_from_link(const Wait& wait) const {
    if (wait.cause != WaitCause::compute || !slow_links_at(wait.to).contains(wait.culprit)) {
      return false;
    }
    const auto culprit = trace_.ranks.find(wait.culprit);
    if (culprit == trace_.ranks.end()) return false;
    const auto& operations = culprit->second.operations;
    auto it = std::partition_point(
        operations.begin(), operations.end(),
        [&](const auto& operation) { return operation.span.left <= wait.from; });
    Duration inside{};
    for (; it != operations.end() && it->span.entered < wait.to; ++it) {
      if (it->span.kind != SpanKind::call) continue;
      inside += std::min(wait.to, it->span.left) - std::max(wait.from, it->span.entered);
    }
    return inside * 2 >= wait.to - wait.from;
  }

  // wait_ends: of the rank's waits for ranks that came late, which come before these.
  void write_link_waits(int rank, const Trace::Rank& of, const std::vector<TimePoint>& wait_ends) {
    const Span* before = nullptr;
    int round = 0;
    for (const auto& operation : of.operations) {
      const Span& span = operation.span;
      if (span.kind == SpanKind::background) continue;
      const bool first = before == nullptr || round != operation.round;
      const Duration step = span.left - (first ? span.entered : before->left);
      before = &span, round = operation.round;
      const auto later = std::upper_bound(wait_ends.begin(), wait_ends.end(), span.left);
      TimePoint from = span.entered;
      if (later != wait_ends.begin()) from = std::max(from, *std::prev(later));
      for (const auto& [culprit, share] : slow_links_at(span.left)) {
        const Duration cost(static_cast<Duration::rep>(static_cast<double>(step.count()) * share));
        const TimePoint to = span.left;
        write_wait({rank, culprit, WaitCause::link, std::max(from, to - cost), to}, true);
      }
    }
  }

  json metadata() const {
    json ranks = json::array();
    for (const auto& [rank, of] : trace_.ranks) {
      ranks.push_back({{"rank", rank},
                       {"host", of.host},
                       {"clock_error_s", to_seconds(of.clock_error)},
                       {"operations", of.operations.size()},
                       {"dropped_operations", of.dropped}});
    }
    return {{"job_id", trace_.job_id},
            {"clock", "of the host that led the job, from the job's beginning"},
            {"ranks", std::move(ranks)}};
  }

  const Trace& trace_;
  const std::function<void(std::string_view)>& write_;
  bool first_ = true;
  int arrows_ = 0;
};

}  // namespace

void write_trace(const Trace& trace, const std::function<void(std::string_view)>& write) {
  TraceText(trace, write).write();
}

}  // namespace dlaunch
