// all_reduce through an MPI library: built with its own compiler wrapper.
#include <mpi.h>

#include "peer_loop.h"

namespace {

struct Mpi {
  int rank() const {
    int r = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &r);
    return r;
  }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  void all_reduce(float* x, std::size_t n) {
    MPI_Allreduce(MPI_IN_PLACE, x, static_cast<int>(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void max(double* x, std::size_t n) {
    MPI_Allreduce(MPI_IN_PLACE, x, static_cast<int>(n), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
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
