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
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <asio/io_context.hpp>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/secret.h"

namespace dlaunch {

// Who hears of connections of Purpose::node, which come to the same port; their frames mean nothing
// to the store. A link is one connection, by a number that is never used again.
struct NodeListener {
  using Link = std::uint64_t;
  std::function<void(Link, const std::string& address)> opened;
  std::function<void(Link, std::string_view frame)> message;
  std::function<void(Link)> closed;  // also after close()
};

struct StoreServerOptions {
  Endpoint listen;  // port 0: the kernel picks one; endpoint() tells
  std::string job_id;
  Secret secret;
  std::optional<NodeListener> nodes;  // none: such connections are closed
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
  // To a node; a link that has been closed is no error.
  void send(NodeListener::Link link, const std::string& frame);
  // Once the kernel has what was sent. Data that come later may make it drop what is still on its
  // way.
  void close(NodeListener::Link link);
  // Closes when the other end does, so that it gets all that was sent; drops what it says
  // meanwhile.
  void part(NodeListener::Link link);

  // Connections that failed the handshake, broke the protocol or did not read.
  std::uint64_t dropped() const;

 private:
  struct Impl;
  explicit StoreServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dlaunch
