// The options of jobs that train together with those of other sites.
#include <doctest/doctest.h>

#include "cli/ssh_order.h"
#include "tests/unit/cli/fake_machine.h"

using namespace dlaunch;

namespace {

FakeMachine with_file(const std::string& text) {
  FakeMachine fake;
  fake.files["sites"] = text;
  return fake;
}

const Words kSites = {"--sites", "sites", "--secret-file", "secret"};

Words sites_and(const Words& more) {
  Words words = kSites;
  words.insert(words.end(), more.begin(), more.end());
  words.emplace_back("p");
  return words;
}

}  // namespace

TEST_CASE("--sites: the job is the site with an address of this machine") {
  FakeMachine fake = with_file("alps far:7000\nsea here:7001\n");
  const Plan plan = fake.plan(sites_and({}));
  CHECK(to_string(plan.sites.list) == "alps=far:7000,sea=here:7001");
  CHECK(plan.sites.own == "sea");
  CHECK(plan.sites.grace == std::chrono::seconds(10));
  CHECK(plan.sites.timeout == std::chrono::seconds(5));
  CHECK(plan.sites.wait == std::chrono::minutes(30));
  CHECK(plan.sites.linger == std::chrono::minutes(1));
  CHECK(fake.plan(sites_and({"--site-wait", "2h"})).sites.wait == std::chrono::hours(2));
  CHECK(fake.plan(sites_and({"--site-linger", "0"})).sites.linger == std::chrono::seconds(0));
  CHECK(fake.plan(sites_and({"--site", "alps"})).sites.own == "alps");
  CHECK(fake.plan(sites_and({"--site-journal", "/j"})).sites.journal == "/j");
  CHECK(fake.plan({"p"}).sites.list.empty());
  fake.files["./run=3/sites"] = fake.files["sites"];
  CHECK(fake.plan({"--sites", "./run=3/sites", "--secret-file", "secret", "p"}).sites.own == "sea");
  CHECK(fake.plan({"--sites", "alps=far:7000,sea=here:7001", "--secret-file", "secret", "p"})
            .sites.own == "sea");
}

TEST_CASE("--sites refuses what cannot work, in one sentence each") {
  FakeMachine two_here = with_file("alps localhost:7000\nsea here:7001\n");
  CHECK(two_here.refused(sites_and({})) ==
        "64 --sites: alps and sea are on this machine; say which one this job is: --site");
  FakeMachine none_here = with_file("alps far:7000\nsea there:7001\n");
  CHECK(none_here.refused(sites_and({})) ==
        "64 --sites: no site has an address of this machine; say which one this job is: --site");
  CHECK(none_here.refused(sites_and({"--site", "alpes"})) ==
        "64 --site: 'alpes' is not one of alps and sea; did you mean 'alps'?");
  CHECK(none_here.refused({"--sites", "sites", "--site", "sea", "p"}) ==
        "64 --sites: the sites need a secret, the same at all of them: --secret-file");
  CHECK(none_here.refused(sites_and({"--site", "sea", "--site-timeout", "10ms"})) ==
        "64 --site-timeout: 10ms is too short, the least is 1 s");
  CHECK(with_file("alps far:7000\nsea\n").refused(sites_and({})) ==
        "64 --sites sites: line 2: a line has a NAME and a HOST:PORT");
  CHECK(FakeMachine().refused(sites_and({})) ==
        "66 --sites: read sites: No such file or directory");
  CHECK(FakeMachine().refused({"--site", "a", "p"}) ==
        "64 --site: only a job with --sites has sites");
  for (const std::string option : {"--site-journal", "--site-wait", "--site-linger"}) {
    CHECK(FakeMachine().refused({option, "9", "p"}) ==
          "64 " + option + ": only a job with --sites has sites");
  }
}

TEST_CASE("the hosts of a site get the list itself, and its name") {
  FakeMachine fake = with_file("alps far:7000\nsea here:7001\n");
  const Plan plan = fake.plan(sites_and({"-H", "here,a"}));
  const auto order = decode_ssh_order(plan.nodes.order);
  REQUIRE(order);
  CHECK(*order->options.sites == "alps=far:7000,sea=here:7001");
  CHECK(*order->options.site == "sea");
}
