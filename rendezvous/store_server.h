// StoreServer: the embedded tcp:// store. A thin asio shell around store_core.h: it accepts,
// handshakes, frames bytes, and asks the core. Lives in dlaunch's own loop, or, in a job started
// by hand, in a thread of rank 0 (StoreServerThread).
//
// It trusts no connection before the handshake. A handshake has 2 s; at most 64 sockets are in it,
// each with one read buffer of fixed size. The server quietly drops, and counts, connections that
// do not speak the protocol. When all 64 places are taken, the next connection displaces the oldest
// one once that has had 200 ms: idle strangers delay a member by that much for each 64 of them
// before it in the backlog. The server logs refusals and members that send malformed frames or do
// not read, at most once a minute for each address.
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
#include "base/unique_fd.h"

namespace dlaunch {

// Receives the events of connections of Purpose::node, which come to the same port; the store does
// not interpret their frames. A Link is the number of one connection and is never reused.
struct NodeHandlers {
  using Link = std::uint64_t;
  std::function<void(Link, const std::string& address)> opened;
  std::function<void(Link, std::string_view frame)> message;
  std::function<void(Link)> closed;  // also after close()
  // A proven connection of Purpose::output, from now on the receiver's. Its ranks are the login and
  // the stream (launcher/wire/output_link.h).
  std::function<void(UniqueFd, std::int32_t login, std::int32_t stream)> output = nullptr;
};

struct StoreServerOptions {
  Endpoint listen;  // port 0: the kernel picks one; see endpoint()
  std::string job_id;
  Secret secret;
  std::optional<NodeHandlers> nodes;  // none: closes such connections
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
  // To a node; a closed link is no error.
  void send(NodeHandlers::Link link, const std::string& frame);
  // Closes once the kernel has what was sent. Data that arrive later may make the kernel drop bytes
  // still on their way.
  void close(NodeHandlers::Link link);
  // Closes when the other end does, so that it gets all that was sent; drops what it sends
  // meanwhile.
  void part(NodeHandlers::Link link);

  // Connections that failed the handshake, broke the protocol or did not read.
  std::uint64_t dropped() const;

 private:
  struct Impl;
  explicit StoreServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dlaunch
