// The accounts of goodput, as lines for people and as JSON (goodput.schema.json). Pure.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "elastic/goodput_ledger.h"

namespace dlaunch {

// "goodput 93.1 % of 4 ranks in 2 min: …", then a line for each of the ranks and busy hosts that
// cost most. Empty for a job without ranks.
std::vector<std::string> goodput_lines(const Goodput& goodput);
// For a job that ended well and did not ask for its accounts: the rank or busy host that cost so
// much that the user should know, in one line. "": there is none, or the job was short.
std::string worst_cost_line(const Goodput& goodput);
nlohmann::json goodput_json(const Goodput& goodput);

}  // namespace dlaunch
