// Matrices, and one layer of a small network: y = tanh(x W). For the examples that cut a network
// into pieces.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

struct Matrix {
  Matrix() = default;
  Matrix(std::size_t row_count, std::size_t column_count)
      : rows(row_count), columns(column_count), values(row_count * column_count) {}
  double& at(std::size_t row, std::size_t column) { return values[row * columns + column]; }
  double at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }

  std::size_t rows = 0, columns = 0;
  std::vector<double> values;  // row after row
};

inline Matrix transposed(const Matrix& a) {
  Matrix result(a.columns, a.rows);
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t k = 0; k < a.columns; ++k) result.at(k, i) = a.at(i, k);
  }
  return result;
}

inline Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix result(a.rows, b.columns);
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t k = 0; k < a.columns; ++k) {
      for (std::size_t j = 0; j < b.columns; ++j) result.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return result;
}

inline Matrix tanh_of(Matrix a) {
  for (double& value : a.values) value = std::tanh(value);
  return a;
}

// tanh' = 1 - tanh², so the backward pass needs only y = tanh(z).
inline Matrix tanh_backward(const Matrix& y, Matrix dy) {
  for (std::size_t i = 0; i < y.values.size(); ++i) dy.values[i] *= 1 - y.values[i] * y.values[i];
  return dy;
}

// Normal numbers. All ranks have the same seed, so they get the same numbers.
inline Matrix random_matrix(std::size_t rows, std::size_t columns, std::mt19937& random,
                            double scale = 1) {
  std::normal_distribution<double> normal(0, scale);
  Matrix result(rows, columns);
  for (double& value : result.values) value = normal(random);
  return result;
}

struct Layer {
  explicit Layer(const Matrix& given) : weights(given), gradient(given.rows, given.columns) {}
  Matrix weights, gradient;

  Matrix forward(const Matrix& x) const { return tanh_of(x * weights); }
  // dy: the gradient of the loss with respect to y. Adds the gradient of the weights to `gradient`,
  // and returns the gradient with respect to x.
  Matrix backward(const Matrix& x, const Matrix& y, const Matrix& dy) {
    const Matrix dz = tanh_backward(y, dy), dw = transposed(x) * dz;
    for (std::size_t i = 0; i < dw.values.size(); ++i) gradient.values[i] += dw.values[i];
    return dz * transposed(weights);
  }
};

inline std::vector<Layer> network(int layers, std::size_t width) {
  std::mt19937 random(1);
  std::vector<Layer> result;
  for (int i = 0; i < layers; ++i) {
    result.emplace_back(random_matrix(width, width, random, 1 / std::sqrt(double(width))));
  }
  return result;
}

struct Samples {
  std::vector<Matrix> inputs, targets;  // one for each micro-batch
  double count;                         // of all micro-batches together
};
inline Samples samples(int batches, std::size_t batch, std::size_t width) {
  std::mt19937 random(2);
  Samples result{{}, {}, static_cast<double>(batches) * static_cast<double>(batch)};
  for (int i = 0; i < batches; ++i) {
    result.inputs.push_back(random_matrix(batch, width, random));
    result.targets.push_back(random_matrix(batch, width, random));
  }
  return result;
}

// The gradient of the loss: half the squared error over all samples, divided by their number.
inline Matrix loss_gradient(Matrix y, const Matrix& target, double count) {
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    y.values[i] = (y.values[i] - target.values[i]) / count;
  }
  return y;
}

// The gradients of the whole network in one process.
inline std::vector<Layer> unsplit(std::vector<Layer> layers, const Samples& samples) {
  for (std::size_t batch = 0; batch < samples.inputs.size(); ++batch) {
    std::vector<Matrix> outputs = {samples.inputs[batch]};
    for (const auto& layer : layers) outputs.push_back(layer.forward(outputs.back()));
    Matrix d = loss_gradient(outputs.back(), samples.targets[batch], samples.count);
    for (std::size_t i = layers.size(); i-- > 0;) {
      d = layers[i].backward(outputs[i], outputs[i + 1], d);
    }
  }
  return layers;
}

inline void expect_equal(const Matrix& a, const Matrix& b) {
  if (a.values.size() != b.values.size()) throw std::runtime_error("matrices differ in size");
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    const double apart = std::abs(a.values[i] - b.values[i]);
    if (!(apart <= 1e-9 * std::max(1.0, std::abs(b.values[i])))) {
      throw std::runtime_error("the results differ");
    }
  }
}
