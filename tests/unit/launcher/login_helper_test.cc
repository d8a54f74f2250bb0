#include "launcher/agent/login_helper.h"

#include <string>
#include <vector>

#include <asio/io_context.hpp>
#include <doctest/doctest.h>

#include "base/exit_code.h"

namespace dlaunch {
namespace {

// A host that may log in to others by a program that fails at once.
struct LoginHelperWorld {
  LoginHelperWorld() {
    plan.secret = std::string(32, 's');
    plan.nodes.login = 3;
    plan.nodes.ssh = {"false"};
  }
  NodeLogIn order(int to_login, const std::string& secret) const {
    NodeLogIn what{.login = 7, .number = 1, .host = "c", .binary = "/opt/dlaunch"};
    what.proof = proof_of(what, to_login, Secret(secret));
    return what;
  }
  // Why it has refused the order without starting a program; "": it has not.
  std::string refusal_of(const NodeLogIn& what) {
    ended.clear();
    const auto before = helpers.size();
    helper.take(what);
    if (ended.empty()) return "";
    CHECK((ended[0].login == what.login && !ended[0].reached));
    CHECK(helpers.size() == before);
    return ended[0].why;
  }
  asio::io_context loop;
  Plan plan;
  std::set<pid_t> helpers;
  std::vector<NodeLoginEnded> ended;
  LoginHelper helper{loop, plan, helpers, [this](const NodeMessage& what) {
                       ended.push_back(std::get<NodeLoginEnded>(what));
                     }};
};

TEST_CASE("login helper: takes each login of its leader once") {
  LoginHelperWorld world;
  const NodeLogIn what = world.order(3, world.plan.secret);
  CHECK(world.refusal_of(what).empty());
  CHECK(world.helpers.size() == 1);
  CHECK(world.refusal_of(what) == "the message has come before");
  world.ended.clear();
  world.loop.run();
  REQUIRE(world.ended.size() == 1);
  CHECK(world.ended[0].why == "false ended with exit code 1 without a word");
  CHECK(world.helpers.empty());
}

TEST_CASE("login helper: refuses what its order does not allow, and what others have written") {
  LoginHelperWorld world;
  const std::string& secret = world.plan.secret;
  const std::string forged = "the message does not come from the leader";
  CHECK(world.refusal_of(world.order(3, "another secret")) == forged);
  CHECK(world.refusal_of(world.order(4, secret)) == forged);  // for another host
  NodeLogIn what = world.order(3, secret);
  what.host = "d";
  CHECK(world.refusal_of(what) == forged);
  what.proof.clear();
  CHECK(world.refusal_of(what) == forged);
  world.plan.nodes.ssh.clear();
  CHECK(world.refusal_of(world.order(3, secret)) == "its order allows no logins to further hosts");
}

}  // namespace
}  // namespace dlaunch
