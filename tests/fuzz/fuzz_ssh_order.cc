#include <string_view>

#include "cli/ssh_order.h"
#include "fuzz.h"
#include "launcher/lead/start/ssh_talk.h"

namespace {

// What is accepted means the same once it was written again.
void order(std::string_view bytes) {
  const auto order = dlaunch::decode_ssh_order(bytes);
  if (!order) return;
  const std::string written = encode(*order);
  const auto again = dlaunch::decode_ssh_order(written);
  if (!again || encode(*again) != written) __builtin_trap();
}

}  // namespace

static int fuzz_ssh_order(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz_text(data, size);
  order(bytes);
  const auto frame = dlaunch::decode_order_frame(bytes);
  if (!frame) return 0;
  if (encode(*frame).substr(4) != bytes) __builtin_trap();
  order(frame->order);
  return 0;
}

static const FuzzTarget ssh_order_target("ssh_order", fuzz_ssh_order);
