#include "launcher/wire/leader_link.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <asio/post.hpp>
#include <doctest/doctest.h>

#include "base/codec.h"
#include "launcher/wire/node_links.h"
#include "launcher/wire/node_message.h"
#include "rendezvous/store_server.h"

namespace dlaunch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("leader link: messages that have come are read, without waiting for more") {
  const Secret secret(std::string(32, 's'));
  asio::io_context serving, loop;
  std::atomic<NodeHandlers::Link> host{0};
  NodeHandlers nodes{.opened = [&](NodeHandlers::Link link, const std::string&) { host = link; },
                     .message = [](NodeHandlers::Link, std::string_view) {},
                     .closed = [](NodeHandlers::Link) {}};
  auto server = StoreServer::open(
      serving,
      {.listen = {"127.0.0.1", 0}, .job_id = "job", .secret = secret, .nodes = std::move(nodes)});
  REQUIRE(server);
  auto keep = asio::make_work_guard(serving);
  std::thread leader([&] { serving.run(); });

  bool opened = false;
  int exit_code = -1;
  LeaderLink link(loop, (*server)->endpoint(),
                  {.purpose = Purpose::node, .job_id = "job", .who = "a test"}, secret, seconds(60),
                  {.opened = [&] { opened = true; },
                   .message =
                       [&](std::string_view frame) {
                         const auto message = decode_node_message(frame, steady_now());
                         if (!message) return;
                         if (const auto* finish = std::get_if<NodeFinish>(&*message)) {
                           exit_code = finish->exit_code;
                         }
                       },
                   .lost = [](const std::string&) {},
                   .failed = [](const LeaderLink::Failure&) {}});
  link.hear_out();  // nobody is there yet
  link.start();
  const auto until = steady_now() + seconds(20);
  while ((!opened || host == 0) && steady_now() < until) loop.run_one_for(milliseconds(10));
  REQUIRE(opened);
  link.hear_out();
  CHECK(exit_code == -1);

  // From here on the loop does not run: only hear_out() can tell.
  asio::post(serving,
             [&] { (*server)->send(host, encode(NodeFinish{.exit_code = 7}, steady_now())); });
  while (exit_code < 0 && steady_now() < until) link.hear_out();
  CHECK(exit_code == 7);

  link.stop();
  keep.reset();
  serving.stop();
  leader.join();
}

TEST_CASE("leader link: a wrong secret is final, a closed port is not") {
  asio::io_context serving, loop;
  NodeHandlers nodes{.opened = [](NodeHandlers::Link, const std::string&) {},
                     .message = [](NodeHandlers::Link, std::string_view) {},
                     .closed = [](NodeHandlers::Link) {}};
  auto server = StoreServer::open(serving, {.listen = {"127.0.0.1", 0},
                                            .job_id = "job",
                                            .secret = Secret(std::string(32, 's')),
                                            .nodes = std::move(nodes)});
  REQUIRE(server);
  const auto endpoint = (*server)->endpoint();
  auto keep = asio::make_work_guard(serving);
  std::thread leader([&] { serving.run(); });

  // The first failure of a host with that secret.
  const auto failure_with = [&](char secret) {
    std::optional<LeaderLink::Failure> failure;
    LeaderLink link(loop, endpoint, {.purpose = Purpose::node, .job_id = "job", .who = "a test"},
                    Secret(std::string(32, secret)), seconds(60),
                    {.opened = [] {},
                     .message = [](std::string_view) {},
                     .lost = [](const std::string&) {},
                     .failed = [&](const LeaderLink::Failure& f) { failure = f; }});
    link.start();
    const auto until = steady_now() + seconds(20);
    while (!failure && steady_now() < until) loop.run_one_for(milliseconds(10));
    link.stop();
    return failure.value_or(LeaderLink::Failure{});
  };
  const auto wrong_secret = failure_with('x');
  CHECK(wrong_secret.why.find("secret") != std::string::npos);
  CHECK(wrong_secret.final);
  CHECK(!wrong_secret.refused);
  keep.reset();
  serving.stop();
  leader.join();
  server->reset();

  const auto closed_port = failure_with('s');
  CHECK(closed_port.refused);
  CHECK(!closed_port.final);
}

// A leader and what connects to it, each on a loop of its own.
struct LeaderAndPeer {
  explicit LeaderAndPeer(Duration lease = seconds(60))
      : links(loop, lease,
              {.opened = [this](NodeLinks::Link opened, const std::string&) { peer = opened; },
               .message =
                   [this](NodeLinks::Link, const NodeMessage& what) {
                     heard.push_back(what);
                     if (at_leader) at_leader(what);
                   },
               .closed = [](NodeLinks::Link) {}}) {
    auto found = StoreServer::open(loop, {.listen = {"127.0.0.1", 0},
                                          .job_id = "job",
                                          .secret = secret,
                                          .nodes = links.for_store()});
    REQUIRE(found);
    server = std::move(*found);
    links.serve(*server);
    link.emplace(other, server->endpoint(),
                 HandshakeIdentity{.purpose = Purpose::node, .job_id = "job", .who = "a test"},
                 secret, seconds(60),
                 LeaderLink::Handlers{.opened = [this] { ready = true; },
                                      .message =
                                          [this](std::string_view frame) {
                                            const auto what =
                                                decode_node_message(frame, steady_now());
                                            if (what) at_peer(*what);
                                          },
                                      .lost = [](const std::string&) {},
                                      .failed = [](const LeaderLink::Failure&) {}});
    link->start();
    run_until([this] { return peer != 0 && ready; });
    REQUIRE(ready);
  }
  void send(const NodeMessage& message) { link->send(encode(message, TimePoint())); }
  void run_until(const std::function<bool()>& comes_true, bool peer_runs = true) {
    const auto until = steady_now() + seconds(20);
    while (!comes_true() && steady_now() < until) {
      loop.run_one_for(milliseconds(1));
      if (peer_runs) other.run_one_for(milliseconds(1));
    }
  }

