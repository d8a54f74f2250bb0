#include "cli/config_file.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)dlaunch::parse_config(fuzz_text(data, size), "fuzz");
  return 0;
}
