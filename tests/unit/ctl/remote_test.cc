#include "cli/ctl/remote.h"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::ctl;

TEST_CASE("--leader: addresses, or the place where hosts elect their leader") {
  const auto addresses = [](const char* text) {
    std::string found;
    const auto job = parse_leader(text);
    if (!job) return "error: " + job.error().what;
    for (const Endpoint& leader : job->leaders) found += to_string(leader) + " ";
    return found + job->election;
  };
  CHECK(addresses("h1:29400") == "h1:29400 ");
  CHECK(addresses("h1:29400,[fe80::1]:7") == "h1:29400 [fe80::1]:7 ");
  for (const char* place : {"file:///shared/meet", "etcd://h1:2379,h2:2379/p", "etcds://h1"}) {
    CHECK(addresses(place) == place);
  }
  for (const char* wrong : {"", "h1", "h1:29400,", "h1:x", "h1:29400,,h2:29400"}) {
    CHECK_MESSAGE(addresses(wrong).starts_with("error: "), wrong);
  }
}
