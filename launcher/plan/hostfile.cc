#include "launcher/plan/hostfile.h"

#include <algorithm>
#include <cctype>
#include <map>

#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMaxHosts = 65536;
constexpr int kMaxSlots = 1 << 20;

// Splits at commas outside of brackets.
std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> items;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i == text.size() || (text[i] == ',' && depth <= 0)) {
      items.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return items;
}

bool is_name(std::string_view text) {
  const auto good = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '%' ||
           c >= 0x80;
  };
  return !text.empty() && text[0] != '-' && std::ranges::all_of(text, good);
}

// Appends the numbers of "01-16" or "7" as they are written there.
Result<void> append_range(std::string_view item, std::vector<std::string>& numbers) {
  const auto dash = std::min(item.find('-'), item.size());
  const auto first_text = item.substr(0, dash);
  auto first = parse_int(first_text, 0, 1'000'000'000, "a host range");
  if (!first || first_text[0] == '-') return usage_error(fmt::format("'{}' is not a range", item));
  int last = *first;
  if (dash < item.size()) {
    auto parsed = parse_int(item.substr(dash + 1), *first, 1'000'000'000, "a host range");
    if (!parsed) return usage_error(fmt::format("'{}' is not an increasing range", item));
    last = *parsed;
  }
  if (static_cast<std::size_t>(last - *first) + 1 + numbers.size() > kMaxHosts) {
    return usage_error(fmt::format("more than {} hosts", kMaxHosts));
  }
  for (int n = *first; n <= last; ++n) {
    numbers.push_back(fmt::format("{:0{}}", n, first_text.size()));
  }
  return {};
}

// "[::1]" or "[fe80::1%eth0]:4": an address, not a range.
bool is_bracketed_address(std::string_view text) {
  return !text.empty() && text[0] == '[' && text.substr(0, text.find(']')).find(':') != text.npos;
}

// "user@node[01-16]:8" -> the entries, all with the same slots.
Result<std::vector<HostEntry>> parse_host_word(std::string_view word) {
  HostEntry entry;
  std::string_view rest = word;
  if (const auto at = rest.find('@'); at != rest.npos) {
    entry.user = rest.substr(0, at);
    if (!is_name(entry.user)) return usage_error(fmt::format("'{}': no user before '@'", word));
    rest.remove_prefix(at + 1);
  }
  std::string_view name = rest;
  std::optional<std::string_view> slots;
  const bool address = is_bracketed_address(rest);
  if (address) {
    const auto close = rest.find(']');
    if (close == rest.npos) return usage_error(fmt::format("'{}': '[' without ']'", word));
    name = rest.substr(1, close - 1);
    const auto after = rest.substr(close + 1);
    if (!after.empty() && after[0] != ':') {
      return usage_error(fmt::format("'{}': ':' expected after ']'", word));
    }
    if (!after.empty()) slots = after.substr(1);
  } else if (const auto colon = rest.find(':'); colon != rest.npos) {
    if (rest.find(':', colon + 1) != rest.npos) {
      return usage_error(fmt::format("'{}': put an IPv6 address in [ ]", word));
    }
    name = rest.substr(0, colon);
    slots = rest.substr(colon + 1);
  }
  if (slots) {
    auto number = parse_int(*slots, 1, kMaxSlots, "slots");
    if (!number) return usage_error(fmt::format("'{}': {}", word, number.error().what));
    entry.slots = *number;
  }
  auto names = address ? Result(std::vector<std::string>{std::string(name)}) : expand_ranges(name);
  if (!names) return names.error();
  std::vector<HostEntry> entries;
  entries.reserve(names->size());
  for (auto& one : *names) {
    if (!is_name(one)) return usage_error(fmt::format("'{}' is not a host name", one));
    entry.host = std::move(one);
    entries.push_back(entry);
  }
  return entries;
}

// "slots=8" and its like, the same for every entry of the line.
Result<void> apply_setting(std::string_view word, std::vector<HostEntry>& entries) {
  const auto equals = std::min(word.find('='), word.size());
  std::string key(word.substr(0, equals));
  std::ranges::replace(key, '-', '_');
  std::optional<int> HostEntry::*field = nullptr;
  int high = kMaxSlots;
  if (key == "slots") field = &HostEntry::slots;
  if (key == "max_slots") field = &HostEntry::max_slots;
  if (key == "port") field = &HostEntry::port, high = 65535;
  if (field == nullptr || equals == word.size()) {
    return usage_error(fmt::format("'{}' is not slots=N, max_slots=N or port=N", word));
  }
  auto number = parse_int(word.substr(equals + 1), 1, high, key);
  if (!number) return number.error();
  for (auto& entry : entries) entry.*field = *number;
  return {};
}

class Hosts {
 public:
  Result<void> add(std::vector<HostEntry> entries) {
    for (auto& entry : entries) {
      const auto [at, is_new] = index_.try_emplace(entry.host, list_.size());
      if (is_new) {
        if (list_.size() == kMaxHosts)
          return usage_error(fmt::format("more than {} hosts", kMaxHosts));
        list_.push_back(std::move(entry));
        continue;
      }
      HostEntry& known = list_[at->second];
      const long sum = static_cast<long>(known.slots.value_or(1)) + entry.slots.value_or(1);
      if (sum > kMaxSlots) return usage_error(fmt::format("host {}: too many slots", known.host));
      known.slots = static_cast<int>(sum);
      if (entry.max_slots) known.max_slots = entry.max_slots;
    }
    return {};
  }
  std::vector<HostEntry> take() { return std::move(list_); }
  bool empty() const { return list_.empty(); }

 private:
  std::vector<HostEntry> list_;
  std::map<std::string, std::size_t> index_;
};

Result<std::vector<HostEntry>> parse_line(std::string_view line) {
  const auto words = split_words(line.substr(0, line.find('#')));
  if (words.empty()) return std::vector<HostEntry>{};
  auto entries = parse_host_word(words[0]);
  if (!entries) return entries.error();
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (auto done = apply_setting(words[i], *entries); !done) return done.error();
  }
  const auto& one = entries->front();
  if (one.max_slots && one.slots && *one.slots > *one.max_slots) {
    return usage_error(
        fmt::format("slots={} is more than max_slots={}", *one.slots, *one.max_slots));
  }
  return entries;
}

}  // namespace

