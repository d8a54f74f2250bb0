#include <string_view>

#include "fuzz.h"
#include "ring/links/link_frame.h"

static int fuzz_link_frame(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (true) {
    const auto before = rest;
    const auto frame = take_link_frame(rest, 8);
    if (!frame || !frame->has_value()) return 0;
    // What is accepted is written again in the same bytes.
    if (encode(**frame) != before.substr(0, before.size() - rest.size())) __builtin_trap();
  }
}

static const FuzzTarget link_frame_target("link_frame", fuzz_link_frame);
