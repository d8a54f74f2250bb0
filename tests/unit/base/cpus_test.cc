#include "base/cpus.h"

#include <doctest/doctest.h>

using namespace dlaunch;

TEST_CASE("a set of CPUs gives back its numbers") {
  CHECK(cpus_in("").empty());
  CHECK(cpus_in(only_cpu(0)) == std::vector{0});
  CHECK(cpus_in(only_cpu(1234)) == std::vector{1234});  // beyond a cpu_set_t
  CHECK(cpus_in(united(only_cpu(7), only_cpu(8))) == std::vector{7, 8});
  CHECK(count_cpus(united(only_cpu(7), only_cpu(8))) == 2);
}

TEST_CASE("a thread binds itself to one of its CPUs, and to all of them again") {
  const std::string all = own_cpus();
  REQUIRE_FALSE(all.empty());
  const int last = cpus_in(all).back();
  CHECK(run_on(only_cpu(last)) == 0);
  CHECK(cpus_in(own_cpus()) == std::vector{last});
  CHECK(run_on(all) == 0);
  CHECK(own_cpus() == all);
}
