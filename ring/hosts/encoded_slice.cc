#include "ring/hosts/encoded_slice.h"

namespace dlaunch {

void EncodedSlice::encode(WireCodec codec, const float* values, std::size_t count,
                          std::size_t hosts) {
  codec_ = codec;
  count_ = count;
  hosts_ = hosts;
  part_ = (count + hosts - 1) / hosts;
  given_.resize(std::max(given_.size(), hosts * bytes()));
  taken_.resize(given_.size());
  for (std::size_t h = 0; h < hosts; ++h) {
    encode_floats(codec, values + begin_of(h), count_of(h), given_.data() + h * bytes());
  }
}

void EncodedSlice::add_up(std::size_t own_host) {
  const std::size_t own = count_of(own_host);
  sums_.resize(std::max(sums_.size(), 2 * part_));
  float* const sum = sums_.data();
  float* const next = sum + part_;
  decode_floats(codec_, taken_.data(), own, sum);
  for (std::size_t h = 1; h < hosts_; ++h) {
    decode_floats(codec_, taken_.data() + h * bytes(), own, next);
    for (std::size_t i = 0; i < own; ++i) sum[i] += next[i];
  }
  encode_floats(codec_, sum, own, given_.data());
}

void EncodedSlice::decode(float* values) const {
  for (std::size_t h = 0; h < hosts_; ++h) {
    decode_floats(codec_, taken_.data() + h * bytes(), count_of(h), values + begin_of(h));
  }
}

}  // namespace dlaunch
