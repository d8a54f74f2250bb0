// A tour of the collectives: calls that all ranks make together.
//
//   $ c++ -std=c++20 collectives.cc $(dlaunch --cflags --libs) -o collectives
//   $ dlaunch --nproc 3 ./collectives
//   [1] each rank begins with    2 20 (rank 0: 1 10, rank 2: 3 30)
//   [1] broadcast from rank 0    1 10
//   [1] reduce to rank 1         6 60
//   [1] all_reduce               6 60
//   [1] all_reduce with max      3 30
//   [1] gather on rank 1         1 10 2 20 3 30
//   [1] all_gather               1 10 2 20 3 30
//   [1] all_gather_v             0 1 1 2 2 2
//   [1] scatter from rank 0      101
//   [1] reduce_scatter           60
//   [1] all_to_all               1 11 21
//   [1] all_reduce of a list     6 60 and 3
//   [1] barrier                  every rank was here
//
// Only rank 1 prints. All ranks must make the same calls in the same order: a rank that skips one
// makes the others wait.
#include <cstdio>
#include <string>
#include <vector>

#include <dlaunch/ring.hpp>

namespace {

using Row = std::vector<int>;

std::string text(const Row& row) {
  std::string all;
  for (const int value : row) all += (all.empty() ? "" : " ") + std::to_string(value);
  return all;
}

void show(const dl::Communicator& comm, const char* call, const std::string& value) {
  if (comm.rank() == 1) std::printf("%-24s %s\n", call, value.c_str());
}

void tour(dl::Communicator& comm) {
  const int rank = comm.rank();
  const Row x = {rank + 1, 10 * (rank + 1)};
  show(comm, "each rank begins with", text(x) + " (rank 0: 1 10, rank 2: 3 30)");

  // Copies one rank's numbers to all ranks.
  Row pair = x;
  comm.broadcast(pair, 0);
  show(comm, "broadcast from rank 0", text(pair));

  // The sum over all ranks, element by element: on one rank, or on all of them.
  comm.reduce(x, pair, 1);  // on ranks 0 and 2 the output is not used
  show(comm, "reduce to rank 1", text(pair));
  comm.all_reduce(x, pair);
  show(comm, "all_reduce", text(pair));
  comm.all_reduce(x, pair, dl::Op::max);
  show(comm, "all_reduce with max", text(pair));

  // Every rank's numbers, one rank after the other.
  Row six(6);
  comm.gather(x, six, 1);
  show(comm, "gather on rank 1", text(six));
  comm.all_gather(x, six);
  show(comm, "all_gather", text(six));
  // Parts of different lengths: all ranks know how many elements each of them gives.
  const std::vector<std::size_t> counts = {1, 2, 3};
  comm.all_gather_v(Row(counts[static_cast<std::size_t>(rank)], rank), six, counts);
  show(comm, "all_gather_v", text(six));

  // Rank r gets part r of the root's numbers.
  const Row parts = {100, 101, 102};
  Row one(1);
  comm.scatter(parts, one, 0);
  show(comm, "scatter from rank 0", text(one));
  // Rank r gets part r of the sum. This and an all_gather are together an all_reduce.
  comm.reduce_scatter(Row{10, 20, 30}, one);
  show(comm, "reduce_scatter", text(one));
  // Part p of this rank's numbers goes to rank p.
  Row three(3);
  comm.all_to_all(Row{10 * rank, 10 * rank + 1, 10 * rank + 2}, three);
  show(comm, "all_to_all", text(three));

  // Several arrays in one call, such as the gradients of a model.
  Row first = x, second = {1};
  const std::vector<std::span<int>> list = {first, second};
  comm.all_reduce(list);
  show(comm, "all_reduce of a list", text(first) + " and " + text(second));
  comm.barrier();
  show(comm, "barrier", "every rank was here");
}

}  // namespace

int main() {
  auto comm = dl::Communicator::init();
  tour(comm);
}
