#include "cli/config_file.h"
#include "fuzz.h"

static int fuzz_config(const std::uint8_t* data, std::size_t size) {
  (void)dlaunch::parse_config(fuzz_text(data, size), "fuzz");
  return 0;
}

static const FuzzTarget config_target("config", fuzz_config);
