// The smallest program: every rank learns the sum of all ranks.
#include <cstdio>

#include <dlaunch/ring.hpp>

int main() {
  auto comm = dl::Communicator::init();  // ranks and peers from the launcher
  float x[] = {static_cast<float>(comm.rank())};
  comm.all_reduce(std::span<float>(x), dl::Op::sum);  // 0 + 1 + … on every rank
  std::printf("rank %d of %d: %g\n", comm.rank(), comm.size(), x[0]);
}
