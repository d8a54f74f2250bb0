#include "fuzz.h"
#include "launcher/plan/hostfile.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)dlaunch::parse_hostfile(fuzz_text(data, size), "fuzz");
  (void)dlaunch::parse_host_list(fuzz_text(data, size));
  return 0;
}
