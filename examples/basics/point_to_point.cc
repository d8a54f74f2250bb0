// Messages from one rank to another: blocking, non-blocking, both ways at once, and from anybody.
//
//   $ c++ -std=c++20 point_to_point.cc $(dlaunch --cflags --libs) -o point_to_point
//   $ dlaunch --nproc 2 ./point_to_point
//   [0] blocking: rank 0 has 1
//   [0] non-blocking: rank 0 has 2
//   [0] exchange: rank 0 has 101
//   [0] from anybody: rank 1 sent 7
//   [1] blocking: rank 1 has 1
//   [1] non-blocking: rank 1 has 2
//   [1] exchange: rank 1 has 100
//
// dlaunch starts two processes of this program and puts the rank before each line that one of them
// prints. The two run at the same time, so the lines of one rank come in order, and those of the
// other come anywhere between them.
#include <cstdio>
#include <vector>

#include <dlaunch/ring.hpp>

namespace {

void blocking(dl::Communicator& comm) {
  std::vector<double> x = {0};
  if (comm.rank() == 0) {
    x[0] += 1;
    comm.send(x, 1);  // returns when x may be changed again
  } else {
    comm.recv(x, 0);  // returns when x holds what rank 0 sent
  }
  std::printf("blocking: rank %d has %g\n", comm.rank(), x[0]);
}

void non_blocking(dl::Communicator& comm) {
  std::vector<double> x = {0};
  dl::Request request;
  if (comm.rank() == 0) {
    x[0] += 2;
    request = comm.isend(x, 1);  // returns at once
  } else {
    request = comm.irecv(x, 0);
  }
  // The program may compute here, but it must not touch x: x belongs to the message until wait()
  // returns.
  request.wait();
  std::printf("non-blocking: rank %d has %g\n", comm.rank(), x[0]);
}

void exchange(dl::Communicator& comm) {
  // Two ranks that both begin with a large blocking send may wait for each other. With a receive
  // that is already under way, each can take what the other sends.
  const int peer = 1 - comm.rank();
  std::vector<double> mine = {100.0 + comm.rank()}, other = {0};
  auto request = comm.irecv(other, peer);
  comm.send(mine, peer);
  request.wait();
  std::printf("exchange: rank %d has %g\n", comm.rank(), other[0]);
}

void from_anybody(dl::Communicator& comm) {
  // A tag keeps kinds of messages apart: recv_any takes the next message that has this tag.
  const int tag = 5;
  std::vector<double> x = {7};
  if (comm.rank() == 0) {
    const int source = comm.recv_any(x, tag);
    std::printf("from anybody: rank %d sent %g\n", source, x[0]);
  } else {
    comm.send(x, 0, tag);
  }
}

}  // namespace

int main() {
  auto comm = dl::Communicator::init();
  blocking(comm);
  non_blocking(comm);
  exchange(comm);
  from_anybody(comm);
}
