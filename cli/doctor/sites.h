// The sites that `dlaunch doctor` finds: groups of hosts with slow lines between them. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/findings.h"

namespace dlaunch {

// A round trip from which on two hosts are on different sites. In one place it is far below.
inline constexpr double kSiteRoundTrip_s = 5e-3;

// Hosts by their indices, each in one site: a chain of shorter round trips joins the hosts of a
// site.
std::vector<std::vector<int>> sites_of(int hosts, const std::vector<PairFacts>& pairs);

// For people: the sites as a FILE of `dlaunch --sites`; "": all hosts are on one.
std::string sites_text(const std::vector<HostFacts>& hosts, const std::vector<PairFacts>& pairs);

}  // namespace dlaunch
