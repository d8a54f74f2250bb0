#include "elastic/rack_order.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace dlaunch {
namespace {

// "a.b.c" -> "a", "a.b", "a.b.c"
std::vector<std::string_view> levels_of(std::string_view rack) {
  std::vector<std::string_view> levels;
  for (std::size_t end = 0; end < rack.size(); ++end) {
    if (rack[end] == '.') levels.push_back(rack.substr(0, end));
  }
  if (!rack.empty()) levels.push_back(rack);
  return levels;
}

}  // namespace

bool is_rack(std::string_view text) {
  const auto good = [](unsigned char c) { return c > ' ' && c != 0x7f; };
  return !text.empty() && text.size() <= kLongestRack && text.front() != '.' &&
         text.back() != '.' && text.find("..") == text.npos && std::ranges::all_of(text, good);
}

// Hosts are sorted by the first host below each of their switches, from the top, and then by their
// own numbers.
std::vector<int> order_by_rack(const std::vector<std::string>& racks) {
  const int count = static_cast<int>(racks.size());
  std::map<std::string_view, int> first;  // by switch
  std::vector<std::vector<int>> keys;     // by host
  for (int host = 0; host < count; ++host) {
    const std::string_view rack = racks[static_cast<std::size_t>(host)];
    std::vector<int>& key = keys.emplace_back();
    for (const std::string_view level : levels_of(rack)) {
      key.push_back(first.try_emplace(level, host).first->second);
    }
    key.push_back(rack.empty() && host > 0 ? count + host : host);
  }
  std::vector<int> order(racks.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key_of = [&](int host) -> const auto& { return keys[static_cast<std::size_t>(host)]; };
  std::ranges::sort(order, {}, key_of);
  return order;
}

int shared_switches(std::string_view a, std::string_view b) {
  const auto of_a = levels_of(a), of_b = levels_of(b);
  const auto end = std::ranges::mismatch(of_a, of_b).in1;
  return static_cast<int>(end - of_a.begin());
}

}  // namespace dlaunch
