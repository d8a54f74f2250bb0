#include "elastic/rack_order.h"
#include "fuzz.h"
#include "launcher/plan/host_racks.h"

static int fuzz_host_racks(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const auto found = parse_topology(fuzz_text(data, size), "fuzz");
  if (!found) return -1;
  std::vector<std::string> racks;
  for (const auto& [host, rack] : *found) {
    fuzz_check(is_rack(rack) && rack_in(*found, host) == rack);
    racks.push_back(rack);
  }
  fuzz_check(racks.empty() || order_by_rack(racks).front() == 0);
  return 0;
}

static const FuzzTarget host_racks_target("host_racks", fuzz_host_racks);
