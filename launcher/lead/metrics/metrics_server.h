// MetricsServer: the address of --metrics, at which Prometheus and the like read the job's metrics.
// An asio shell; one thread, the loop's. It serves 16 clients at once, and drops further ones, and
// those that do not finish their request, or do not read, within 5 s.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <asio/io_context.hpp>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/lead/metrics/metrics_text.h"
#include "launcher/process/unix_acceptor.h"

namespace dlaunch {

class MetricsServer {
 public:
  using Done = std::function<void(const std::string& text)>;
  // Renders the metrics and passes them to done, now or later, but in the loop.
  using Render = std::function<void(MetricsForm form, Done done)>;
  // address: HOST:PORT, or unix:PATH. Port 0: the kernel chooses.
  static Result<std::unique_ptr<MetricsServer>> open(asio::io_context& loop,
                                                     const std::string& address, Render render);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // Where it listens: "http://127.0.0.1:9400/metrics", "unix:/run/job.sock".
  const std::string& where() const { return where_; }

 private:
  class Session;
  MetricsServer(asio::io_context& loop, Render render);
  Result<void> listen(const std::string& address);
  Result<void> listen_at_path(const std::string& path);
  void let_in(UniqueFd fd);

  asio::io_context& loop_;
  const Render render_;
  std::string where_;
  std::string path_;  // of a socket of our own
  std::optional<Acceptor> tcp_acceptor_;
  std::unique_ptr<UnixAcceptor> unix_acceptor_;
  std::shared_ptr<int> sessions_ = std::make_shared<int>(0);
};

}  // namespace dlaunch
