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

// A slow worker stops and runs in turn, for this long each.
constexpr Duration kTurn = std::chrono::milliseconds(10);

// The age at which a worker that does not join has begun.
constexpr Duration kSpoken = std::chrono::seconds(10), kSilent = std::chrono::seconds(30);
constexpr Duration kLongest = std::chrono::minutes(5);
constexpr Duration kLookAgain = std::chrono::milliseconds(250);

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

Chaos::Chaos(TimePoint now, const ChaosConfig& config)
    : config_(config), random_(config.seed), stands_since_(now), look_at_(now) {
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
  if (!stands_since_) stands_since_ = now;
  look_at_ = now;
}

// -- Which workers are spared

bool Chaos::has_begun(const Member& member) const {
  if (member.joined) return true;
  if (joins_) return member.ran >= kLongest;
  return member.ran >= std::min(patience_ * (member.has_spoken ? kSpoken : kSilent), kLongest);
}

// Otherwise the clocks stand still until the next look.
bool Chaos::all_have_begun(TimePoint now, const std::vector<Member>& members) {
  for (const Member& member : members) joins_ = joins_ || member.joined;
  const bool all = !members.empty() &&
                   std::ranges::all_of(members, [this](const auto& m) { return has_begun(m); });
  if (all) {
    go_on(now);
  } else {
    if (!stands_since_) stands_since_ = now;
    look_at_ = now + kLookAgain;
  }
  return all;
}

void Chaos::go_on(TimePoint now) {
  if (!stands_since_) return;
  const Duration stood = now - *stands_since_;
  stands_since_.reset();
  for (TimePoint* at : {&kill_at_, &stop_at_, &slow_at_}) {
    if (*at != kNever) *at += stood;
  }
  if (kill_at_ != kNever) kill_at_ = std::max(kill_at_, now + config_.kill.every / 2);
}

// -- Which workers are hurt

const Chaos::Member* Chaos::victim(const std::vector<Member>& members) {
  return &members[random_() % members.size()];
}

void Chaos::strike(TimePoint now, const std::vector<Member>& members, std::vector<Deed>& deeds) {
  if (now >= kill_at_) {
    schedule(now, config_.kill, kill_at_);
    const Member& whom = *victim(members);
    deeds.push_back({whom.slot, SIGKILL});
    ill_.erase(whom.slot);
    if (!whom.joined && patience_ * kSpoken < kLongest) patience_ *= 2;
  }
  for (const bool slow : {false, true}) {
    TimePoint& at = slow ? slow_at_ : stop_at_;
    const auto& ill = slow ? config_.slow : config_.stop;
    if (now < at) continue;
    schedule(now, ill, at);
    const int whom = victim(members)->slot;
    if (ill_.contains(whom)) continue;
    const TimePoint until = now + ill.lasts;
    deeds.push_back({whom, SIGSTOP, slow ? kTurn : ill.lasts});
    ill_[whom] = {slow ? now + 2 * kTurn : until, until};
  }
}

std::vector<Chaos::Deed> Chaos::step(TimePoint now, const std::vector<Member>& members) {
  std::vector<Deed> deeds;
  if (looks(now) && all_have_begun(now, members)) strike(now, members, deeds);
  std::erase_if(ill_, [&](const auto& one) {
    const bool gone = std::ranges::none_of(
        members, [&](const Member& member) { return member.slot == one.first; });
    return gone || now >= one.second.until;
  });
  for (auto& [whom, state] : ill_) {
    if (now < state.next) continue;
    deeds.push_back({whom, SIGSTOP, kTurn});
    state.next = now + 2 * kTurn;
  }
  return deeds;
}

bool Chaos::looks(TimePoint now) const {
  return now >= (stands_since_ ? look_at_ : std::min({kill_at_, stop_at_, slow_at_}));
}

TimePoint Chaos::deadline() const {
  TimePoint next = stands_since_ ? look_at_ : std::min({kill_at_, stop_at_, slow_at_});
  for (const auto& [whom, state] : ill_) next = std::min({next, state.next, state.until});
  return next;
}

}  // namespace dlaunch
