// The hooks of GradientBucketer: averages in a codec, PowerSGD, and averages without slow ranks.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include <dlaunch/bucket_hooks.hpp>
#include <doctest/doctest.h>

#include "process_world.h"

using namespace dlaunch;

namespace {

// Gradients that lie end to end.
struct Gradients {
  explicit Gradients(const std::vector<dl::MatrixShape>& shapes) {
    std::size_t count = 0;
    for (const auto& shape : shapes) count += shape.rows * shape.columns;
    values.resize(count);
    float* at = values.data();
    for (const auto& shape : shapes) {
      tensors.emplace_back(at, shape.rows * shape.columns);
      at += shape.rows * shape.columns;
    }
  }
  std::vector<float> values;
  std::vector<std::span<float>> tensors;
};

void run_step(dl::GradientBucketer<float>& bucketer, std::size_t gradients) {
  for (std::size_t i = gradients; i-- > 1;) bucketer.ready(i);
  bucketer.finish();  // it takes the first one as it is
}

bool same_on_all(dl::Communicator& world, std::vector<float> values) {
  const auto mine = values;
  world.broadcast(std::span<float>(values), 0);
  return std::memcmp(mine.data(), values.data(), values.size() * sizeof(float)) == 0;
}

// The largest difference.
double most_apart(std::span<const float> some, std::span<const float> others) {
  double most = 0;
  for (std::size_t i = 0; i < some.size(); ++i) {
    most = std::max(most, std::abs(double{some[i]} - double{others[i]}));
  }
  return most;
}

// Matrices of rank 2 or less, the same on all ranks.
void fill_low_rank(std::span<float> matrix, std::size_t columns, double first, double second) {
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    const auto row = static_cast<double>(i / columns), column = static_cast<double>(i % columns);
    matrix[i] = static_cast<float>(first * std::sin(row + 1) * std::cos(column) +
                                   second * (row + 1) * std::sin(column));
  }
}

}  // namespace

TEST_CASE("bucket hooks: a codec gives the bits of compressed averages, and keeps what it loses") {
  all_well({3, "shm"}, [](int rank, dl_comm*& comm) {
    auto world = dl::Communicator::adopt(std::exchange(comm, nullptr));
    Gradients gradients({{1, 300}, {1, 7}, {1, 1000}, {1, 0}, {1, 4000}});
    dl::CompressedBuckets hook(world, dl::Codec::int4, gradients.values.size());
    dl::GradientBucketer<float> bucketer(world, gradients.tensors,
                                         {.bucket_bytes = 8000, .first_bucket_bytes = 100},
                                         std::ref(hook));
    EXPECT(bucketer.buckets() == 2);
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<float> large(4000), others(1307), large_lost(4000), others_lost(1307);
    for (int step = 0; step < 4; ++step) {
      for (float& value : gradients.values) value = std::normal_distribution<float>()(random);
      large.assign(gradients.tensors[4].begin(), gradients.tensors[4].end());
      others.clear();
      for (const std::size_t i : {2, 1, 0}) {
        others.insert(others.end(), gradients.tensors[i].begin(), gradients.tensors[i].end());
      }
      run_step(bucketer, 5);
      world.compressed_average(large, large, dl::Codec::int4, large_lost);
      world.compressed_average(others, others, dl::Codec::int4, others_lost);
      EXPECT(std::memcmp(gradients.tensors[4].data(), large.data(), 16000) == 0);
      EXPECT(std::memcmp(gradients.tensors[2].data(), others.data(), 4000) == 0);
      EXPECT(std::memcmp(gradients.tensors[0].data(), others.data() + 1007, 1200) == 0);
    }
    EXPECT(std::memcmp(hook.residual().data(), large_lost.data(), 16000) == 0);
    EXPECT(large_lost[0] != 0);
    dl::CompressedBuckets small(world, dl::Codec::int4, 100);
    dl::GradientBucketer<float> wrong(world, gradients.tensors, {}, std::ref(small));
    EXPECT(code_of([&] { wrong.finish(); }) == DL_ERR_INVALID);
    world.barrier();
    return 0;
  });
}

