// Nodes exchange texts of any length through a store.
#include "launcher/node/mpi/node_exchange.h"

#include <atomic>
#include <thread>

#include <doctest/doctest.h>

#include "tests/unit/temp_folder.h"

using namespace dlaunch;

namespace {

NodeExchange::Request of_node(const TempFolder& folder, int node, std::string text) {
  NodeExchange::Request request{.store_url = folder.url(),
                                .key = "r1/1/",
                                .node = node,
                                .others = {},
                                .text = std::move(text)};
  for (int other = 0; other < 3; ++other) {
    if (other != node) request.others.push_back(other);
  }
  return request;
}

const StoreOptions kOfTest{.job_id = "j", .secret = {}, .who = "a test"};

}  // namespace

TEST_CASE("node exchange: short, empty and long texts") {
  const TempFolder folder;
  const std::vector<std::string> texts = {"short", "", std::string(3 << 20, 'x') + "end"};
  std::vector<std::thread> nodes;
  std::atomic<int> right = 0;
  for (int node = 0; node < 3; ++node) {
    nodes.emplace_back([&, node] {
      auto others = texts;
      others.erase(others.begin() + node);
      NodeExchange exchange(kOfTest);
      const auto heard = exchange.run(of_node(folder, node, texts[static_cast<std::size_t>(node)]),
                                      [](int) { return false; });
      if (heard && *heard == others) ++right;
    });
  }
  for (auto& node : nodes) node.join();
  CHECK(right == 3);
}

TEST_CASE("node exchange: a wait in vain can be ended, and texts are removed") {
  const TempFolder folder;
  NodeExchange exchange(kOfTest);
  int asked = 0;
  const auto heard = exchange.run(of_node(folder, 0, "text"), [&](int whom) {
    CHECK(whom == 1);
    return ++asked == 2;
  });
  REQUIRE_FALSE(heard);
  CHECK(heard.error().code == Errc::aborted);
  auto store = open_store(folder.url(), kOfTest, steady_now() + std::chrono::seconds(30));
  REQUIRE(store);
  const auto there = [&] {
    return (*store)->try_get("r1/1/0/0", steady_now() + std::chrono::seconds(30))->has_value();
  };
  CHECK(there());
  exchange.forget("r1/1/", 0);
  CHECK_FALSE(there());
}
