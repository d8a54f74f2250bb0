// HostRacks: the racks of hosts (elastic/rack_order.h), from a file like Slurm's topology.conf of
// topology/tree:
//
//   SwitchName=s1 Nodes=node[0-5]        # a rack
//   SwitchName=s2 Nodes=node[6-11]
//   SwitchName=s0 Switches=s[1-2]
//
// The rack of node3 is "s0.s1" then. Keys have any case, and other keys of Slurm mean nothing here.
// A backslash at the end of a line continues it. Pure; fuzzed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace dlaunch {

using HostRacks = std::map<std::string, std::string, std::less<>>;  // by host

// Malformed: Errc::usage, "<name>:<line>: …".
Result<HostRacks> parse_topology(std::string_view text, std::string_view name);

// The rack of a host under that name, or under the part before its first dot; "": unknown.
std::string rack_in(const HostRacks& racks, std::string_view host);

// The rack in SLURM_TOPOLOGY_ADDR, such as "s0.s1.node3", where SLURM_TOPOLOGY_ADDR_PATTERN is
// "switch.switch.node". "": the address has no switch.
std::string rack_in_address(std::string_view address, std::string_view pattern);

}  // namespace dlaunch
