// What the targets share. Each is a libFuzzer target (-Dfuzz=true under clang) and, linked with
// replay.cc, an ordinary test that runs its corpus and mutations of it. A target returns -1 if the
// parser refuses the input.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

// The target's own examples, beside the files of its corpus; null if it has none.
__attribute__((weak)) std::vector<std::string> fuzz_examples();

// The examples given, and one of each other kind of message with its members as they are at first.
template <class Message, class Encode>
std::vector<std::string> one_of_each(const std::vector<Message>& given, Encode encoded) {
  std::vector<std::string> all;
  for (const Message& message : given) all.push_back(encoded(message));
  const auto add = [&](const Message& message) {
    const auto same = [&](const Message& other) { return other.index() == message.index(); };
    if (std::none_of(given.begin(), given.end(), same)) all.push_back(encoded(message));
  };
  [&]<std::size_t... kKinds>(std::index_sequence<kKinds...>) {
    (add(Message(std::in_place_index<kKinds>)), ...);
  }
  (std::make_index_sequence<std::variant_size_v<Message>>());
  return all;
}

inline std::string_view fuzz_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}
