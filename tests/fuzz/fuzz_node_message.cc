#include <string_view>

#include "fuzz.h"
#include "launcher/wire/node_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const TimePoint now(std::chrono::hours(24 * 3650));
  const auto message = decode_node_message(fuzz_text(data, size), now);
  if (!message) return 0;
  // What is accepted means the same once it was written again.
  const std::string frame = encode(*message, now);
  const auto again = decode_node_message(std::string_view(frame).substr(4), now);
  if (!again || encode(*again, now) != frame) __builtin_trap();
  return 0;
}
