// What the targets share. Each is a libFuzzer target (-Dfuzz=true under clang) and, linked with
// replay.cc, an ordinary test that runs its corpus and mutations of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

inline std::string_view fuzz_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}
