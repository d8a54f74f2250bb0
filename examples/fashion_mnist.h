// Reads the Fashion-MNIST files (IDX format, gzip): 28 x 28 grey pixels an image, labels 0 to 9.
// Throws std::runtime_error with the reason.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Dataset {
  static constexpr int kPixels = 784;
  std::vector<std::uint8_t> pixels;  // kPixels for each image, as stored: a quarter of the floats
  std::vector<std::uint8_t> labels;
  int size() const { return static_cast<int>(labels.size()); }
  const std::uint8_t* image(int i) const {
    return pixels.data() + static_cast<std::size_t>(i) * kPixels;
  }
};

// The first `limit` items of one file (0: all): after a header of `header_bytes`, big-endian, that
// begins with `magic` and the number of items.
inline std::vector<std::uint8_t> read_idx(const std::string& path, std::uint32_t magic,
                                          std::size_t header_bytes, std::size_t item_bytes,
                                          int limit) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) {
    throw std::runtime_error("cannot read " + path +
                             ": install Debian's dataset-fashion-mnist, or name its folder with "
                             "--data");
  }
  auto read = [&](std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    bytes.resize(static_cast<std::size_t>(
        std::max(0, gzread(file.get(), bytes.data(), static_cast<unsigned>(size)))));
    return bytes;
  };
  const auto header = read(header_bytes);
  auto number = [&](std::size_t at) {
    return static_cast<std::uint32_t>(header[at]) << 24 |
           static_cast<std::uint32_t>(header[at + 1]) << 16 |
           static_cast<std::uint32_t>(header[at + 2]) << 8 | header[at + 3];
  };
  if (header.size() != header_bytes || number(0) != magic || number(4) > 1000000) {
    throw std::runtime_error(path + " is not a Fashion-MNIST file");
  }
  const std::size_t all = number(4);
  const auto count = limit > 0 ? std::min(all, static_cast<std::size_t>(limit)) : all;
  auto items = read(count * item_bytes);
  if (items.size() != count * item_bytes) throw std::runtime_error(path + " is cut short");
  return items;
}

// `which`: "train" or "t10k". The first `limit` images; 0: all.
inline Dataset load_fashion_mnist(const std::string& folder, const std::string& which, int limit) {
  const std::string start = folder + "/" + which;
  Dataset data;
  data.pixels = read_idx(start + "-images-idx3-ubyte.gz", 2051, 16, Dataset::kPixels, limit);
  data.labels = read_idx(start + "-labels-idx1-ubyte.gz", 2049, 8, 1, limit);
  if (data.pixels.size() != data.labels.size() * Dataset::kPixels) {
    throw std::runtime_error(folder + ": images and labels differ in number");
  }
  if (std::any_of(data.labels.begin(), data.labels.end(), [](auto label) { return label > 9; })) {
    throw std::runtime_error(start + "-labels-idx1-ubyte.gz has a label above 9");
  }
  return data;
}
