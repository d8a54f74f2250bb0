#include "launcher/node/worker_channel.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/log.h"

namespace dlaunch {

Result<std::unique_ptr<WorkerChannel>> WorkerChannel::open(asio::io_context& loop,
                                                           const std::string& path, Knows knows,
                                                           OnReady on_ready, OnProgress on_progress,
                                                           OnCutOff on_cut_off) {
  std::unique_ptr<WorkerChannel> channel(new WorkerChannel(
      loop, std::move(knows), std::move(on_ready), std::move(on_progress), std::move(on_cut_off)));
  auto acceptor = UnixAcceptor::open(
      loop, path, SOCK_SEQPACKET, [c = channel.get()](UniqueFd fd, const ucred& peer) {
        c->read(std::make_shared<Connection>(c->loop_, fd.release(), peer.pid));
      });
  if (!acceptor) return acceptor.error();
  channel->acceptor_ = std::move(*acceptor);
  return channel;
}

WorkerChannel::WorkerChannel(asio::io_context& loop, Knows knows, OnReady on_ready,
                             OnProgress on_progress, OnCutOff on_cut_off)
    : loop_(loop),
      knows_(std::move(knows)),
      on_ready_(std::move(on_ready)),
      on_progress_(std::move(on_progress)),
      on_cut_off_(std::move(on_cut_off)) {}

void WorkerChannel::read(const ConnectionPtr& connection) {
  connection->socket.async_wait(Socket::wait_read, [this, connection](asio::error_code ec) {
    if (ec || !connection->socket.is_open()) return;
    if (take_packet(connection) != Took::end) return read(connection);
    drop(connection);
  });
}

WorkerChannel::Took WorkerChannel::take_packet(const ConnectionPtr& connection) {
  char packet[kMaxWorkerMessage];
  const ssize_t n = ::recv(connection->socket.native_handle(), packet, sizeof packet, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Took::nothing;
  if (n <= 0) return Took::end;
  const auto message = decode_worker_message({packet, static_cast<std::size_t>(n)});
  if (!message) return Took::end;
  if (const auto* progress = std::get_if<ProgressNotice>(&*message)) {
    if (progress->worker != connection->worker) return Took::end;
    on_progress_(*progress);
    return Took::packet;
  }
  if (const auto* goodbye = std::get_if<Goodbye>(&*message)) {
    connection->goodbye = goodbye->worker == connection->worker;
    return Took::end;
  }
  const auto* ready = std::get_if<Ready>(&*message);
  if (ready == nullptr) return Took::end;
  if (connection->worker < 0) hear_out(ready->worker);
  // Each worker has one connection, and may not speak for another.
  const bool stranger = connection->worker >= 0
                            ? connection->worker != ready->worker
                            : workers_.contains(ready->worker) || !knows_(ready->worker);
  if (stranger) return Took::end;
  connection->worker = ready->worker;
  workers_[ready->worker] = connection;
  on_ready_(*ready, connection->pid);
  return Took::packet;
}

// A worker that connects again has ended its old connection. Packets may still wait in that one.
void WorkerChannel::hear_out(int worker) {
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  const ConnectionPtr connection = found->second;
  Took took = Took::packet;
  while (took == Took::packet) took = take_packet(connection);
  if (took == Took::end) drop(connection);
}

void WorkerChannel::drop(const ConnectionPtr& connection) {
  if (connection->worker >= 0) workers_.erase(connection->worker);
  asio::error_code ec;
  connection->socket.close(ec);
  if (connection->worker >= 0 && !connection->goodbye) on_cut_off_(connection->worker);
}

void WorkerChannel::send(int worker, const WorkerMessage& message) {
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  const std::string packet = encode(message);
  const int fd = found->second->socket.native_handle();
  if (::send(fd, packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return;
  if (errno == EPIPE || errno == ECONNRESET) return;  // it ends; another path notices that
  log_warn("worker {} does not read messages: {}", worker, errno_error("send", errno).what);
}

}  // namespace dlaunch
