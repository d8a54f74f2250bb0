#include "launcher/lead/metrics/metrics_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include <asio/buffer.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>

#include "base/clock.h"
#include "base/endpoint.h"
#include "base/socket.h"
#include "launcher/lead/metrics/http_request.h"

namespace dlaunch {
namespace {

constexpr int kMostScrapes = 16;
constexpr Duration kScrapePatience = std::chrono::seconds(5);
constexpr Duration kAcceptAgain = std::chrono::milliseconds(50);  // without free descriptors
constexpr std::string_view kUnix = "unix:";
constexpr const char* kOpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
constexpr const char* kPlain = "text/plain; version=0.0.4; charset=utf-8";

Error listen_error(const std::string& where, int err) {
  Error error = errno_error("--metrics: listen on " + where, err);
  if (err == EADDRINUSE) error.what += "; another job or program has that address";
  return error;
}

}  // namespace

// Lives as long as an operation of the loop is pending, or the metrics are being rendered.
class MetricsServer::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(asio::io_context& loop, UniqueFd fd, Render render, std::shared_ptr<int> count)
      : socket_(loop, fd.release()),
        timer_(loop),
        render_(std::move(render)),
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
    timer_.expires_after(kScrapePatience);
    timer_.async_wait([self = shared_from_this()](asio::error_code ec) {
      if (!ec) self->close();
    });
  }

  void read() {
    socket_.async_read_some(asio::buffer(bytes_),
                            [self = shared_from_this()](asio::error_code ec, std::size_t n) {
                              if (ec) return self->close();
                              self->received_.append(self->bytes_.data(), n);
                              const auto request = parse_http_request(self->received_);
                              if (!request) return self->read();
                              self->timer_.cancel();
                              self->answer(*request);
                            });
  }

  void answer(const HttpRequest& request) {
    if (request.status != 200) {
      return write(http_answer(request, "text/plain", "dlaunch serves GET /metrics\n"));
    }
    const auto form = request.openmetrics ? MetricsForm::openmetrics : MetricsForm::plain;
    render_(form, [self = shared_from_this(), request](const std::string& text) {
      self->write(http_answer(request, request.openmetrics ? kOpenMetrics : kPlain, text));
    });
  }

  void write(std::string answer) {
    answer_ = std::move(answer);
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

  asio::posix::stream_descriptor socket_;
  asio::steady_timer timer_;
  const Render render_;
  const std::shared_ptr<int> count_;
  std::array<char, 4096> bytes_;
  std::string received_, answer_;
};

Result<std::unique_ptr<MetricsServer>> MetricsServer::open(asio::io_context& loop,
                                                           const std::string& address,
                                                           Render render) {
  std::unique_ptr<MetricsServer> server(new MetricsServer(loop, std::move(render)));
  if (address.starts_with(kUnix)) {
    if (auto done = server->listen_at_path(address.substr(kUnix.size())); !done) {
      return done.error();
    }
    return server;
  }
  if (auto done = server->listen(address); !done) return done.error();
  server->accept();
  return server;
}

MetricsServer::MetricsServer(asio::io_context& loop, Render render)
    : loop_(loop), render_(std::move(render)), acceptor_(loop), pause_(loop) {}

MetricsServer::~MetricsServer() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

Result<void> MetricsServer::listen(const std::string& address) {
  auto endpoint = parse_endpoint(address);
  if (!endpoint) return endpoint.error();
  asio::error_code ec;
  asio::ip::tcp::resolver resolver(loop_);
  const auto found = resolver.resolve(endpoint->host, std::to_string(endpoint->port), ec);
  if (ec || found.empty()) {
    return Error{.code = Errc::io, .what = "--metrics: " + endpoint->host + ": " + ec.message()};
  }
  const asio::ip::tcp::endpoint local = *found.begin();
  acceptor_.open(local.protocol(), ec);
  if (!ec) acceptor_.set_option(asio::socket_base::reuse_address(true), ec);
  if (!ec) acceptor_.bind(local, ec);
  if (!ec) acceptor_.listen(kMostScrapes, ec);
  if (!ec) acceptor_.non_blocking(true, ec);
  if (!ec) endpoint->port = acceptor_.local_endpoint(ec).port();
  if (ec) return listen_error(address, ec.value());
  where_ = "http://" + to_string(*endpoint) + "/metrics";
  return {};
}

// A socket that a killed dlaunch has left gives way.
Result<void> MetricsServer::listen_at_path(const std::string& path) {
  auto other = connect_unix_path(path, SOCK_STREAM);
  if (other) return listen_error(path, EADDRINUSE);
  if (other.error().os_errno == ECONNREFUSED) ::unlink(path.c_str());
  auto acceptor = UnixAcceptor::open(loop_, path, SOCK_STREAM,
                                     [this](UniqueFd fd, const ucred&) { let_in(std::move(fd)); });
  if (!acceptor) return listen_error(path, acceptor.error().os_errno);
  unix_acceptor_ = std::move(*acceptor);
  path_ = path;
  where_ = std::string(kUnix) + path;
  return {};
}

void MetricsServer::accept() {
  acceptor_.async_wait(asio::ip::tcp::acceptor::wait_read, [this](asio::error_code ec) {
    if (ec) return;
    UniqueFd fd(
        ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      pause_.expires_after(kAcceptAgain);
      return pause_.async_wait([this](asio::error_code late) {
        if (!late) accept();
      });
    }
    if (fd) let_in(std::move(fd));
    accept();
  });
}

void MetricsServer::let_in(UniqueFd fd) {
  if (*sessions_ >= kMostScrapes) return;
  std::make_shared<Session>(loop_, std::move(fd), render_, sessions_)->start();
}

}  // namespace dlaunch
