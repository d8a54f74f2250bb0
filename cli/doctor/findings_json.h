// The output of `dlaunch doctor --json`: dlaunch(1) describes it. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/findings.h"

namespace dlaunch {

// Hosts, pairs and findings as one JSON object, with a newline at its end.
std::string json_report_of(const std::vector<HostFacts>& hosts, const std::vector<PairFacts>& pairs,
                           const std::vector<Finding>& findings);

}  // namespace dlaunch
