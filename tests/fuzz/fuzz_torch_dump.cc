#include "fuzz.h"
#include "launcher/node/watch/torch_dump.h"

static int fuzz_torch_dump(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  if (const auto positions = read_torch_dump(fuzz_text(data, size))) {
    for (const NodePosition& at : *positions) {
      if (at.inside && at.seq == 0) __builtin_trap();
    }
  }
  return 0;
}

static const FuzzTarget torch_dump_target("torch_dump", fuzz_torch_dump);