TEST_CASE("bucket hooks: PowerSGD gives averages of low rank exactly, and makes up for the rest") {
  for (const bool warm : {true, false}) {
    all_well({3, "shm"}, [&](int rank, dl_comm*& comm) {
      auto world = dl::Communicator::adopt(std::exchange(comm, nullptr));
      const std::vector<dl::MatrixShape> shapes{{40, 60}, {1, 30}, {50, 20}, {3, 3}};
      Gradients gradients(shapes), average(shapes);
      dl::PowerSgdBuckets hook(world, shapes,
                               {.rank = 2, .first_step = 1, .warm_start = warm, .seed = 5});
      dl::GradientBucketer<float> bucketer(world, gradients.tensors,
                                           {.bucket_bytes = 5000, .first_bucket_bytes = 1000},
                                           std::ref(hook));
      EXPECT(bucketer.buckets() == 3);
      const auto apart = [&] { return most_apart(gradients.values, average.values); };
      // Every rank has the same product of rank 2 in its matrices, times its rank.
      const auto fill_low = [&] {
        for (std::size_t t = 0; t < shapes.size(); ++t) {
          for (std::size_t i = 0; i < gradients.tensors[t].size(); ++i) {
            const auto row = static_cast<double>(i / shapes[t].columns);
            const auto column = static_cast<double>(i % shapes[t].columns);
            const double value =
                std::sin(row + 1) * std::cos(column) + 0.3 * row * std::sin(column);
            gradients.tensors[t][i] = static_cast<float>(value * rank);
            average.tensors[t][i] = static_cast<float>(value);
          }
        }
      };
      for (int step = 0; step < 3; ++step) {
        fill_low();
        run_step(bucketer, 4);
        EXPECT(apart() < 1e-4);
        EXPECT(same_on_all(world, gradients.values));
      }
      // Random gradients, the same in each step: the sum of many averages comes close.
      std::mt19937 random(static_cast<unsigned>(rank));
      std::vector<float> mine(gradients.values.size()), sum(mine.size());
      for (float& value : mine) value = std::normal_distribution<float>()(random);
      constexpr int kSteps = 400;
      for (int step = 0; step < kSteps; ++step) {
        gradients.values = mine;  // in place: the sizes are equal
        run_step(bucketer, 4);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradients.values[i] / kSteps;
      }
      EXPECT(same_on_all(world, gradients.values));
      gradients.values = mine;
      world.all_reduce(std::span<float>(gradients.values), dl::Op::avg);
      average.values = sum;
      EXPECT(apart() < 0.25);  // one step alone is more than 1 apart
      EXPECT(hook.steps() == kSteps + 3);
      EXPECT(hook.errors().size() == 40 * 60 + 50 * 20);
      EXPECT(hook.shared().size() == 2 * (60 + 20));
      dl::PowerSgdBuckets other(world, {{40, 60}});
      dl::GradientBucketer<float> wrong(world, gradients.tensors, {}, std::ref(other));
      EXPECT(code_of([&] { wrong.finish(); }) == DL_ERR_INVALID);
      world.barrier();
      return 0;
    });
  }
}

