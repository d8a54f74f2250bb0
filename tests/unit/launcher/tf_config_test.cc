#include "launcher/node/workers/tf_config.h"

#include <sys/resource.h>

#include <set>

#include <doctest/doctest.h>

#include "launcher/node/workers/worker_ports.h"

using namespace dlaunch;

namespace {

const std::vector<std::string> kThree = {"a:1", "a:2", "[::1]:3"};

}  // namespace

TEST_CASE("without roles every rank is a worker") {
  CHECK(tf_config({}, 1, kThree) ==
        R"({"cluster":{"worker":["a:1","a:2","[::1]:3"]},"task":{"type":"worker","index":1}})");
  CHECK(tf_config({}, -1, kThree).empty());
  CHECK(tf_config({}, 0, {}).empty());
  CHECK(tf_config({}, 3, kThree).empty());
  CHECK(tf_config({}, 0, {"\xff:1"}).find("\xef\xbf\xbd:1") != std::string::npos);
}

TEST_CASE("roles stand in their order, and an evaluator outside the cluster") {
  const std::vector<JobRole> roles = {{"chief", 0, 1}, {"ps", 1, 1}, {"evaluator", 2, 1}};
  CHECK(tf_config(roles, 1, kThree) ==
        R"({"cluster":{"chief":["a:1"],"ps":["a:2"]},"task":{"type":"ps","index":0}})");
  CHECK(tf_config(roles, 2, kThree) ==
        R"({"cluster":{"chief":["a:1"],"ps":["a:2"]},"task":{"type":"evaluator","index":0}})");
  const std::vector<JobRole> two = {{"ps", 0, 1}, {"worker", 1, 2}};
  CHECK(tf_config(two, 2, kThree).ends_with(R"("task":{"type":"worker","index":1}})"));
}

TEST_CASE("with a chief, workers beside parameter servers serve, too") {
  CHECK(serving_ranks({{"worker", 0, 2}}).empty());
  CHECK(serving_ranks({{"chief", 0, 1}, {"worker", 1, 2}}).empty());
  CHECK(serving_ranks({{"worker", 0, 2}, {"ps", 2, 2}}) == std::set<int>{2, 3});
  CHECK(serving_ranks({{"ps", 0, 1}, {"chief", 1, 1}, {"worker", 2, 2}, {"evaluator", 4, 1}}) ==
        std::set<int>{0, 2, 3});
}

TEST_CASE("each worker has a port of its own, from the end of --port-range if there is one") {
  Plan plan;
  plan.nproc = plan.max_nproc = 3;
  plan.spares = 1;
  const auto open = reserve_worker_ports(plan, 0);
  REQUIRE(open);
  const auto numbers = open->rank_numbers();
  CHECK(numbers.size() == 4);
  CHECK(std::set<int>(numbers.begin(), numbers.end()).size() == 4);

  plan.framework = Framework::none;
  CHECK(reserve_worker_ports(plan, 0)->ranks.empty());

  const int first = numbers[0];  // held, so the range has one port too few
  plan.port_range = std::to_string(first) + "-" + std::to_string(first);
  plan.framework = Framework::automatic;
  CHECK(reserve_worker_ports(plan, 0)->ranks.empty());
  plan.framework = Framework::tensorflow;
  const auto none = reserve_worker_ports(plan, 0);
  REQUIRE_FALSE(none);
  CHECK(none.error().what.find("0 of its ports are free") != std::string::npos);
}

TEST_CASE("with a low limit of open files the job runs without the ranks' ports") {
  Plan plan;
  plan.nproc = plan.max_nproc = 8;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  rlimit low = limit;
  low.rlim_cur = 100;
  ::setrlimit(RLIMIT_NOFILE, &low);
  const auto without = reserve_worker_ports(plan, 0);
  plan.framework = Framework::tensorflow;
  const auto refused = reserve_worker_ports(plan, 0);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  REQUIRE(without);
  CHECK(without->ranks.empty());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().what.find("need 144 open files, but the limit is 100") !=
        std::string::npos);
}
