#include "launcher/output/line_prefix.h"

#include <doctest/doctest.h>

using namespace dlaunch;

TEST_CASE("the template of a line's prefix knows torchrun's macros") {
  Plan plan;
  plan.role = "trainer";
  plan.host = "h1";
  plan.output.prefix = "[${role_name}${local_rank}]:${hostname}:${rank} ${other} ";
  CHECK(line_prefix(plan, {5}, {{4, 0}, {5, 1}}) == "[trainer1]:h1:5 ${other} ");
  CHECK(line_prefix(plan, {4, 5}, {{4, 0}, {5, 1}}) == "[trainer0-1]:h1:4-5 ${other} ");
  CHECK(line_prefix(plan, {7}, {}) == "[trainer7]:h1:7 ${other} ");
  CHECK(line_prefix(plan, {-1}, {}) == "[trainerspare]:h1:spare ${other} ");
}
