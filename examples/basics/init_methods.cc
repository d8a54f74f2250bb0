// Three ways in which the ranks find each other: by the environment, at an address, and in a shared
// folder.
//
//   $ c++ -std=c++20 init_methods.cc $(dlaunch --cflags --libs) -o init_methods
//
// By the environment: the launcher has set everything. This is the usual way.
//
//   $ dlaunch --nproc 2 ./init_methods env://
//   [0] env: rank 0 of 2, together 3
//   [1] env: rank 1 of 2, together 3
//
// At an address: rank 0 listens there and the others connect. Here it is the address that dlaunch
// has reserved.
//
//   $ dlaunch --nproc 2 ./init_methods 'tcp://${master_addr}:${master_port}'
//   [0] tcp: rank 0 of 2, together 3
//   [1] tcp: rank 1 of 2, together 3
//
// In a folder that all ranks share, a new one for each job. No launcher is needed: here a shell
// starts the ranks.
//
//   $ (for r in 0 1; do RANK=$r WORLD_SIZE=2 ./init_methods file://$PWD/meet & done; wait) | sort
//   file: rank 0 of 2, together 3
//   file: rank 1 of 2, together 3
//
// Rank and size may also be options: dl::Options has the fields rank and size.
#include <cstdio>
#include <string>

#include <dlaunch/ring.hpp>

int main(int argc, char** argv) {
  const std::string url = argc > 1 ? argv[1] : "env://";
  auto comm = dl::Communicator::init(url.c_str());
  int together[] = {comm.rank() + 1};
  comm.all_reduce(together);
  std::printf("%s: rank %d of %d, together %d\n", url.substr(0, url.find(':')).c_str(), comm.rank(),
              comm.size(), together[0]);
}
