#include "launcher/node/workers/worker_ports.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/endpoint.h"
#include "launcher/process/open_files.h"

namespace dlaunch {
namespace {

using Reservations = std::vector<PortReservation>;

// Ranks that this host may have at a time.
std::size_t most_ranks(const Plan& plan) {
  const int here = plan.nodes.several() ? plan.nproc : std::max(plan.nproc, plan.max_nproc);
  return static_cast<std::size_t>(here + plan.spares);
}

Result<Reservations> reserve_any(const Plan& plan, std::size_t count) {
  Reservations held;
  while (held.size() < count) {
    auto port = reserve_port(plan.master_addr, 0);
    if (!port) return port.error();
    held.push_back(std::move(*port));
  }
  return held;
}

Result<Reservations> reserve_within(const Plan& plan, std::size_t count) {
  const auto range = parse_port_range(plan.port_range);
  if (!range) return range.error();
  Reservations held;
  for (int port = range->last; port >= range->first && held.size() < count; --port) {
    auto one = reserve_port(plan.master_addr, static_cast<std::uint16_t>(port));
    if (one) held.push_back(std::move(*one));
  }
  if (held.size() == count) return held;
  return Error{.code = Errc::io,
               .what = fmt::format("--port-range {}: {} of its ports are free on host {}, and each "
                                   "of {} workers needs one for TF_CONFIG",
                                   plan.port_range, held.size(), plan.host, count)};
}

Result<Reservations> reserve_ranks(const Plan& plan) {
  const std::size_t count = most_ranks(plan);
  const int ranks = static_cast<int>(count);
  if (auto room = check_open_files(ranks, ranks); !room) return room.error();
  return plan.port_range.empty() ? reserve_any(plan, count) : reserve_within(plan, count);
}

}  // namespace

std::vector<std::int32_t> WorkerPorts::rank_numbers() const {
  std::vector<std::int32_t> numbers;
  for (const PortReservation& held : ranks) numbers.push_back(held.port);
  return numbers;
}

Result<WorkerPorts> reserve_worker_ports(const Plan& plan, int master_port) {
  WorkerPorts ports;
  auto master = reserve_port(plan.master_addr, static_cast<std::uint16_t>(master_port));
  if (!master) return master.error();
  ports.master = std::move(*master);
  // The user chose the range for the ports of libdlring: other uses must be requested.
  const bool insists = plan.framework == Framework::tensorflow;
  if (plan.framework == Framework::none || (!insists && !plan.port_range.empty())) return ports;
  auto held = reserve_ranks(plan);
  if (held) ports.ranks = std::move(*held);
  if (!held && insists) return held.error();
  return ports;
}

}  // namespace dlaunch
