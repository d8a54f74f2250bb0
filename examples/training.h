// The common part of the Fashion-MNIST trainers: their flags, the network's shape and first
// weights, and the files that they write.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "fashion_mnist.h"

constexpr int kInput = Dataset::kPixels, kClasses = 10;
constexpr float kPixelMean = 73.0f, kPixelDeviation = 90.0f;  // of the training images

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::string model;   // file to write; "": none
  std::string losses;  // file for the loss of each step, exactly; "": none
  int epochs = 4;
  int batch = 256;     // global: over all ranks together
  float rate = 0.04f;  // at the start
  float momentum = 0.9f;
  unsigned seed = 1;
  int limit = 0;             // training images; 0: all
  int hidden = 128;          // units of the hidden layer
  int commit_every = 1;      // steps
  std::string snapshots;     // folder; "": none
  int snapshot_every = 100;  // steps
};

// Where the parameters lie in a model.
struct Layout {
  int hidden;
  int b1() const { return kInput * hidden; }
  int w2() const { return b1() + hidden; }
  int b2() const { return w2() + hidden * kClasses; }
  int parameters() const { return b2() + kClasses; }
};

// Glorot and Bengio's initialisation, for tanh. The seed makes the weights equal on all ranks.
inline void initialise(float* values, const Layout& layout, unsigned seed) {
  std::mt19937 random(seed);
  auto fill = [&](float* w, int inputs, int outputs) {
    const float scale = std::sqrt(1.0f / static_cast<float>(inputs));
    for (int i = 0; i < inputs * outputs; ++i) {
      // The sum of four uniform numbers is normal enough, and the same with every library.
      float sum = 0;
      for (int k = 0; k < 4; ++k) sum += static_cast<float>(random()) / 4294967296.0f - 0.5f;
      w[i] = sum * 1.732f * scale;
    }
  };
  fill(values, kInput, layout.hidden);
  fill(values + layout.w2(), layout.hidden, kClasses);
}

// The learning rate falls in a straight line to zero over the whole training; `epochs` (with a
// fraction) of it are done.
inline float rate_after(const Options& options, float epochs) {
  return options.rate * (1.0f - epochs / static_cast<float>(options.epochs));
}

inline int steps_per_epoch(const Options& options, const Dataset& train) {
  return (train.size() + options.batch - 1) / options.batch;
}

// For each epoch, counted from 1: the mean of the values of its batches, over its images.
inline double epoch_loss(const std::vector<float>& losses, int epoch, const Options& options,
                         const Dataset& train) {
  const int steps = steps_per_epoch(options, train);
  double loss = 0;
  for (int i = 0; i < steps; ++i) {
    const int size = std::min(options.batch, train.size() - i * options.batch);
    loss += losses[static_cast<std::size_t>((epoch - 1) * steps + i)] * size;
  }
  return loss / train.size();
}

// Temporary name and rename: a reader never sees half a model.
inline void write_model(const std::vector<float>& weights, const std::string& path) {
  const std::string fresh = path + ".new";
  std::ofstream file(fresh, std::ios::binary);
  file.write(reinterpret_cast<const char*>(weights.data()),
             static_cast<std::streamsize>(weights.size() * sizeof(float)));
  file.close();
  if (!file || std::rename(fresh.c_str(), path.c_str()) != 0) {
    throw std::runtime_error("cannot write the model to " + path);
  }
}

// Fails now rather than after the training.
inline void check_writable(const std::string& path) {
  if (!std::ofstream(path, std::ios::app)) {
    throw std::runtime_error("cannot write the losses to " + path);
  }
}

inline void write_losses(const std::vector<float>& losses, const std::string& path) {
  std::ofstream file(path);
  for (const float loss : losses) {
    char text[40];
    std::snprintf(text, sizeof text, "%a %.6f\n", static_cast<double>(loss),
                  static_cast<double>(loss));
    file << text;
  }
  file.close();
  if (!file) throw std::runtime_error("cannot write the losses to " + path);
}

inline int whole_number(const std::string& flag, const std::string& text, int low) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < low) {
    throw std::invalid_argument(flag + " needs a whole number of at least " + std::to_string(low) +
                                ", not '" + text + "'");
  }
  return value;
}

inline float positive_number(const std::string& flag, const std::string& text) {
  float value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !(value > 0) || !std::isfinite(value)) {
    throw std::invalid_argument(flag + " needs a number above 0, not '" + text + "'");
  }
  return value;
}

// A program that is not elastic does not know the flags of elastic programs: they would have no
// effect.
inline Options parse(int argc, char** argv, bool elastic) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(flag + " needs a value, or is unknown");
    const char* value = argv[++i];
    if (flag == "--data")
      o.data = value;
    else if (flag == "--model")
      o.model = value;
    else if (flag == "--losses")
      o.losses = value;
    else if (elastic && flag == "--snapshots")
      o.snapshots = value;
    else if (elastic && flag == "--snapshot-every")
      o.snapshot_every = whole_number(flag, value, 1);
    else if (flag == "--epochs")
      o.epochs = whole_number(flag, value, 1);
    else if (flag == "--batch")
      o.batch = whole_number(flag, value, 1);
    else if (flag == "--lr")
      o.rate = positive_number(flag, value);
    else if (flag == "--seed")
      o.seed = static_cast<unsigned>(whole_number(flag, value, 0));
    else if (flag == "--limit")
      o.limit = whole_number(flag, value, 0);
    else if (flag == "--hidden")
      o.hidden = whole_number(flag, value, 1);
    else if (elastic && flag == "--commit-every")
      o.commit_every = whole_number(flag, value, 1);
    else
      throw std::invalid_argument("unknown flag " + flag);
  }
  return o;
}
