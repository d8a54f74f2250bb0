// Workers that compute gradients, for parameter_server.cc and backup_workers.cc.
//
// They learn weights by least squares. A message has the number of a server's weights, and then the
// weights, or the gradient that they lead to. A negative number ends a worker.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include <dlaunch/ring.hpp>

using Vector = std::vector<double>;

constexpr std::size_t kFeatures = 16, kSamples = 256;
constexpr double kRate = 0.05;
constexpr int kServer = 0;
// The slow worker repeats its work this many times, like a machine that is as much slower.
constexpr int kSlowness = 800;

// The true weights.
inline double right(std::size_t feature) { return static_cast<double>(feature) + 1; }

inline Vector message(int version, const Vector& values) {
  Vector all = {static_cast<double>(version)};
  all.insert(all.end(), values.begin(), values.end());
  return all;
}
inline Vector end_message() { return message(-1, Vector(kFeatures)); }

// Adds the values after the number, times the factor.
inline void add_values(const Vector& received, double factor, Vector& sum) {
  for (std::size_t k = 0; k < kFeatures; ++k) sum[k] += factor * received[k + 1];
}

// Each worker has samples of its own.
inline std::vector<Vector> own_samples(int rank) {
  std::seed_seq seed{1, rank};
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<Vector> samples(kSamples, Vector(kFeatures));
  for (auto& sample : samples) {
    for (auto& value : sample) value = normal(random);
  }
  return samples;
}

// The gradient of the mean over these samples; received has the weights.
inline Vector gradient_of(const std::vector<Vector>& samples, const Vector& received) {
  Vector gradient(kFeatures);
  for (const auto& x : samples) {
    double error = 0;
    for (std::size_t k = 0; k < kFeatures; ++k) error += x[k] * (received[k + 1] - right(k));
    for (std::size_t k = 0; k < kFeatures; ++k) gradient[k] += 2 * error * x[k] / kSamples;
  }
  return gradient;
}

// The same, as often as that.
inline Vector gradient_of(const std::vector<Vector>& samples, const Vector& received, int repeats) {
  Vector gradient;
  for (int i = 0; i < repeats; ++i) gradient = gradient_of(samples, received);
  return gradient;
}

// Answers the server until it sends the end.
inline void work(dl::Communicator& comm, bool slow) {
  const auto samples = own_samples(comm.rank());
  Vector received(1 + kFeatures);
  for (comm.recv(received, kServer); received[0] >= 0; comm.recv(received, kServer)) {
    const Vector gradient = gradient_of(samples, received, slow ? kSlowness : 1);
    comm.send(message(static_cast<int>(received[0]), gradient), kServer);
  }
}

// "learned" if the weights are near the true ones.
inline const char* verdict(const Vector& weights) {
  double apart = 0, length = 0;
  for (std::size_t k = 0; k < kFeatures; ++k) {
    apart += std::pow(weights[k] - right(k), 2);
    length += std::pow(right(k), 2);
  }
  return std::sqrt(apart / length) < 0.2 ? "learned" : "not learned";
}
