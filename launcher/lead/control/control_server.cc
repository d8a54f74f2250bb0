#include "launcher/lead/control/control_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "launcher/process/answer_session.h"

namespace dlaunch {
namespace {

constexpr int kMaxSessions = 128;

}  // namespace

class ControlServer::Session final : public AnswerSession {
 public:
  Session(asio::io_context& loop, UniqueFd fd, std::size_t max_request, Handler handler,
          std::shared_ptr<int> count)
      : AnswerSession(loop, std::move(fd), std::move(count)),
        max_request_(max_request),
        handler_(std::move(handler)) {}

 private:
  void received(bool ended) override {
    // One byte more is enough for the handler to see that it is too long.
    if (!ended && request().size() <= max_request_) return read();
    complete();
    handler_(request(),
             [self = shared_from_this(), this](const std::string& text) { answer(text); });
  }

  const std::size_t max_request_;
  const Handler handler_;
};

Result<std::unique_ptr<ControlServer>> ControlServer::open(asio::io_context& loop,
                                                           const std::string& path,
                                                           std::size_t max_request,
                                                           Handler handler) {
  std::unique_ptr<ControlServer> server(new ControlServer(loop, max_request, std::move(handler)));
  auto acceptor = UnixAcceptor::open(
      loop, path, SOCK_STREAM,
      [s = server.get()](UniqueFd fd, const ucred& peer) { s->let_in(std::move(fd), peer); });
  if (!acceptor) return acceptor.error();
  server->acceptor_ = std::move(*acceptor);
  return server;
}

ControlServer::ControlServer(asio::io_context& loop, std::size_t max_request, Handler handler)
    : loop_(loop), max_request_(max_request), handler_(std::move(handler)) {}

void ControlServer::let_in(UniqueFd fd, const ucred& peer) {
  if (*sessions_ >= kMaxSessions || peer.uid != ::geteuid()) return;
  std::make_shared<Session>(loop_, std::move(fd), max_request_, handler_, sessions_)->start();
}

}  // namespace dlaunch
