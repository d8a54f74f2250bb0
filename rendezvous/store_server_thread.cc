#include "rendezvous/store_server_thread.h"

#include <thread>

#include "base/quiet_thread.h"
#include "rendezvous/store_server.h"

namespace dlaunch {

struct StoreServerThread::Impl {
  asio::io_context loop{1};
  std::unique_ptr<StoreServer> server;
  std::thread thread;
};

StoreServerThread::StoreServerThread(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<StoreServerThread>> StoreServerThread::start(const Endpoint& listen,
                                                                    const std::string& job_id,
                                                                    const Secret& secret) {
  auto impl = std::make_unique<Impl>();
  auto server = StoreServer::open(impl->loop, {listen, job_id, secret});
  if (!server) return server.error();
  impl->server = std::move(*server);
  auto thread = start_quiet_thread([loop = &impl->loop] {
    const auto work = asio::make_work_guard(*loop);
    loop->run();
  });
  if (!thread) return thread.error();
  impl->thread = std::move(*thread);
  return std::unique_ptr<StoreServerThread>(new StoreServerThread(std::move(impl)));
}

StoreServerThread::~StoreServerThread() {
  impl_->loop.stop();
  impl_->thread.join();
}

Endpoint StoreServerThread::endpoint() const { return impl_->server->endpoint(); }

}  // namespace dlaunch
