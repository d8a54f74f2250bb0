#include "elastic/chaos.h"

#include <signal.h>

#include <algorithm>
#include <charconv>
#include <string>

#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"

namespace dlaunch {
namespace {

// Of a slow worker: it stands and runs in turn.
constexpr Duration kTurn = std::chrono::milliseconds(10);

Result<ChaosConfig::Ill> parse_ill(std::string_view text, Duration lasts) {
  const auto colon = std::min(text.find(':'), text.size());
  auto every = parse_duration(text.substr(0, colon));
  if (!every) return every.error();
  ChaosConfig::Ill ill{*every, lasts};
  if (colon < text.size()) {
    auto given = parse_duration(text.substr(colon + 1));
    if (!given) return given.error();
    ill.lasts = *given;
  }
  if (ill.every <= Duration::zero() || ill.lasts <= Duration::zero()) {
    return Error{.code = Errc::usage, .what = fmt::format("a time in '{}' is 0", text)};
  }
  return ill;
}

}  // namespace

Result<ChaosConfig> parse_chaos(std::string_view text, std::string_view name) {
  const auto wrong = [&](const std::string& what) {
    return Error{.code = Errc::usage, .what = fmt::format("{}: {}", name, what)};
  };
  ChaosConfig config;
  for (const auto item : split_words(text, ',')) {
    const auto equals = std::min(item.find('='), item.size());
    const auto key = item.substr(0, equals);
    const auto value = equals < item.size() ? item.substr(equals + 1) : std::string_view();
    if (key == "seed") {
      const auto [end, err] =
          std::from_chars(value.data(), value.data() + value.size(), config.seed);
      if (err == std::errc() && end == value.data() + value.size()) continue;
      return wrong(fmt::format("'{}' is not a whole number", value));
    }
    ChaosConfig::Ill* const ill = key == "kill"   ? &config.kill
                                  : key == "stop" ? &config.stop
                                  : key == "slow" ? &config.slow
                                                  : nullptr;
    if (ill == nullptr) {
      return wrong(
          fmt::format("'{}' is not one of kill=TIME, stop=TIME[:TIME], slow=TIME[:TIME], "
                      "seed=N",
                      item));
    }
    auto parsed =
        parse_ill(value, key == "slow" ? std::chrono::seconds(5) : std::chrono::seconds(1));
    if (!parsed) return wrong(parsed.error().what);
    *ill = *parsed;
  }
  return config;
}

Chaos::Chaos(TimePoint now, const ChaosConfig& config) : config_(config), random_(config.seed) {
  schedule(now, config_.kill, kill_at_);
  schedule(now, config_.stop, stop_at_);
  schedule(now, config_.slow, slow_at_);
}

void Chaos::schedule(TimePoint now, const ChaosConfig::Ill& ill, TimePoint& next) {
  if (ill.every == Duration::zero()) return;
  const auto thousandths = static_cast<std::int64_t>(500 + random_() % 1001);
  next = now + ill.every / 1000 * thousandths;
}

void Chaos::new_round(TimePoint now) {
  kill_at_ = std::max(kill_at_, now + config_.kill.every / 2);
}

std::optional<int> Chaos::victim(const std::vector<int>& alive) {
  if (alive.empty()) return std::nullopt;
  return alive[random_() % alive.size()];
}

std::vector<Chaos::Deed> Chaos::step(TimePoint now, const std::vector<int>& alive) {
  std::vector<Deed> deeds;
  if (now >= kill_at_) {
    schedule(now, config_.kill, kill_at_);
    if (const auto whom = victim(alive)) {
      deeds.push_back({*whom, SIGKILL});
      ill_.erase(*whom);
    }
  }
  for (const bool slow : {false, true}) {
    TimePoint& at = slow ? slow_at_ : stop_at_;
    const auto& ill = slow ? config_.slow : config_.stop;
    if (now < at) continue;
    schedule(now, ill, at);
    const auto whom = victim(alive);
    if (!whom || ill_.contains(*whom)) continue;
    const TimePoint until = now + ill.lasts;
    deeds.push_back({*whom, SIGSTOP, slow ? kTurn : ill.lasts});
    ill_[*whom] = {slow ? now + 2 * kTurn : until, until};
  }
  std::erase_if(ill_, [&](const auto& one) {
    const bool gone = std::find(alive.begin(), alive.end(), one.first) == alive.end();
    return gone || now >= one.second.until;
  });
  for (auto& [whom, state] : ill_) {
    if (now < state.next) continue;
    deeds.push_back({whom, SIGSTOP, kTurn});
    state.next = now + 2 * kTurn;
  }
  return deeds;
}

TimePoint Chaos::deadline() const {
  TimePoint next = std::min({kill_at_, stop_at_, slow_at_});
  for (const auto& [whom, state] : ill_) next = std::min({next, state.next, state.until});
  return next;
}

}  // namespace dlaunch
