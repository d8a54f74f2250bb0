// The nodes of all ranks, and the address of the server for a rank.
#include "launcher/node/mpi/pmix_job.h"

#include <map>

#include <doctest/doctest.h>

using namespace dlaunch;

TEST_CASE("pmix job: an order is read as it was written, and malformed ones are refused") {
  PmixOrder order;
  order.nspace = "dlaunch-j-40000-2";
  order.listener = 7;
  order.round = 2;
  order.size = 5;
  order.node_rank = 1;
  order.nodes = 3;
  order.host = "host1";
  order.ranks = {4, 1};
  order.folder = "/tmp/job/mpi.2";
  order.job_id = "j";
  order.store_url = "tcp://host0:29400";
  order.secret_file = "/tmp/job/secret";
  order.tls = true;
  const std::string bytes = encode_order(order);
  const auto read = decode_order(bytes);
  REQUIRE(read);
  CHECK(encode_order(*read) == bytes);
  CHECK(read->ranks == order.ranks);
  CHECK(read->secret_file == order.secret_file);
  CHECK(read->nodes == 3);
  CHECK(read->tls);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(decode_order(std::string_view(bytes).substr(0, size)));
  }
  CHECK_FALSE(decode_order(bytes + "x"));
}

TEST_CASE("pmix job: nodes have just the ranks of the round, each once") {
  const auto checked = [](std::vector<PmixNode> nodes, int size) {
    return check_nodes(nodes, size).has_value();
  };
  CHECK(checked({{"a", {0, 3}}, {"b", {1, 2}}}, 4));
  CHECK_FALSE(checked({{"a", {0, 3}}, {"b", {1}}}, 4));
  CHECK_FALSE(checked({{"a", {0, 1}}, {"b", {1}}}, 2));
  CHECK_FALSE(checked({{"a", {0, 0}}}, 2));
  CHECK(checked({{"a", {0}, "4.2.2"}, {"b", {1}, "4.1.0"}}, 2));
  std::vector<PmixNode> mixed = {{"a", {0}, "4.2.2"}, {"b", {1}, "5.0.7"}};
  const auto refused = check_nodes(mixed, 2);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().what ==
        "a has libpmix 4.2.2 and b has 5.0.7: all hosts need one of the same major version");

  CHECK(decode_node(encode_node({"a", {0, 3}, "4.2.2"}), 4)->pmix_version == "4.2.2");
  CHECK_FALSE(decode_node(encode_node({"a", {0, 3}}), 3));
  CHECK_FALSE(decode_node(encode_node({"a", {-1}}), 3));
  CHECK_FALSE(decode_node(encode_node({"a,b", {0}}), 3));
  CHECK_FALSE(decode_node(encode_node({"", {0}}), 3));
  CHECK_FALSE(decode_node("", 3));
}

TEST_CASE("pmix job: maps of the ranks of each node") {
  std::vector<PmixNode> nodes = {{"vm", {0, 2}}, {"vm", {1}}, {"c", {3}}};
  REQUIRE(check_nodes(nodes, 4));
  CHECK(host_list(nodes) == "vm,vm-node1,c");  // two agents of one machine are two nodes
  CHECK(rank_lists(nodes) == "0,2;1;3");
  CHECK(nodes_with(nodes, {}) == std::vector{0, 1, 2});
  CHECK(nodes_with(nodes, {2, 3}) == std::vector{0, 2});
  CHECK(nodes_with(nodes, {1}) == std::vector{1});
}

TEST_CASE("pmix job: a rank learns the protocols that its host's library speaks") {
  const auto names = [](const std::string& text) {
    PmixOrder order;
    order.nspace = "n";
    order.node_rank = 3;
    std::map<std::string, std::string> all;
    for (const auto& [name, value] : pmix_environment(order, 5, 1234, pmix_version_in(text))) {
      all[name] = value;
    }
    CHECK(all["PMIX_RANK"] == "5");
    CHECK(all["PMIX_SERVER_URI3"] == "dlaunch-server.3;tcp4://127.0.0.1:1234");
    return all;
  };
  auto v3 = names("OpenPMIx 3.2.5");
  CHECK_FALSE(v3.contains("PMIX_SERVER_URI4"));
  CHECK(v3["PMIX_PTL_MODULE"] == "tcp");
  CHECK(names("OpenPMIx 4.0.0").contains("PMIX_SERVER_URI4"));
  CHECK_FALSE(names("OpenPMIx 4.0.0").contains("PMIX_SERVER_URI41"));
  auto v5 = names("OpenPMIx 5.0.7 (PMIx Standard: 4.1)");
  CHECK(v5["PMIX_SERVER_URI41"] == v5["PMIX_SERVER_URI3"]);
  CHECK(v5["PMIX_VERSION"] == "5.0.7");
  CHECK_FALSE(v5.contains("PMIX_SERVER_URI51"));
  CHECK_FALSE(v5.contains("PMIX_PTL_MODULE"));
  CHECK(names("OpenPMIx 6.0.0").contains("PMIX_SERVER_URI51"));

  CHECK(pmix_version_in("OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2)").text == "4.2.2");
  CHECK(pmix_version_in("OpenPMIx 10.1").major == 10);
  CHECK(pmix_version_in("none").major == 0);
}

TEST_CASE("pmix job: where the library listens") {
  CHECK(pmix_port_in({"PMIX_RANK=0", "PMIX_SERVER_URI2=s.0;tcp4://127.0.0.1:4711"}) == 4711);
  CHECK_FALSE(pmix_port_in({"PMIX_SERVER_URI2=s.0;tcp4://10.0.0.1:4711"}));
  CHECK_FALSE(pmix_port_in({"PMIX_SERVER_URI2=s.0;tcp4://127.0.0.1:70000"}));
  CHECK_FALSE(pmix_port_in({"OTHER=;tcp4://127.0.0.1:4711"}));
}

TEST_CASE("pmix job: a round's name has only letters, is unique, and cannot be guessed") {
  const Secret secret("of this job"), other("of another");
  const auto name = nspace_of("my job/1", 40000, 2, secret);
  const std::string open = "dlaunch-my-job-1-40000-2-";
  REQUIRE(name.size() == open.size() + 32);
  CHECK(name.starts_with(open));
  CHECK(name.find_first_not_of("0123456789abcdef", open.size()) == name.npos);
  CHECK(name == nspace_of("my job/1", 40000, 2, secret));
  CHECK(name != nspace_of("my job/1", 40000, 2, other));
  CHECK(name.substr(open.size()) != nspace_of("my job/1", 40000, 3, secret).substr(open.size()));
  CHECK(nspace_of(std::string(1000, 'x'), 65535, 1 << 30, secret).size() < 128);
}
