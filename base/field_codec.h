// Writes and reads values that list their fields once, for both directions:
// each_field(values, PutField{out, most}), each_field(values, GetField{in, most}).
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/codec.h"
#include "base/text.h"

namespace dlaunch {

struct PutField {
  Writer& out;
  std::size_t most_text;  // bytes of a text; what is longer is cut
  void operator()(const std::string& text) const { out.put_string(text.substr(0, most_text)); }
  void operator()(double number) const { out.put(std::bit_cast<std::uint64_t>(number)); }
  void operator()(bool flag) const { out.put(static_cast<std::uint8_t>(flag)); }
  void operator()(std::integral auto number) const { out.put(number); }
};

// A text that is longer makes the reader fail; others are escaped.
struct GetField {
  Reader& in;
  std::size_t most_text;
  void operator()(std::string& text) const { text = escaped(in.get_string(most_text)); }
  void operator()(double& number) const { number = std::bit_cast<double>(in.get<std::uint64_t>()); }
  void operator()(bool& flag) const { flag = in.get<std::uint8_t>() != 0; }
  template <std::integral T>
  void operator()(T& number) const {
    number = in.get<T>();
  }
};

}  // namespace dlaunch
