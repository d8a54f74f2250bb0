// Groups: communicators of some of the ranks.
//
//   $ c++ -std=c++20 groups.cc $(dlaunch --cflags --libs) -o groups
//   $ dlaunch --nproc 4 ./groups
//   [0] row 0: rank 0 of 2, sum 1
//   [0] column 0: rank 0 of 2, sum 2
//   [0] ends: rank 1 of 2, sum 3
//   [1] row 0: rank 1 of 2, sum 1
//   [1] column 1: rank 0 of 2, sum 4
//   [2] row 1: rank 0 of 2, sum 5
//   [2] column 0: rank 1 of 2, sum 2
//   [3] row 1: rank 1 of 2, sum 5
//   [3] column 1: rank 1 of 2, sum 4
//   [3] ends: rank 0 of 2, sum 3
//
// The four ranks form a table of two rows and two columns. Programs that combine two kinds of
// parallelism do so: one kind along the rows, the other along the columns.
//
//       0  1
//       2  3
#include <cstdio>
#include <string>

#include <dlaunch/ring.hpp>

namespace {

void sum_in(dl::Communicator group, const std::string& name, int world_rank) {
  int sum[] = {world_rank};
  group.all_reduce(sum);  // only the ranks of the group take part
  std::printf("%s: rank %d of %d, sum %d\n", name.c_str(), group.rank(), group.size(), sum[0]);
}

}  // namespace

int main() {
  auto comm = dl::Communicator::init();
  const int rank = comm.rank(), row = rank / 2, column = rank % 2;

  // All ranks call split. Ranks that give the same color are in one group. The group numbers its
  // ranks from 0.
  sum_in(comm.split(row), "row " + std::to_string(row), rank);
  sum_in(comm.split(column), "column " + std::to_string(column), rank);

  // Only the ranks of the group call group. They all know the list, and its order is their order in
  // the group.
  const int ends[] = {3, 0};
  if (rank == 3 || rank == 0) sum_in(comm.group(ends), "ends", rank);
}
