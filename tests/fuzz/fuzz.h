// What the targets share. With libfuzzer.cc each target is a program of libFuzzer (-Dfuzz=true
// under clang). With replay.cc all targets are one program, which runs the corpus of a target and
// mutations of it as an ordinary test.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// A constant of this type in each target's file adds the target to the program.
struct FuzzTarget {
  std::string_view name;
  int (*take)(const std::uint8_t* data, std::size_t size);  // -1: the parser refuses the input
  std::vector<std::string> (*examples)();  // beside the files of the corpus; null if there are none

  FuzzTarget(std::string_view its_name, int (*its_take)(const std::uint8_t*, std::size_t),
             std::vector<std::string> (*its_examples)() = nullptr)
      : name(its_name), take(its_take), examples(its_examples) {
    all().push_back(*this);
  }

  static std::vector<FuzzTarget>& all() {
    static std::vector<FuzzTarget> targets;
    return targets;
  }
};

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

inline void fuzz_check(bool holds) {
  if (!holds) __builtin_trap();
}
