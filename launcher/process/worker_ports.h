// The ports that the workers of this host may listen on, all of them held by reservations: one
// MASTER_PORT, for the case that rank 0 runs here, and one for each rank, for programs whose ranks
// are told each other's addresses before they start: TensorFlow's TF_CONFIG.
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

// master_port 0: a free one. With --port-range the ranks' ports are the range's last ones that are
// free: libdlring takes its own from the front. Error: MASTER_PORT is not free, or the range has
// too few ports for a plan that insists on them (Framework::tensorflow). A plan that does not
// insist gets no ranks' ports where there are too few.
Result<WorkerPorts> reserve_worker_ports(const Plan& plan, int master_port);

}  // namespace dlaunch
