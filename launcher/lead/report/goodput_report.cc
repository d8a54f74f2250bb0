#include "launcher/lead/report/goodput_report.h"

#include <fmt/format.h>

#include "base/units.h"
#include "launcher/wire/json_text.h"

namespace dlaunch {
namespace {

using nlohmann::json;

constexpr std::size_t kShownCosts = 4;
constexpr Duration kLeastRun = std::chrono::seconds(10);
constexpr double kLeastNamed = 0.2;
constexpr double kShownShare = 0.0005;  // 0.1 %, rounded

std::string cause_word(WaitCause cause) { return std::string(word_of(kWaitCauseWords, cause)); }

const char* cause_in_words(WaitCause cause) {
  static constexpr const char* kWords[] = {"waits for its compute", "waits for its input",
                                           "waits for its garbage collector",
                                           "waits for its network link", "waits for the busy host"};
  return kWords[static_cast<int>(cause)];
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

// Appends to a line what makes up its subject: ": compute 75.0 %, transfer 11.0 %".
class Parts {
 public:
  Parts(std::string& line, const Goodput& goodput) : line_(line), goodput_(goodput) {}
  void add(std::string_view what, Duration time) {
    const double share = goodput_.share(time);
    if (share < kShownShare) return;
    line_ += fmt::format("{}{} {}", separator_, what, percent(share));
    separator_ = ", ";
  }

 private:
  std::string& line_;
  const Goodput& goodput_;
  const char* separator_ = ": ";
};

std::string total_line(const Goodput& goodput) {
  std::string line =
      fmt::format("goodput {} of {} rank{} in {}", percent(goodput.goodput()), goodput.ranks.size(),
                  goodput.ranks.size() == 1 ? "" : "s", format_duration(goodput.wall));
  Parts parts(line, goodput);
  for (const auto& [account, time] : goodput.accounts()) {
    parts.add(account == "lost_work" ? "lost work" : account, time);
  }
  return line;
}

std::string cost_line(const Goodput& goodput, const Goodput::Cost& cost) {
  const std::string where = cost.host.empty() ? "" : fmt::format(" ({})", cost.host);
  const std::string who = cost.rank < 0 ? cost.host : fmt::format("rank {}{}", cost.rank, where);
  std::string line = fmt::format("{} cost {}", who, percent(goodput.share(cost.sum())));
  Parts parts(line, goodput);
  for (const auto& [cause, time] : cost.waits) parts.add(cause_in_words(cause), time);
  parts.add("recovery", cost.recovery);
  parts.add("lost work", cost.lost);
  return line;
}

// Null: nothing has cost anything.
json costs_most(const Goodput& goodput, const std::vector<Goodput::Cost>& culprits) {
  const bool any = !culprits.empty() && goodput.share(culprits.front().sum()) >= kShownShare;
  return any ? json(cost_line(goodput, culprits.front())) : json();
}

json due_json(const std::vector<Goodput::Due>& all) {
  json list = json::array();
  for (const auto& due : all) {
    list.push_back({{"rank", number_or_null(due.culprit)}, {"s", to_seconds(due.time)}});
  }
  return list;
}

// In the order of the costs. A busy host has no rank.
json costs_json(const Goodput& goodput, const std::vector<Goodput::Cost>& costs) {
  json list = json::array();
  for (const auto& cost : costs) {
    json waits = json::object();
    for (const auto& [cause, time] : cost.waits) waits[cause_word(cause)] = to_seconds(time);
    list.push_back({{"rank", number_or_null(cost.rank)},
                    {"host", text_or_null(cost.host)},
                    {"s", to_seconds(cost.sum())},
                    {"share", goodput.share(cost.sum())},
                    {"waiting_s", std::move(waits)},
                    {"recovery_s", to_seconds(cost.recovery)},
                    {"lost_work_s", to_seconds(cost.lost)}});
  }
  return list;
}

json rank_json(const Goodput::Rank& rank) {
  json waits = json::array();
  for (const auto& wait : rank.waits) {
    waits.push_back({{"rank", number_or_null(wait.culprit)},
                     {"cause", cause_word(wait.cause)},
                     {"s", to_seconds(wait.time)}});
  }
  return {{"rank", rank.rank},
          {"wall_s", to_seconds(rank.wall)},
          {"compute_s", to_seconds(rank.compute)},
          {"transfer_s", to_seconds(rank.transfer)},
          {"start_s", to_seconds(rank.start)},
          {"waiting", std::move(waits)},
          {"recovery", due_json(rank.recovery)},
          {"lost_work", due_json(rank.lost)}};
}

}  // namespace

std::vector<std::string> goodput_lines(const Goodput& goodput) {
  if (goodput.ranks.empty()) return {};
  std::vector<std::string> lines = {total_line(goodput)};
  for (const auto& cost : goodput.culprits()) {
    if (lines.size() > kShownCosts || goodput.share(cost.sum()) < kShownShare) break;
    lines.push_back("  " + cost_line(goodput, cost));
  }
  if (!goodput.sees_waits) {
    lines.emplace_back("  the program does not use libdlring: compute includes all waits");
  }
  return lines;
}

std::string worst_cost_line(const Goodput& goodput) {
  if (!goodput.sees_waits || goodput.wall < kLeastRun) return {};
  const auto culprits = goodput.culprits();
  if (culprits.empty() || goodput.share(culprits.front().sum()) < kLeastNamed) return {};
  return cost_line(goodput, culprits.front()) + "; --goodput shows where all time went";
}

json goodput_json(const Goodput& goodput) {
  const auto culprits = goodput.culprits();
  json ranks = json::array();
  for (const auto& rank : goodput.ranks) ranks.push_back(rank_json(rank));
  json out = {{"sees_waits", goodput.sees_waits},
              {"least_wait_s", to_seconds(goodput.least)},
              {"dropped_spans", goodput.dropped},
              {"text", goodput_lines(goodput)},
              {"costs_most", costs_most(goodput, culprits)},
              {"costs", costs_json(goodput, goodput.costs)},
              {"culprits", costs_json(goodput, culprits)},
              {"ranks", std::move(ranks)}};
  for (const auto& [name, value] : goodput.figures()) out[name] = value;
  return out;
}

}  // namespace dlaunch