TEST_CASE("bucket hooks: PowerSGD goes on after steps that give it nothing, or no number") {
  for (const bool errors : {true, false}) {
    all_well({3, "shm"}, [&](int rank, dl_comm*& comm) {
      auto world = dl::Communicator::adopt(std::exchange(comm, nullptr));
      const std::vector<dl::MatrixShape> shapes{{40, 60}, {40, 60}};
      Gradients gradients(shapes);
      auto& values = gradients.values;
      dl::PowerSgdBuckets hook(world, shapes,
                               {.rank = 2, .first_step = 0, .error_feedback = errors});
      dl::GradientBucketer<float> bucketer(world, gradients.tensors, {.first_bucket_bytes = 1000},
                                           std::ref(hook));
      std::vector<float> wanted(values.size());
      const auto step_is_exact = [&](double first, double second) {
        fill_low_rank(wanted, 60, first, second);
        values = wanted;
        bucketer.finish();
        return most_apart(values, wanted) < 1e-3 && same_on_all(world, values);
      };
      bucketer.ready(1);  // a step that the program drops
      bucketer.reset();
      const std::vector<float> before(hook.shared().begin(), hook.shared().end());
      EXPECT(std::ranges::count(before, 0.0F) == 0);
      EXPECT(step_is_exact(1, 1));
      EXPECT(step_is_exact(0, 0));
      EXPECT(step_is_exact(1, 1));
      EXPECT(step_is_exact(0, 1));
      EXPECT(step_is_exact(1, 0.1));
      for (const float no_number : {std::numeric_limits<float>::infinity(),
                                    std::numeric_limits<float>::quiet_NaN(), 3e38F}) {
        fill_low_rank(values, 60, 1, 1);
        if (rank == 1)
          for (const auto& tensor : gradients.tensors) std::fill_n(tensor.begin(), 70, no_number);
        bucketer.finish();
        EXPECT(std::ranges::all_of(values, [](float value) { return std::isnan(value); }));
        EXPECT(std::ranges::count(hook.errors(), 0.0F) ==
               static_cast<std::ptrdiff_t>(hook.errors().size()));
        EXPECT(step_is_exact(1, 1));
      }
      world.barrier();
      return 0;
    });
  }
}

TEST_CASE("bucket hooks: PowerSGD refuses options that make no sense") {
  all_well({1, "shm"}, [](int rank, dl_comm*& comm) {
    auto world = dl::Communicator::adopt(std::exchange(comm, nullptr));
    for (const dl::PowerSgdOptions& options :
         {dl::PowerSgdOptions{.rank = 0}, dl::PowerSgdOptions{.min_compression_rate = -1},
          dl::PowerSgdOptions{.min_compression_rate = std::nan("")}}) {
      EXPECT(code_of([&] {
               const dl::PowerSgdBuckets hook(world, {{40, 60}}, options);
             }) == DL_ERR_INVALID);
    }
    return 0;
  });
}

TEST_CASE("bucket hooks: averages without a slow rank count each of its gradients once") {
  all_well({4, "shm"}, [](int rank, dl_comm*& comm) {
    auto world = dl::Communicator::adopt(std::exchange(comm, nullptr));
    Gradients gradients({{1, 500}, {1, 30}, {1, 700}});
    dl::SomeOptions options(3);
    options.late = DL_LATE_CARRY;
    dl::SomeBuckets<float> hook(world, options);
    dl::GradientBucketer<float> bucketer(world, gradients.tensors,
                                         {.bucket_bytes = 2200, .first_bucket_bytes = 100},
                                         std::ref(hook));
    EXPECT(bucketer.buckets() == 2);
    double given = 0, sum_given = 0, skipped = 0;
    std::vector<double> counted(2), summed(2);
    std::vector<float> seen;
    const auto take = [&] {
      for (std::size_t b = 0; b < 2; ++b) {
        int count = 0;
        for (const int one : hook.outcomes()[b].given) count += one;
        counted[b] += count;
        summed[b] += std::round(double{gradients.tensors[b == 0 ? 2 : 0][0]} * count);
      }
    };
    for (int step = 0; step < 60; ++step) {
      if (hook.late()) {
        hook.skip();
        ++skipped;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(rank == 3 ? 9 : 3));
        const auto number = static_cast<float>(step * 4 + rank);
        std::fill(gradients.values.begin(), gradients.values.end(), number);
        ++given;
        sum_given += double{number};
        for (std::size_t i = 3; i-- > 0;) bucketer.ready(i);
      }
      bucketer.finish();
      EXPECT(gradients.tensors[0][0] == gradients.tensors[1][29]);
      seen.push_back(gradients.tensors[0][0]);
      seen.push_back(gradients.tensors[2][0]);
      take();
    }
    // What is still kept.
    world.barrier();
    hook.skip();
    bucketer.finish();
    take();
    std::vector<double> all{given, sum_given};
    world.all_reduce(std::span<double>(all));
    for (std::size_t b = 0; b < 2; ++b) EXPECT(counted[b] == all[0] && summed[b] == all[1]);
    EXPECT((rank < 3 || skipped > 0));
    EXPECT(same_on_all(world, seen));
    return 0;
  });
}
