#include "launcher/mpi/mpi_servers.h"

#include "base/log.h"

namespace dlaunch {

void MpiServers::on_abort(const PmiServer::Aborted& aborted) {
  pmi_.on_abort(aborted);
  pmix_.on_abort(aborted);
}

// Of no use to most programs, and none of them is worth less for want of it.
UniqueFd MpiServers::invite(WorkerPlace& place) {
  if (place.rank < 0 || !place.one_world) return UniqueFd();
  const auto alone = [&](const Error& error) {
    log_warn("rank {} is on its own if it is an MPI program: {}", place.rank, error.what);
  };
  if (auto variables = pmix_.invite(place)) {
    place.pmix = std::move(*variables);
  } else {
    alone(variables.error());
  }
  auto connection = pmi_.connect(place);
  if (!connection) return alone(connection.error()), UniqueFd();
  place.pmi_fd = connection->get();
  return std::move(*connection);
}

}  // namespace dlaunch
