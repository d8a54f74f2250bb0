#include <string_view>

#include "fuzz.h"
#include "rendezvous/worker_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const std::string_view packet(reinterpret_cast<const char*>(data), size);
  const auto message = decode_worker_message(packet);
  // What is accepted is written again in the same bytes.
  if (message && encode(*message) != packet) __builtin_trap();
  return 0;
}
