// What the targets share. Each is a libFuzzer target (-Dfuzz=true under clang) and, linked with
// replay.cc, an ordinary test that runs its corpus and mutations of it. A target returns -1 if the
// parser refuses the input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

// The target's own examples, beside the files of its corpus.
std::vector<std::string> fuzz_examples();

// One message of each kind, with its members as they are at first.
template <class Message, class Encode>
std::vector<std::string> one_of_each(Encode encoded) {
  return [&]<std::size_t... kKinds>(std::index_sequence<kKinds...>) {
    return std::vector<std::string>{encoded(Message(std::in_place_index<kKinds>))...};
  }
  (std::make_index_sequence<std::variant_size_v<Message>>());
}

inline std::string_view fuzz_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}
