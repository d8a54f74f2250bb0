// EncodedSlice: one slice of floats on its way between hosts in a wire codec. Each host adds up one
// part of it. Pure; the caller moves the data between the steps:
//
//   encode()   the own values, part by part
//              all_to_all of bytes() a part: given() -> taken()
//   add_up()   decodes all hosts' values of the own part, adds them in the order of the hosts, and
//              encodes the sum
//              all_gather of bytes(): given() -> taken()
//   decode()   the sums of all parts, alike on all hosts
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "ring/kernels/wire_codec.h"

namespace dlaunch {

class EncodedSlice {
 public:
  void encode(WireCodec codec, const float* values, std::size_t count, std::size_t hosts);
  void add_up(std::size_t own_host);
  void decode(float* values) const;

  std::size_t bytes() const { return encoded_bytes(codec_, part_); }
  const std::byte* given() const { return given_.data(); }
  std::byte* taken() { return taken_.data(); }

 private:
  std::size_t begin_of(std::size_t host) const { return std::min(host * part_, count_); }
  std::size_t count_of(std::size_t host) const { return begin_of(host + 1) - begin_of(host); }

  WireCodec codec_ = WireCodec::none;
  std::size_t count_ = 0, hosts_ = 1, part_ = 0;
  std::vector<std::byte> given_, taken_;  // keep their memory
  std::vector<float> sums_;
};

}  // namespace dlaunch
