#include "launcher/plan/host_racks.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "elastic/rack_order.h"
#include "launcher/plan/hostfile.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMostNames = 65536;
constexpr int kMostAbove = 16;

struct SwitchLine {
  std::string name;
  int line = 0;
  std::vector<std::string> nodes, switches;  // below it
  std::optional<std::size_t> above;          // none: it is at the top
};

// Without the blanks at its end, either.
std::string_view without_comment(std::string_view line) {
  line = line.substr(0, line.find('#'));
  return line.substr(0, line.find_last_not_of(kBlanks) + 1);
}

// nullopt: the line is empty.
Result<std::optional<SwitchLine>> parse_switch(std::string_view text) {
  const auto words = split_words(text);
  if (words.empty()) return std::optional<SwitchLine>();
  SwitchLine found;
  for (const auto word : words) {
    const auto equals = word.find('=');
    if (equals == word.npos) return usage_error(fmt::format("'{}' is not KEY=VALUE", word));
    const std::string key = lower_case(word.substr(0, equals));
    const auto value = word.substr(equals + 1);
    if (key == "switchname") found.name = value;
    if (key != "nodes" && key != "switches") continue;
    auto names = parse_name_list(value);
    if (!names) return usage_error(fmt::format("{}: {}", key, names.error().what));
    (key == "nodes" ? found.nodes : found.switches) = std::move(*names);
  }
  if (found.name.empty()) return usage_error("there is no SwitchName=NAME");
  if (!is_rack(found.name)) {
    return usage_error(fmt::format("'{}' is not the name of a switch", found.name));
  }
  if (found.nodes.empty() && found.switches.empty()) {
    return usage_error(fmt::format("switch {} has neither Nodes= nor Switches=", found.name));
  }
  return std::optional(std::move(found));
}

class Switches {
 public:
  explicit Switches(std::string_view file) : file_(file) {}

  Result<void> read(std::string_view text);
  Result<void> connect();
  Result<HostRacks> racks() const;

 private:
  Result<void> add(std::string_view line, int number);
  Result<std::string> path_to(const SwitchLine& one) const;
  Error at(int line, const std::string& what) const {
    return usage_error(fmt::format("{}:{}: {}", file_, line, what));
  }

  const std::string file_;
  std::vector<SwitchLine> all_;  // in the order of the file
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::size_t names_ = 0;
};

Result<void> Switches::read(std::string_view text) {
  std::string line;
  int number = 0, first = 1;  // of the line, which may be several of the file
  while (!text.empty()) {
    ++number;
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view part = without_comment(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (part.ends_with('\\') && !text.empty()) {
      line += part.substr(0, part.size() - 1);
      continue;
    }
    line += part;
    if (auto done = add(std::exchange(line, ""), first); !done) return done;
    first = number + 1;
  }
  return all_.empty() ? at(1, "this file names no switch") : Result<void>();
}

Result<void> Switches::add(std::string_view line, int number) {
  auto found = parse_switch(line);
  if (!found) return at(number, found.error().what);
  if (!*found) return {};
  SwitchLine& one = **found;
  one.line = number;
  names_ += one.nodes.size() + one.switches.size();
  if (names_ > kMostNames) return at(number, fmt::format("more than {} names", kMostNames));
  const auto [known, is_new] = by_name_.try_emplace(one.name, all_.size());
  if (!is_new) {
    return at(number,
              fmt::format("switch {} is already in line {}", one.name, all_[known->second].line));
  }
  all_.push_back(std::move(one));
  return {};
}

// Finds the switch above each.
Result<void> Switches::connect() {
  for (std::size_t above = 0; above < all_.size(); ++above) {
    const int line = all_[above].line;
    for (const std::string& name : all_[above].switches) {
      const auto found = by_name_.find(name);
      if (found == by_name_.end()) {
        return at(line, fmt::format("switch {} has no line of its own", name));
      }
      SwitchLine& below = all_[found->second];
      if (below.above) {
        const SwitchLine& other = all_[*below.above];
        return at(line, fmt::format("switch {} is already below {}, in line {}", name, other.name,
                                    other.line));
      }
      below.above = above;
    }
  }
  return {};
}

Result<std::string> Switches::path_to(const SwitchLine& one) const {
  std::string path = one.name;
  const SwitchLine* top = &one;
  for (int above = 1; top->above; ++above) {
    top = &all_[*top->above];
    path = top->name + "." + path;
    if (top == &one) {
      return at(one.line, fmt::format("switch {} is below itself: {}", one.name, path));
    }
    if (above > kMostAbove) {
      return at(one.line,
                fmt::format("switch {} has more than {} switches above it, or is below a loop",
                            one.name, kMostAbove));
    }
  }
  if (is_rack(path)) return path;
  return at(one.line,
            fmt::format("the names of switch {} and those above it have more than {} characters",
                        one.name, kLongestRack));
}

Result<HostRacks> Switches::racks() const {
  HostRacks racks;
  for (const SwitchLine& one : all_) {
    const auto path = path_to(one);
    if (!path) return path.error();
    for (const std::string& node : one.nodes) {
      const auto [known, is_new] = racks.try_emplace(node, *path);
      if (is_new) continue;
      return at(one.line, fmt::format("node {} is already below {}", node, known->second));
    }
  }
  return racks;
}

}  // namespace

Result<HostRacks> parse_topology(std::string_view text, std::string_view name) {
  Switches switches(name);
  if (auto done = switches.read(text); !done) return done.error();
  if (auto done = switches.connect(); !done) return done.error();
  return switches.racks();
}

std::string rack_in(const HostRacks& racks, std::string_view host) {
  auto found = racks.find(host);
  if (found == racks.end()) found = racks.find(host.substr(0, host.find('.')));
  return found == racks.end() ? "" : found->second;
}

std::string rack_in_address(std::string_view address, std::string_view pattern) {
  std::size_t end = 0;
  for (auto left = std::ranges::count(pattern, '.'); left > 0; --left) {
    end = address.find('.', end == 0 ? 0 : end + 1);
    if (end == address.npos) return "";
  }
  return std::string(address.substr(0, end));
}

}  // namespace dlaunch
