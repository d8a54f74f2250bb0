// Model parallelism: the two matrices of a layer are cut, one in columns and one in rows (as in
// Megatron-LM).
//
//   $ c++ -std=c++20 model_parallel.cc $(dlaunch --cflags --libs) -o model_parallel
//   $ dlaunch --nproc 2 ./model_parallel
//   [0] this rank has 64 of 128 hidden units
//   [0] output and gradients equal those of the whole layer
//   [1] this rank has 64 of 128 hidden units
//   [1] output and gradients equal those of the whole layer
//
// The layer is y = tanh(x A) B. Rank r has some columns of A and the same rows of B:
//
//   x (A0 A1) = (x A0  x A1)              each rank computes its hidden units, without a message
//   (h0 h1) (B0 over B1) = h0 B0 + h1 B1  one all_reduce adds up the outputs
//
// The backward pass needs one all_reduce, too: for the gradient with respect to x.
#include <cstdio>
#include <random>

#include <dlaunch/ring.hpp>

#include "layer.h"

namespace {

constexpr std::size_t kBatch = 32, kInputs = 48, kHidden = 128, kOutputs = 16;

struct Result {
  Matrix y, dx, da, db;  // the output, and gradients
};

// dy: the gradient with respect to y. add_up(m): m becomes its sum over the parts of the layer.
template <class AddUp>
Result run(const Matrix& x, const Matrix& a, const Matrix& b, const Matrix& dy, AddUp add_up) {
  const Matrix hidden = tanh_of(x * a);
  const Matrix dz = tanh_backward(hidden, dy * transposed(b));
  Result result{hidden * b, dz * transposed(a), transposed(x) * dz, transposed(hidden) * dy};
  add_up(result.y);
  add_up(result.dx);
  return result;
}

// The rows first … last - 1.
Matrix rows_of(const Matrix& whole, std::size_t first, std::size_t last) {
  Matrix part(last - first, whole.columns);
  for (std::size_t i = first; i < last; ++i) {
    for (std::size_t k = 0; k < whole.columns; ++k) part.at(i - first, k) = whole.at(i, k);
  }
  return part;
}
Matrix columns_of(const Matrix& whole, std::size_t first, std::size_t last) {
  return transposed(rows_of(transposed(whole), first, last));
}

}  // namespace

int main() {
  auto comm = dl::Communicator::init();
  std::mt19937 random(1);  // the same on every rank
  const Matrix x = random_matrix(kBatch, kInputs, random);
  const Matrix a = random_matrix(kInputs, kHidden, random);
  const Matrix b = random_matrix(kHidden, kOutputs, random);
  const Matrix dy = random_matrix(kBatch, kOutputs, random);

  // The hidden units of this rank.
  const auto rank = std::size_t(comm.rank()), size = std::size_t(comm.size());
  const std::size_t first = kHidden * rank / size, last = kHidden * (rank + 1) / size;
  const Result mine = run(x, columns_of(a, first, last), rows_of(b, first, last), dy,
                          [&](Matrix& partial) { comm.all_reduce(partial.values); });
  std::printf("this rank has %zu of %zu hidden units\n", last - first, kHidden);

  const Result whole = run(x, a, b, dy, [](Matrix&) {});  // in one process
  expect_equal(mine.y, whole.y);
  expect_equal(mine.dx, whole.dx);
  expect_equal(mine.da, columns_of(whole.da, first, last));
  expect_equal(mine.db, rows_of(whole.db, first, last));
  std::printf("output and gradients equal those of the whole layer\n");
}
