// The report of NCCL's RAS service on its answer to "VERBOSE STATUS" (NCCL 2.24 and newer): on
// which communicators the ranks have called different numbers of collectives, and which processes
// do not answer the others. Pure.
//
// NCCL names those ranks with their processes and counts whose count fewer than half of their
// communicator has. Of the others it tells only the count. A communicator is not compared if some
// ranks have left it or their data is missing: it may be one of an earlier round.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/nccl_record.h"

namespace dlaunch {

struct RasReport {
  std::map<pid_t, std::vector<NcclProgress>> named;
  std::set<pid_t> silent;
};

// By the numeric address of its host, and its pid there.
using IsOurProcess = std::function<bool(std::string_view host, pid_t pid)>;

// What the report says about our processes; nullopt: it is not a whole report.
std::optional<RasReport> read_ras_report(std::string_view text, const IsOurProcess& is_ours);

}  // namespace dlaunch
