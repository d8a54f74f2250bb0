#include "launcher/lead/metrics/metrics_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <asio/ip/tcp.hpp>

#include "base/endpoint.h"
#include "base/socket.h"
#include "launcher/lead/metrics/http_request.h"
#include "launcher/process/answer_session.h"

namespace dlaunch {
namespace {

constexpr int kMostScrapes = 16;
constexpr std::string_view kUnix = "unix:";
constexpr const char* kOpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
constexpr const char* kPlainText = "text/plain; version=0.0.4; charset=utf-8";

Error listen_error(const std::string& where, int err) {
  Error error = errno_error("--metrics: listen on " + where, err);
  if (err == EADDRINUSE) error.what += "; another job or program has that address";
  return error;
}

}  // namespace

class MetricsServer::Session final : public AnswerSession {
 public:
  Session(asio::io_context& loop, UniqueFd fd, Render render, std::shared_ptr<int> count)
      : AnswerSession(loop, std::move(fd), std::move(count)), render_(std::move(render)) {}

 private:
  void received(bool ended) override {
    if (ended) return close();
    const auto asked = parse_http_request(request());
    if (!asked) return read();
    complete();
    if (asked->status != 200) {
      return answer(http_answer(*asked, "text/plain", "dlaunch serves GET /metrics\n"));
    }
    const auto form = asked->openmetrics ? MetricsForm::openmetrics : MetricsForm::plain;
    render_(form, [self = shared_from_this(), this, asked = *asked](const std::string& text) {
      answer(http_answer(asked, asked.openmetrics ? kOpenMetrics : kPlainText, text));
    });
  }

  const Render render_;
};

Result<std::unique_ptr<MetricsServer>> MetricsServer::open(asio::io_context& loop,
                                                           const std::string& address,
                                                           Render render) {
  std::unique_ptr<MetricsServer> server(new MetricsServer(loop, std::move(render)));
  const auto done = address.starts_with(kUnix)
                        ? server->listen_at_path(address.substr(kUnix.size()))
                        : server->listen(address);
  if (!done) return done.error();
  return server;
}

MetricsServer::MetricsServer(asio::io_context& loop, Render render)
    : loop_(loop), render_(std::move(render)) {}

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
  asio::ip::tcp::acceptor listener(loop_);
  listener.open(local.protocol(), ec);
  if (!ec) listener.set_option(asio::socket_base::reuse_address(true), ec);
  if (!ec) listener.bind(local, ec);
  if (!ec) listener.listen(kMostScrapes, ec);
  if (!ec) listener.non_blocking(true, ec);
  if (!ec) endpoint->port = listener.local_endpoint(ec).port();
  UniqueFd fd(ec ? -1 : listener.release(ec));
  if (ec) return listen_error(address, ec.value());
  tcp_acceptor_.emplace(loop_, std::move(fd), [this](UniqueFd peer) { let_in(std::move(peer)); });
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

void MetricsServer::let_in(UniqueFd fd) {
  if (*sessions_ >= kMostScrapes) return;
  std::make_shared<Session>(loop_, std::move(fd), render_, sessions_)->start();
}

}  // namespace dlaunch
