// Machines that hwloc makes up from a description.
#pragma once

#include <string>

#include <doctest/doctest.h>

#include "launcher/node/placement/topology.h"

namespace dlaunch {

inline Topology synthetic(const std::string& description) {
  auto topology = synthetic_topology(description);
  REQUIRE_MESSAGE(topology, description);
  return *topology;
}

}  // namespace dlaunch
