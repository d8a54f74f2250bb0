// Gives libFuzzer the one target of the program.
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return FuzzTarget::all().front().take(data, size);
}