  const Secret secret{std::string(32, 's')};
  asio::io_context loop, other;
  NodeLinks links;
  std::unique_ptr<StoreServer> server;
  std::optional<LeaderLink> link;
  NodeLinks::Link peer = 0;  // the leader's name for the peer
  bool ready = false;
  std::vector<NodeMessage> heard;  // by the leader
  std::function<void(const NodeMessage&)> at_leader;
  std::function<void(const NodeMessage&)> at_peer = [](const NodeMessage&) {};
};

TEST_CASE("leader link: hearing out goes on where the loop has stopped reading") {
  constexpr std::size_t kFrames = 40, kSize = 1000;  // more than two reads
  LeaderAndPeer world;
  std::vector<std::string> sent, got;
  world.at_peer = [&](const NodeMessage& message) {
    if (const auto* input = std::get_if<NodeInput>(&message)) got.push_back(input->bytes);
  };
  for (std::size_t i = 0; i < kFrames; ++i) {
    std::string bytes = std::to_string(i);
    bytes.resize(kSize, '.');
    world.links.send(world.peer, NodeInput{bytes});
    sent.push_back(std::move(bytes));
  }
  world.loop.run_for(milliseconds(50));  // all of it is in the peer's socket
  const auto until = steady_now() + seconds(20);
  while (got.empty() && steady_now() < until) world.other.run_one_for(milliseconds(1));
  REQUIRE_FALSE(got.empty());
  CHECK(got.size() < kFrames);  // the loop has read once

  const auto heard_out = [&] {
    world.link->hear_out();
    return got.size() >= kFrames;
  };
  world.run_until(heard_out, false);
  CHECK(got == sent);
  world.other.run_for(milliseconds(20));
  CHECK(got.size() == kFrames);  // nothing comes twice
  world.link->stop();
}

TEST_CASE("node links: the end of a job waits for each host to close its end, or for a lease") {
  for (const bool leaves : {true, false}) {
    CAPTURE(leaves);
    constexpr auto kLease = seconds(2);
    LeaderAndPeer world(leaves ? seconds(60) : Duration(kLease));
    bool over = false, over_before = false;
    int exit_code = -1;
    world.at_peer = [&](const NodeMessage& message) {
      const auto* finish = std::get_if<NodeFinish>(&message);
      if (finish == nullptr) return;
      exit_code = finish->exit_code;
      over_before = over;
    };
    world.send(NodeJoin{.host = "host"});
    world.run_until([&] { return !world.heard.empty(); });
    REQUIRE_FALSE(world.heard.empty());
    const auto began = steady_now();
    world.links.send(world.peer, NodeFinish{.exit_code = 7});
    world.links.part_all([&] { over = true; });
    CHECK_FALSE(over);
    world.run_until([&] { return leaves ? exit_code >= 0 : over; }, leaves);
    if (leaves) {
      CHECK(exit_code == 7);
      CHECK_FALSE(over_before);
      world.link->stop();
      world.run_until([&] { return over; });
    } else {
      CHECK(steady_now() - began >= kLease);
    }
    CHECK(over);
    if (leaves) world.links.part_all([&] { over = false; });  // no peer is left
    CHECK(over != leaves);
  }
}

TEST_CASE("node links: a host of another build is heard, and so can be refused in words") {
  LeaderAndPeer world;
  const NodeJoin join{.host = "host", .build = wire_fingerprint() + 1};
  const std::string frame = encode(join, TimePoint());
  Writer longer;
  longer.put_string(frame.substr(4) + "a member that this build does not know");
  world.link->send(longer.bytes());
  world.run_until([&] { return !world.heard.empty(); });
  REQUIRE_FALSE(world.heard.empty());
  REQUIRE(std::holds_alternative<NodeJoin>(world.heard[0]));
  CHECK(std::get<NodeJoin>(world.heard[0]).host == "host");
  world.link->stop();
}

TEST_CASE("node links: a question that comes while the job ends gets its answer") {
  LeaderAndPeer world;
  world.at_leader = [&](const NodeMessage& message) {
    REQUIRE(std::holds_alternative<NodeAsks>(message));
    world.links.send(world.peer, NodeAnswers{.part = "the end", .last = true});
    world.links.close(world.peer);
  };
  std::string answer;
  world.at_peer = [&](const NodeMessage& message) {
    if (const auto* part = std::get_if<NodeAnswers>(&message)) answer = part->part;
  };
  bool over = false;
  world.links.part_all([&] { over = true; });
  CHECK(over);  // no host is left
  world.send(NodeAsks{"the end?"});
  world.run_until([&] { return !answer.empty(); });
  CHECK(answer == "the end");
  world.link->stop();
}

}  // namespace
}  // namespace dlaunch
