#include "ring/plan_rules.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/units.h"

namespace dlaunch {
namespace {

constexpr std::size_t kLeastGranule = 4 << 10, kMostGranule = 16 << 20;
constexpr int kMostWindow = 1024;
constexpr std::size_t kLongestText = 250;  // it travels with a rank's address

// Up to the separator, which goes, too. All of it where there is none.
std::string_view cut_off(std::string_view& text, char separator) {
  const std::size_t at = std::min(text.find(separator), text.size());
  const auto head = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return head;
}

Result<void> parse_sizes(std::string_view text, PlanRule& rule) {
  if (text.empty()) return {};
  const bool range = text.find('-') != std::string_view::npos;
  const auto low = cut_off(text, '-');
  const auto high = range ? text : low;
  for (const auto& [word, bound] : {std::pair(low, &rule.least), std::pair(high, &rule.most)}) {
    if (word.empty()) continue;
    const auto bytes = parse_bytes(word);
    if (!bytes) return bytes.error();
    *bound = static_cast<std::size_t>(*bytes);
  }
  if (rule.least <= rule.most) return {};
  return Error{.code = Errc::usage, .what = "no size is in that range"};
}

Result<void> parse_way(std::string_view word, PlanRule& rule) {
  std::string known;
  for (const Way way : kWays) {
    if (rule.collective ? !has_way(*rule.collective, way) : way_name(way).empty()) continue;
    if (way_name(way) == word) {
      rule.way = way;
      // The other collectives would go on as before, without a word.
      if (rule.collective) return {};
    }
    known += fmt::format(" {}", way_name(way));
  }
  if (rule.way) {
    return Error{.code = Errc::usage, .what = "a way belongs to one collective, not to all"};
  }
  return Error{.code = Errc::usage,
               .what = fmt::format("'{}' is no way to do it; there are:{} granule=BYTES "
                                   "window=GRANULES",
                                   word, known)};
}

Result<void> parse_change(std::string_view text, PlanRule& rule) {
  std::string_view value = text;
  const auto word = cut_off(value, '=');
  if (word == "granule") {
    const auto bytes = parse_bytes(value);
    if (!bytes) return bytes.error();
    if (*bytes < kLeastGranule || *bytes > kMostGranule) {
      return Error{.code = Errc::usage, .what = "a granule has from 4K to 16M"};
    }
    rule.granule_bytes = static_cast<std::size_t>(*bytes);
    return {};
  }
  if (word == "window") {
    const auto granules = parse_int(value, 1, kMostWindow, "window");
    if (!granules) return granules.error();
    rule.window = static_cast<std::size_t>(*granules);
    return {};
  }
  return parse_way(text, rule);
}

Result<PlanRule> parse_rule(std::string_view text) {
  PlanRule rule;
  if (std::count(text.begin(), text.end(), ':') != 2) {
    return Error{.code = Errc::usage, .what = "a rule is COLLECTIVE:SIZES:CHANGE[,CHANGE...]"};
  }
  const auto collective = cut_off(text, ':');
  if (collective != "all") {
    rule.collective = collective_named(collective);
    if (!rule.collective || *rule.collective == Collective::barrier) {
      return Error{.code = Errc::usage,
                   .what = fmt::format("'{}' is no collective with data, nor all", collective)};
    }
  }
  if (auto ok = parse_sizes(cut_off(text, ':'), rule); !ok) return ok.error();
  do {
    if (auto ok = parse_change(cut_off(text, ','), rule); !ok) return ok.error();
  } while (!text.empty());
  return rule;
}

std::size_t bytes_of(const Shape& shape, int ranks) {
  const auto& traits = traits_of(shape.collective);
  if (!traits.in_parts && !traits.out_parts) return shape.count * shape.element_bytes;
  const Part last = part_of(shape, ranks - 1);
  return (last.first + last.count) * shape.element_bytes;
}

}  // namespace

Result<PlanRules> parse_plan_rules(std::string_view text) {
  if (text.size() > kLongestText) {
    return Error{.code = Errc::usage,
                 .what = fmt::format("longer than {} characters", kLongestText)};
  }
  PlanRules rules;
  while (!text.empty()) {
    const auto word = cut_off(text, ';');
    auto rule = parse_rule(word);
    if (!rule) {
      return Error{.code = Errc::usage, .what = fmt::format("'{}': {}", word, rule.error().what)};
    }
    rules.push_back(*rule);
  }
  return rules;
}

Tuning tuning_by(const PlanRules& rules, const Shape& shape, int ranks, const Tuning& tuning) {
  for (const PlanRule& rule : rules) {
    if (rule.collective && *rule.collective != shape.collective) continue;
    const std::size_t bytes = bytes_of(shape, ranks);
    if (bytes < rule.least || bytes > rule.most) continue;
    Tuning changed = tuning;
    changed.forced = rule.way;
    changed.granule_bytes = rule.granule_bytes.value_or(tuning.granule_bytes);
    changed.window = rule.window.value_or(tuning.window);
    changed.by_rule = true;
    return changed;
  }
  return tuning;
}

}  // namespace dlaunch
