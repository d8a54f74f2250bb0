#include "launcher/wire/leader_link.h"

#include <atomic>
#include <optional>
#include <thread>

#include <asio/post.hpp>
#include <doctest/doctest.h>

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

TEST_CASE("node links: the end of a job waits for each host to close its end, or for a lease") {
  for (const bool leaves : {true, false}) {
    CAPTURE(leaves);
    const Secret secret(std::string(32, 's'));
    asio::io_context loop;
    NodeLinks::Link host = 0;
    constexpr auto kLease = milliseconds(400);
    NodeLinks links(loop, leaves ? seconds(60) : Duration(kLease),
                    {.opened = [](NodeLinks::Link, const std::string&) {},
                     .message = [&](NodeLinks::Link link, const NodeMessage&) { host = link; },
                     .closed = [](NodeLinks::Link) {}});
    auto server = StoreServer::open(loop, {.listen = {"127.0.0.1", 0},
                                           .job_id = "job",
                                           .secret = secret,
                                           .nodes = links.for_store()});
    REQUIRE(server);
    links.serve(**server);
    bool over = false, over_before = false;
    int exit_code = -1;
    asio::io_context other;
    LeaderLink link(
        other, (*server)->endpoint(), {.purpose = Purpose::node, .job_id = "job", .who = "a test"},
        secret, seconds(60),
        {.opened = [&] { link.send(encode(NodeMessage(NodeJoin{.host = "host"}), TimePoint())); },
         .message =
             [&](std::string_view frame) {
               const auto message = decode_node_message(frame, steady_now());
               const auto* finish = message ? std::get_if<NodeFinish>(&*message) : nullptr;
               if (finish == nullptr) return;
               exit_code = finish->exit_code;
               over_before = over;
             },
         .lost = [](const std::string&) {},
         .failed = [](const LeaderLink::Failure&) {}});
    link.start();
    const auto until = steady_now() + seconds(20);
    const auto run_until = [&](const auto& comes_true) {
      while (!comes_true() && steady_now() < until) {
        loop.run_one_for(milliseconds(1));
        if (leaves || host == 0) other.run_one_for(milliseconds(1));
      }
    };
    run_until([&] { return host != 0; });
    REQUIRE(host != 0);
    const auto began = steady_now();
    links.send(host, NodeFinish{.exit_code = 7});
    links.part_all([&] { over = true; });
    CHECK_FALSE(over);
    run_until([&] { return leaves ? exit_code >= 0 : over; });
    if (leaves) {
      CHECK(exit_code == 7);
      CHECK_FALSE(over_before);
      link.stop();
      run_until([&] { return over; });
    } else {
      CHECK(steady_now() - began >= kLease);
    }
    CHECK(over);
    if (leaves) links.part_all([&] { over = false; });  // no peer is left
    CHECK(over != leaves);
  }
}

TEST_CASE("node links: a question that comes while the job ends gets its answer") {
  const Secret secret(std::string(32, 's'));
  asio::io_context loop, other;
  NodeLinks::Link opened = 0;
  NodeLinks* leader = nullptr;
  NodeLinks links(loop, seconds(60),
                  {.opened = [&](NodeLinks::Link link, const std::string&) { opened = link; },
                   .message =
                       [&](NodeLinks::Link link, const NodeMessage& message) {
                         REQUIRE(std::holds_alternative<NodeAsks>(message));
                         leader->send(link, NodeAnswers{.part = "the end", .last = true});
                         leader->close(link);
                       },
                   .closed = [](NodeLinks::Link) {}});
  leader = &links;
  auto server = StoreServer::open(
      loop,
      {.listen = {"127.0.0.1", 0}, .job_id = "job", .secret = secret, .nodes = links.for_store()});
  REQUIRE(server);
  links.serve(**server);
  std::string answer;
  bool ready = false;
  LeaderLink link(other, (*server)->endpoint(),
                  {.purpose = Purpose::node, .job_id = "job", .who = "a test"}, secret, seconds(60),
                  {.opened = [&] { ready = true; },
                   .message =
                       [&](std::string_view frame) {
                         const auto message = decode_node_message(frame, steady_now());
                         const auto* part = message ? std::get_if<NodeAnswers>(&*message) : nullptr;
                         if (part != nullptr) answer = part->part;
                       },
                   .lost = [](const std::string&) {},
                   .failed = [](const LeaderLink::Failure&) {}});
  link.start();
  const auto until = steady_now() + seconds(20);
  const auto run_until = [&](const auto& comes_true) {
    while (!comes_true() && steady_now() < until) {
      loop.run_one_for(milliseconds(1));
      other.run_one_for(milliseconds(1));
    }
  };
  run_until([&] { return opened != 0 && ready; });
  bool over = false;
  links.part_all([&] { over = true; });
  CHECK(over);  // no host is left
  link.send(encode(NodeMessage(NodeAsks{"the end?"}), TimePoint()));
  run_until([&] { return !answer.empty(); });
  CHECK(answer == "the end");
  link.stop();
}

}  // namespace
}  // namespace dlaunch
