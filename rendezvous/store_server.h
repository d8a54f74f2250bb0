// StoreServer: the embedded tcp:// store. A thin asio shell around store_core.h: it accepts,
// handshakes, frames bytes, and asks the core. Lives in dlaunch's own loop, or, in a job started
// by hand, in a thread of rank 0 (StoreServerThread).
//
// It trusts nobody before the handshake: 2 s for it, at most 64 sockets in it, one read buffer of
// fixed size each, and a quiet drop (counted) for whatever does not speak the protocol. When all 64
// are taken, whoever has been there longest makes room for the next to come, if it had 200 ms: a
// crowd of idle strangers delays a member by that much for each 64 before it in the backlog.
// Refusals and members that send malformed frames or do not read are logged, for each address at
// most once a minute.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <asio/io_context.hpp>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/secret.h"

namespace dlaunch {

struct StoreServerOptions {
  Endpoint listen;  // port 0: the kernel picks one; endpoint() tells
  std::string job_id;
  Secret secret;
};

class StoreServer {
 public:
  // Binds and listens before it returns; serves whenever the io_context runs.
  // Port taken: "store: listen on 127.0.0.1:29500: address already in use".
  static Result<std::unique_ptr<StoreServer>> open(asio::io_context& loop,
                                                   StoreServerOptions options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  Endpoint endpoint() const;
  // Connections that failed the handshake, broke the protocol or did not read.
  std::uint64_t dropped() const;

 private:
  struct Impl;
  explicit StoreServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dlaunch
