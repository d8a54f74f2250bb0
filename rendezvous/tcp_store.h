// The tcp:// Store: a blocking client of StoreServer over one socket. No asio, no threads.
#pragma once

#include <memory>

#include "base/endpoint.h"
#include "rendezvous/store.h"

namespace dlaunch {

// Retries until the deadline while no server listens there yet; the error then names the attempts.
Result<std::unique_ptr<Store>> open_tcp_store(const Endpoint& endpoint, const StoreOptions& options,
                                              TimePoint deadline);

}  // namespace dlaunch