Result<std::vector<std::string>> expand_ranges(std::string_view text) {
  std::vector<std::string> names{""};
  while (!text.empty()) {
    const auto open = std::min(text.find('['), text.size());
    for (auto& name : names) name += text.substr(0, open);
    text.remove_prefix(open);
    if (text.empty()) break;
    const auto close = text.find(']');
    if (close == text.npos) return usage_error(fmt::format("'{}': '[' without ']'", text));
    std::vector<std::string> numbers;
    for (const auto item : split_list(text.substr(1, close - 1))) {
      if (auto done = append_range(item, numbers); !done) return done.error();
    }
    if (names.size() * numbers.size() > kMaxHosts) {
      return usage_error(fmt::format("more than {} hosts", kMaxHosts));
    }
    std::vector<std::string> longer;
    longer.reserve(names.size() * numbers.size());
    for (const auto& name : names) {
      for (const auto& number : numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
    text.remove_prefix(close + 1);
  }
  return names;
}

Result<std::vector<HostEntry>> parse_hostfile(std::string_view text, std::string_view name) {
  const auto at = [&](int line, const std::string& what) {
    return Error{.code = Errc::protocol, .what = fmt::format("{}:{}: {}", name, line, what)};
  };
  Hosts hosts;
  int line_no = 0;
  while (!text.empty()) {
    ++line_no;
    const auto eol = std::min(text.find('\n'), text.size());
    auto entries = parse_line(text.substr(0, eol));
    text.remove_prefix(std::min(eol + 1, text.size()));
    if (!entries) return at(line_no, entries.error().what);
    for (auto& entry : *entries) entry.line = line_no;
    if (auto done = hosts.add(std::move(*entries)); !done) return at(line_no, done.error().what);
  }
  if (hosts.empty()) return at(std::max(line_no, 1), "no host in this file");
  return hosts.take();
}

Result<std::vector<HostEntry>> parse_host_list(std::string_view text) {
  Hosts hosts;
  for (const auto item : split_list(text)) {
    auto entries = parse_host_word(item);
    if (!entries) return entries.error();
    if (auto done = hosts.add(std::move(*entries)); !done) return done.error();
  }
  return hosts.take();
}

Result<std::vector<std::string>> parse_name_list(std::string_view text) {
  std::vector<std::string> names;
  for (const auto item : split_list(text)) {
    auto some = expand_ranges(item);
    if (!some) return some.error();
    for (auto& name : *some) {
      if (!is_name(name) || name.find(':') != name.npos) {
        return usage_error(fmt::format("'{}' is not a name", name));
      }
      names.push_back(std::move(name));
    }
    if (names.size() > kMaxHosts) return usage_error(fmt::format("more than {} names", kMaxHosts));
  }
  return names;
}

}  // namespace dlaunch
