#include "ring/plan/plan_rules.h"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "base/units.h"

namespace dlaunch {
namespace {

constexpr std::size_t kLeastGranule = 4 << 10, kMostGranule = 16 << 20;
constexpr std::size_t kLine = 64;  // granularity of cuts
constexpr int kMostWindow = 1024;
constexpr std::size_t kLongestText = 250;  // it travels with a rank's address
constexpr std::array kShmAlgorithms = {ShmPlan::Algorithm::one_shot, ShmPlan::Algorithm::blocks,
                                       ShmPlan::Algorithm::exchange};

// Takes the text up to the separator, and the separator; all of it if there is no separator.
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

bool takes(const PlanRule& rule, Algorithm algorithm) {
  return rule.collective ? has_algorithm(*rule.collective, algorithm)
                         : !algorithm_name(algorithm).empty();
}

bool takes(const PlanRule& rule, ShmPlan::Algorithm algorithm) {
  const auto collective = rule.collective.value_or(Collective::all_reduce);
  return !shm_algorithm_name(algorithm).empty() &&
         (algorithm != ShmPlan::Algorithm::exchange || has_exchange(collective));
}

Result<void> parse_algorithm(std::string_view word, PlanRule& rule) {
  std::string known;
  bool found = false;
  const auto look = [&](const auto& algorithms, auto name, auto& wish) {
    for (const auto algorithm : algorithms) {
      if (!takes(rule, algorithm)) continue;
      if (name(algorithm) == word) {
        wish = algorithm;
        found = true;
      }
      known += fmt::format(" {}", name(algorithm));
    }
  };
  look(kAlgorithms, algorithm_name, rule.algorithm);
  look(kShmAlgorithms, shm_algorithm_name, rule.shm.algorithm);
  // Without this error the other collectives would silently ignore the rule.
  if (found && !rule.collective) {
    return Error{.code = Errc::usage, .what = "an algorithm belongs to one collective, not to all"};
  }
  if (found) return {};
  return Error{.code = Errc::usage,
               .what = fmt::format("'{}' is no algorithm for it; there are:{} granule=BYTES "
                                   "window=GRANULES shm-chunk=BYTES",
                                   word, known)};
}

Result<void> parse_size_of(std::string_view word, std::string_view value,
                           std::optional<std::size_t>& size) {
  const auto bytes = parse_bytes(value);
  if (!bytes) return bytes.error();
  if (*bytes < kLeastGranule || *bytes > kMostGranule) {
    return Error{.code = Errc::usage, .what = fmt::format("a {} has from 4K to 16M", word)};
  }
  size = static_cast<std::size_t>(*bytes) / kLine * kLine;
  return {};
}

Result<void> parse_change(std::string_view text, PlanRule& rule) {
  std::string_view value = text;
  const auto word = cut_off(value, '=');
  if (word == "granule") return parse_size_of(word, value, rule.granule_bytes);
  if (word == "shm-chunk") return parse_size_of(word, value, rule.shm.chunk_bytes);
  if (word == "window") {
    const auto granules = parse_int(value, 1, kMostWindow, "window");
    if (!granules) return granules.error();
    rule.window = static_cast<std::size_t>(*granules);
    return {};
  }
  return parse_algorithm(text, rule);
}

Result<PlanRule> parse_rule(std::string_view text) {
  PlanRule rule;
  if (std::count(text.begin(), text.end(), ':') != 2) {
    return Error{.code = Errc::usage, .what = "a rule is COLLECTIVE:SIZES:CHANGE[,CHANGE...]"};
  }
  const auto collective = cut_off(text, ':');
  if (collective != "all") {
    rule.collective = collective_named(collective);
    if (!rule.collective || *rule.collective == Collective::barrier ||
        is_composed(*rule.collective)) {
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
  if (shape.splits) {
    return longest_part(shape) * static_cast<std::size_t>(ranks) * shape.element_bytes;
  }
  return all_parts(shape, ranks) * shape.element_bytes;
}

// Null: none.
const PlanRule* rule_for(const PlanRules& rules, const Shape& shape, int ranks) {
  if (rules.empty()) return nullptr;
  const std::size_t bytes = bytes_of(shape, ranks);
  for (const PlanRule& rule : rules) {
    if (rule.collective && *rule.collective != shape.collective) continue;
    if (bytes >= rule.least && bytes <= rule.most) return &rule;
  }
  return nullptr;
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
  const PlanRule* const rule = rule_for(rules, shape, ranks);
  if (rule == nullptr || !(rule->algorithm || rule->granule_bytes || rule->window)) return tuning;
  Tuning changed = tuning;
  changed.forced = rule->algorithm;
  changed.granule_bytes = rule->granule_bytes.value_or(tuning.granule_bytes);
  changed.granule_by_rule = rule->granule_bytes.has_value();
  changed.window = rule->window.value_or(tuning.window);
  changed.by_rule = true;
  return changed;
}

ShmWish shm_wish_by(const PlanRules& rules, const Shape& shape, int ranks) {
  const PlanRule* const rule = rule_for(rules, shape, ranks);
  return rule == nullptr ? ShmWish{} : rule->shm;
}

}  // namespace dlaunch
