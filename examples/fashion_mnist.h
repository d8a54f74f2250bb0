// Reads the Fashion-MNIST files (IDX format, gzip): images as rows of 784 floats in [0, 1], labels
// 0 to 9. Throws std::runtime_error that says what is missing.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <Eigen/Core>

struct Dataset {
  Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> images;
  std::vector<std::uint8_t> labels;
  int size() const { return static_cast<int>(labels.size()); }
};

inline std::vector<std::uint8_t> read_idx(const std::string& path, std::uint32_t magic,
                                          std::uint32_t& count, std::size_t item_bytes,
                                          std::size_t header_bytes) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    throw std::runtime_error("cannot read " + path +
                             ": install Debian's dataset-fashion-mnist, or name its folder with "
                             "--data");
  }
  std::vector<std::uint8_t> header(header_bytes);
  auto number = [&](std::size_t at) {
    return static_cast<std::uint32_t>(header[at]) << 24 |
           static_cast<std::uint32_t>(header[at + 1]) << 16 |
           static_cast<std::uint32_t>(header[at + 2]) << 8 | header[at + 3];
  };
  const bool whole = gzread(file, header.data(), static_cast<unsigned>(header_bytes)) ==
                     static_cast<int>(header_bytes);
  if (!whole || number(0) != magic || number(4) > 1000000) {
    gzclose(file);
    throw std::runtime_error(path + " is not a Fashion-MNIST file");
  }
  count = number(4);
  std::vector<std::uint8_t> bytes(count * item_bytes);
  const int got = gzread(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  if (got != static_cast<int>(bytes.size())) throw std::runtime_error(path + " is cut short");
  return bytes;
}

// `which`: "train" or "t10k". limit 0: all.
inline Dataset load_fashion_mnist(const std::string& folder, const std::string& which, int limit) {
  std::uint32_t images = 0, labels = 0;
  const auto pixels =
      read_idx(folder + "/" + which + "-images-idx3-ubyte.gz", 2051, images, 784, 16);
  Dataset data;
  data.labels = read_idx(folder + "/" + which + "-labels-idx1-ubyte.gz", 2049, labels, 1, 8);
  if (images != labels) throw std::runtime_error(folder + ": images and labels differ in number");
  const auto count = limit > 0 ? std::min(images, static_cast<std::uint32_t>(limit)) : images;
  data.labels.resize(count);
  data.images.resize(count, 784);
  for (std::size_t i = 0; i < count * std::size_t{784}; ++i) {
    data.images.data()[i] = static_cast<float>(pixels[i]) / 255.0f;
  }
  return data;
}
