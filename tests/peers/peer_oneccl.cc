// Collectives of oneCCL on host memory. Runs under dlaunch or mpiexec; meets by a file in the
// folder PEER_DIR, new for each run. The settings (CCL_ATL_TRANSPORT and the like) come from the
// environment.
#include <oneapi/ccl.hpp>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>

#include "peer_loop.h"

namespace {

// Rank 0 writes the key-value store's address to a file, which the others wait for.
ccl::shared_ptr_class<ccl::kvs> meet(int rank) {
  const std::string path = std::string(std::getenv("PEER_DIR")) + "/kvs";
  ccl::kvs::address_type address;
  if (rank == 0) {
    const auto kvs = ccl::create_main_kvs();
    address = kvs->get_address();
    std::ofstream(path + ".new", std::ios::binary).write(address.data(), address.size());
    std::rename((path + ".new").c_str(), path.c_str());
    return kvs;
  }
  std::ifstream file;
  while (!(file = std::ifstream(path, std::ios::binary))) usleep(1000);
  file.read(address.data(), address.size());
  return ccl::create_kvs(address);
}

struct OneCcl {
  ccl::communicator comm;

  int rank() const { return comm.rank(); }
  void barrier() { ccl::barrier(comm); }
  void max(double* x, std::size_t n) { ccl::allreduce(x, x, n, ccl::reduction::max, comm).wait(); }
  std::function<void()> collective(const std::string& name, float* x, float* other, std::size_t n) {
    const std::size_t ranks = comm.size();
    const std::size_t part = n / ranks;
    float* const own = x + part * static_cast<std::size_t>(rank());
    if (name == "all_reduce")
      return [=, this] { ccl::allreduce(x, x, n, ccl::reduction::sum, comm).wait(); };
    if (name == "reduce")
      return [=, this] { ccl::reduce(x, x, n, ccl::reduction::sum, 0, comm).wait(); };
    if (name == "broadcast") return [=, this] { ccl::broadcast(x, n, 0, comm).wait(); };
    if (name == "reduce_scatter") {
      return [=, this] { ccl::reduce_scatter(x, own, part, ccl::reduction::sum, comm).wait(); };
    }
    if (name == "all_gather") {
      const ccl::vector_class<std::size_t> counts(ranks, part);
      return [=, this] { ccl::allgatherv(own, part, x, counts, comm).wait(); };
    }
    if (name == "all_to_all") return [=, this] { ccl::alltoall(x, other, part, comm).wait(); };
    return nullptr;
  }
};

int from_environment(const char* name, const char* of_mpiexec) {
  const char* const value = std::getenv(name);
  return std::atoi(value != nullptr ? value : std::getenv(of_mpiexec));
}

}  // namespace

int main(int argc, char** argv) {
  ccl::init();
  const int rank = from_environment("RANK", "PMI_RANK");
  OneCcl ops{
      ccl::create_communicator(from_environment("WORLD_SIZE", "PMI_SIZE"), rank, meet(rank))};
  return peers::run(ops, argc, argv);
}
