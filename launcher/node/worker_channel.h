// WorkerChannel: the agent's end of rendezvous/worker_message.h: a socket in the job's folder to
// which linked workers connect. An asio shell; one thread, the loop's.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include "base/result.h"
#include "launcher/process/unix_acceptor.h"
#include "rendezvous/worker_message.h"

namespace dlaunch {

class WorkerChannel {
 public:
  // `pid`: the process that speaks for the worker.
  using OnReady = std::function<void(const Ready&, pid_t pid)>;
  using OnProgress = std::function<void(const ProgressNotice&)>;
  // The worker has closed its end without a goodbye, or sent an invalid message. Its process may be
  // ending.
  using OnCutOff = std::function<void(int worker)>;
  // Whether the number is that of a running worker.
  using Knows = std::function<bool(int worker)>;
  static Result<std::unique_ptr<WorkerChannel>> open(asio::io_context& loop,
                                                     const std::string& path, Knows knows,
                                                     OnReady on_ready, OnProgress on_progress,
                                                     OnCutOff on_cut_off);

  // Sends to that worker, if it is connected.
  void send(int worker, const WorkerMessage& message);

 private:
  using Socket = asio::posix::stream_descriptor;
  // A connected process; number -1: it has not identified itself yet.
  struct Connection {
    Connection(asio::io_context& loop, int fd, pid_t p) : socket(loop, fd), pid(p) {}
    Socket socket;
    const pid_t pid;
    int worker = -1;
    bool goodbye = false;
  };
  using ConnectionPtr = std::shared_ptr<Connection>;

  WorkerChannel(asio::io_context& loop, Knows knows, OnReady on_ready, OnProgress on_progress,
                OnCutOff on_cut_off);
  enum class Took { packet, nothing, end };
  void read(const ConnectionPtr& connection);
  Took take_packet(const ConnectionPtr& connection);
  void hear_out(int worker);
  void drop(const ConnectionPtr& connection);

  asio::io_context& loop_;
  std::unique_ptr<UnixAcceptor> acceptor_;
  const Knows knows_;
  const OnReady on_ready_;
  const OnProgress on_progress_;
  const OnCutOff on_cut_off_;
  std::map<int, ConnectionPtr> workers_;
};

}  // namespace dlaunch
