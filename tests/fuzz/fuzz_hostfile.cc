#include "fuzz.h"
#include "launcher/plan/hostfile.h"

static int fuzz_hostfile(const std::uint8_t* data, std::size_t size) {
  (void)dlaunch::parse_hostfile(fuzz_text(data, size), "fuzz");
  (void)dlaunch::parse_host_list(fuzz_text(data, size));
  return 0;
}

static const FuzzTarget hostfile_target("hostfile", fuzz_hostfile);
