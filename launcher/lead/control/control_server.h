// ControlServer: a socket in the job's private folder at which programs of the same user ask one
// question each: they send a request, shut down their writing side, and read the answer to its end.
// An asio shell; one thread, the loop's. The server drops a client that does not finish its
// request, or does not read, within 5 s. With 128 clients connected it drops further ones.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <asio/io_context.hpp>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/process/unix_acceptor.h"

namespace dlaunch {

class ControlServer {
 public:
  // The handler may call it later, but in the loop. If it never does, the client is dropped.
  using Reply = std::function<void(const std::string& answer)>;
  using Handler = std::function<void(const std::string& request, Reply reply)>;
  static Result<std::unique_ptr<ControlServer>> open(asio::io_context& loop,
                                                     const std::string& path,
                                                     std::size_t max_request, Handler handler);

 private:
  class Session;
  ControlServer(asio::io_context& loop, std::size_t max_request, Handler handler);
  void let_in(UniqueFd fd, const ucred& peer);

  asio::io_context& loop_;
  std::unique_ptr<UnixAcceptor> acceptor_;
  const std::size_t max_request_;
  const Handler handler_;
  std::shared_ptr<int> sessions_ = std::make_shared<int>(0);
};

}  // namespace dlaunch
