// all_reduce through Gloo over TCP. Runs under dlaunch; meets through files in its round's folder.
// PEER_ADDRESS: the address it uses, in place of loopback's. PEER_ALGORITHM: ring or bcube, in
// place of Gloo's own choice.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <string>

#include "peer_loop.h"

namespace {

struct Gloo {
  std::shared_ptr<gloo::rendezvous::Context> context;
  gloo::AllreduceOptions::Algorithm algorithm = gloo::AllreduceOptions::Algorithm::UNSPECIFIED;

  int rank() const { return context->rank; }
  void barrier() {
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
  }
  template <class T>
  void reduce(T* x, std::size_t n, void (*op)(void*, const void*, const void*, std::size_t)) {
    gloo::AllreduceOptions options(context);
    options.setInput(x, n);
    options.setOutput(x, n);
    options.setReduceFunction(op);
    options.setAlgorithm(algorithm);
    gloo::allreduce(options);
  }
  std::function<void()> collective(const std::string& name, float* x, float*, std::size_t n) {
    if (name != "all_reduce") return nullptr;
    return [=, this] { reduce(x, n, &gloo::sum<float>); };
  }
  void max(double* x, std::size_t n) { reduce(x, n, &gloo::max<double>); }
};

}  // namespace

int main(int argc, char** argv) {
  gloo::transport::tcp::attr attributes;
  const char* const address = std::getenv("PEER_ADDRESS");
  attributes.hostname = address != nullptr ? address : "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(std::getenv("DLAUNCH_ROUND_DIR"));
  Gloo ops;
  ops.context = std::make_shared<gloo::rendezvous::Context>(std::atoi(std::getenv("RANK")),
                                                            std::atoi(std::getenv("WORLD_SIZE")));
  const char* const wish = std::getenv("PEER_ALGORITHM");
  using Algorithm = gloo::AllreduceOptions::Algorithm;
  if (wish != nullptr) ops.algorithm = *wish == 'r' ? Algorithm::RING : Algorithm::BCUBE;
  ops.context->connectFullMesh(store, device);
  return peers::run(ops, argc, argv);
}
