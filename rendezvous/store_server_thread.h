// StoreServerThread: a StoreServer with its own loop and thread, for the rank that hosts the store
// in a job started by hand. No asio type here: the ring's users never see asio.
#pragma once

#include <memory>
#include <string>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/secret.h"

namespace dlaunch {

class StoreServerThread {
 public:
  static Result<std::unique_ptr<StoreServerThread>> start(const Endpoint& listen,
                                                          const std::string& job_id,
                                                          const Secret& secret);
  ~StoreServerThread();  // stops serving and joins
  Endpoint endpoint() const;

 private:
  struct Impl;
  explicit StoreServerThread(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dlaunch
