// libdlring's flight records of a round in the format of PyTorch's Flight Recorder, so that
// torchfrtrace compares them. Only collectives are in it. The members of a group of ranks are those
// that have a collective of that group in their record. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/wire/worker_end.h"

namespace dlaunch {

// dlaunch writes none for a larger round: each lists all ranks.
inline constexpr int kMostFlightDumps = 1024;

// A pickle for each rank that has left a flight record. ranks: the size of the round.
std::map<int, std::string> flight_dumps(const std::vector<WorkerEnd>& workers, int ranks);

}  // namespace dlaunch
