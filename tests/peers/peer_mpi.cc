// Collectives through an MPI library: built with its own compiler wrapper.
#include <mpi.h>

#include "peer_loop.h"

namespace {

struct Mpi {
  int rank() const {
    int r = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &r);
    return r;
  }
  int size() const {
    int n = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    return n;
  }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  void max(double* x, std::size_t n) {
    MPI_Allreduce(MPI_IN_PLACE, x, static_cast<int>(n), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  }

  std::function<void()> collective(const std::string& name, float* x, float* other,
                                   std::size_t count) const {
    const auto all = static_cast<int>(count);
    const int part = all / size();
    if (name == "all_reduce") {
      return [=] { MPI_Allreduce(MPI_IN_PLACE, x, all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
    }
    if (name == "reduce_scatter") {
      return [=] {
        MPI_Reduce_scatter_block(MPI_IN_PLACE, x, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      };
    }
    if (name == "all_gather") {
      return [=] {
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, x, part, MPI_FLOAT, MPI_COMM_WORLD);
      };
    }
    if (name == "broadcast") {
      return [=] { MPI_Bcast(x, all, MPI_FLOAT, 0, MPI_COMM_WORLD); };
    }
    if (name == "reduce") {
      const void* in = rank() == 0 ? MPI_IN_PLACE : x;
      return [=] { MPI_Reduce(in, x, all, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD); };
    }
    if (name == "all_to_all") {
      return [=] { MPI_Alltoall(x, part, MPI_FLOAT, other, part, MPI_FLOAT, MPI_COMM_WORLD); };
    }
    return nullptr;
  }
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Mpi mpi;
  const int code = peers::run(mpi, argc, argv);
  MPI_Finalize();
  return code;
}
