// The ports that the workers of this host may listen on, all held by reservations: one MASTER_PORT,
// used if rank 0 runs here, and one for each rank, for programs whose ranks get each other's
// addresses before they start: TensorFlow's TF_CONFIG.
#pragma once

#include <cstdint>
#include <vector>

#include "launcher/plan/plan.h"
#include "launcher/process/port_reservation.h"

namespace dlaunch {

struct WorkerPorts {
  PortReservation master;
  std::vector<PortReservation> ranks;  // by local rank; empty: the plan wants none

  std::vector<std::int32_t> rank_numbers() const;
};

// master_port 0: a free one. With --port-range the ranks' ports are the last free ones of the
// range: libdlring takes its own from the front. Error: MASTER_PORT is not free, or the range has
// too few ports for a plan that requires them (Framework::tensorflow). A plan that does not require
// them gets no ranks' ports if there are too few.
Result<WorkerPorts> reserve_worker_ports(const Plan& plan, int master_port);

}  // namespace dlaunch
