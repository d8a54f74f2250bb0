#include "launcher/lead/control/control_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include <asio/buffer.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>

#include "base/clock.h"

namespace dlaunch {
namespace {

constexpr int kMaxSessions = 128;
constexpr Duration kRequestPatience = std::chrono::seconds(5);

}  // namespace

// Lives as long as an operation of the loop is pending, or the handler keeps the reply.
class ControlServer::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(asio::io_context& loop, UniqueFd fd, std::size_t max_request, Handler handler,
          std::shared_ptr<int> count)
      : socket_(loop, fd.release()),
        timer_(loop),
        max_request_(max_request),
        handler_(std::move(handler)),
        count_(std::move(count)) {
    ++*count_;
  }
  ~Session() { --*count_; }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void start() {
    limit_time();
    read();
  }

 private:
  void limit_time() {
    timer_.expires_after(kRequestPatience);
    timer_.async_wait([self = shared_from_this()](asio::error_code ec) {
      if (!ec) self->close();
    });
  }

  void read() {
    socket_.async_read_some(asio::buffer(bytes_), [self = shared_from_this()](asio::error_code ec,
                                                                              std::size_t n) {
      self->request_.append(self->bytes_.data(), n);
      // One byte more is enough for the handler to see that it is too long.
      const bool ended = ec == asio::error::eof || self->request_.size() > self->max_request_;
      if (ec && !ended) return self->close();
      if (!ended) return self->read();
      self->timer_.cancel();
      self->handler_(self->request_, [self](const std::string& answer) { self->write(answer); });
    });
  }

  void write(const std::string& answer) {
    answer_ = answer;
    limit_time();
    asio::async_write(
        socket_, asio::buffer(answer_),
        [self = shared_from_this()](asio::error_code, std::size_t) { self->close(); });
  }

  void close() {
    timer_.cancel();
    asio::error_code ignored;
    socket_.close(ignored);
  }

  Socket socket_;
  asio::steady_timer timer_;
  const std::size_t max_request_;
  const Handler handler_;
  const std::shared_ptr<int> count_;
  std::array<char, 1024> bytes_{};
  std::string request_, answer_;
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
