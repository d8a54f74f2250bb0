// The smallest program: every rank learns the sum of all ranks.
//
//   $ c++ -std=c++20 hello.cc $(dlaunch --cflags --libs) -o hello
//   $ dlaunch --nproc 4 ./hello
//   [0] rank 0 of 4: 6
//   [1] rank 1 of 4: 6
//   [2] rank 2 of 4: 6
//   [3] rank 3 of 4: 6
#include <cstdio>

#include <dlaunch/ring.hpp>

int main() {
  auto comm = dl::Communicator::init();  // ranks and peers from the launcher
  float x[] = {static_cast<float>(comm.rank())};
  comm.all_reduce(x);  // 0 + 1 + … on every rank
  std::printf("rank %d of %d: %g\n", comm.rank(), comm.size(), x[0]);
}
