#include "fuzz.h"
#include "rendezvous/store_core.h"
#include "rendezvous/wire.h"

static int fuzz_store_wire(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  FrameBuffer frames;
  frames.append(fuzz_text(data, size));
  StoreCore core(1 << 16);
  while (true) {
    const auto message = frames.next();
    if (!message || !message->has_value()) break;
    (void)decode_reply(**message);
    if (const auto request = decode_request(**message)) {
      // A decoded request is encoded to the same bytes.
      if (encode(*request).substr(4) != **message) __builtin_trap();
      (void)core.step(TimePoint{}, StoreCore::Asked{1, *request});
    }
  }
  return 0;
}

static const FuzzTarget store_wire_target("store_wire", fuzz_store_wire);
