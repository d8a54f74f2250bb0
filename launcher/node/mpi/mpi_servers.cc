#include "launcher/node/mpi/mpi_servers.h"

#include "base/log.h"

namespace dlaunch {

MpiServers::MpiServers(asio::io_context& loop, std::set<pid_t>& helpers,
                       const StoreOptions& options, PmixOrder common)
    : pmi_(loop, options), pmix_(loop, helpers, options.secret, std::move(common)) {
  pmi_.on_spawn([this](int rank) { tell_of_spawn(rank); });
  pmix_.on_spawn([this](int rank) { tell_of_spawn(rank); });
}

// The rank gets an error whose text does not give the reason.
void MpiServers::tell_of_spawn(int rank) {
  if (std::exchange(told_of_spawn_, true)) return;
  log_warn(
      "rank {} called MPI_Comm_spawn(), which fails: dlaunch starts a fixed number of ranks. Start "
      "the other program with the first: dlaunch -np 1 ./parent : -np 4 ./child; both are then in "
      "MPI_COMM_WORLD, and MPI_APPNUM tells them apart",
      rank);
}

void MpiServers::on_abort(const PmiServer::Aborted& aborted) {
  pmi_.on_abort(aborted);
  pmix_.on_abort(aborted);
}

void MpiServers::forget_rounds() {
  pmi_.forget_rounds();
  pmix_.forget_rounds();
}

// Most programs do not use MPI, and all run without it: errors are no failures.
UniqueFd MpiServers::invite(WorkerPlace& place) {
  if (place.rank < 0 || !place.one_world) return UniqueFd();
  const auto alone = [&](const Error& error) {
    log_warn("if rank {} is an MPI program, it runs alone: {}", place.rank, error.what);
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
