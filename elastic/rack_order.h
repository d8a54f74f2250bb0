// Racks: where the hosts of a job stand, as the switches above each from the top, with dots between
// them: "s0.s1" is below "s0". Hosts of one rack get neighbouring ranks, so that rings and trees
// cross the slow lines between racks as rarely as possible. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

inline constexpr std::size_t kLongestRack = 1024;
// Names with dots between them, without blanks and control characters.
bool is_rack(std::string_view text);

// The order of the hosts 0, 1, … with these racks. Those below one switch stand together, at each
// level: switches come in the order of the lowest host below each, and hosts of one rack in the
// order of their numbers. A host without a rack ("") is a rack of its own, behind all others. But
// host 0 stays the first, whatever its rack is.
std::vector<int> order_by_rack(const std::vector<std::string>& racks);

// How many switches, from the top, two racks share.
int shared_switches(std::string_view a, std::string_view b);

}  // namespace dlaunch
