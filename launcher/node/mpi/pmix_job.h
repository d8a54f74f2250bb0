// The order to a node's PMIx server for a round, and the data that the servers of the nodes
// exchange. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/secret.h"
#include "launcher/node/mpi/pmix_abi.h"

namespace dlaunch {

// From the agent to the server process that it starts.
struct PmixOrder {
  std::string nspace;  // the round's name among MPI libraries
  int listener = -1;   // inherited: the socket to which ranks connect
  int round = 1;
  int size = 1;  // ranks of the round
  int node_rank = 0;
  int nodes = 1;
  std::string host;
  std::vector<int> ranks;             // of this node, by local rank
  std::vector<std::string> programs;  // the ranks of each, "0-3,5"; empty: there is one
  std::string folder;                 // private, its own
  std::string job_id;
  std::string store_url;
  std::string secret_file;  // "": there is none
  bool tls = false;
};
std::string encode_order(const PmixOrder& order);
Result<PmixOrder> decode_order(std::string_view bytes);

// A node with its ranks, as the nodes exchange it.
struct PmixNode {
  std::string host;
  std::vector<int> ranks;         // by local rank
  std::string pmix_version = {};  // "4.2.2"
};
std::string encode_node(const PmixNode& node);
// Errc::protocol: it makes no sense for a round of this size.
Result<PmixNode> decode_node(std::string_view bytes, int size);

// By node rank. Hosts that share a name, as several agents of one machine do, get a number behind
// it: they are separate nodes. Error: the ranks are not exactly those of a round of this size, or
// the libraries' versions do not understand each other.
Result<void> check_nodes(std::vector<PmixNode>& nodes, int size);

// "host1,host2" and "0,1;2,3", from which PMIx makes its maps.
std::string host_list(const std::vector<PmixNode>& nodes);
std::string rank_lists(const std::vector<PmixNode>& nodes);
std::string joined(const std::vector<int>& ranks);

// The nodes that have one of the ranks; all nodes if `ranks` is empty.
std::vector<int> nodes_with(const std::vector<PmixNode>& nodes, const std::vector<int>& ranks);

pmix::Proc proc_of(const PmixOrder& order, int rank);

struct PmixVersion {
  int major = 0, minor = 0;
  std::string text;  // "4.2.2"
  auto operator<=>(const PmixVersion& other) const {
    return std::pair(major, minor) <=> std::pair(other.major, other.minor);
  }
};
// Parses the text of PMIx_Get_version(): "OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2, …)". 0.0: it has
// no version.
PmixVersion pmix_version_in(const std::string& text);

// -- How a rank finds the server. PMIx calls the one on a node by this name and the node's rank.
inline constexpr const char* kPmixServerName = "dlaunch-server";
// The port on 127.0.0.1 in the environment that the library wants for a rank.
std::optional<std::uint16_t> pmix_port_in(const std::vector<std::string>& environment);
// That environment, with another port.
using Variables = std::vector<std::pair<std::string, std::string>>;
Variables pmix_environment(const PmixOrder& order, int rank, std::uint16_t port,
                           const PmixVersion& version);
// The prefix of the keys in the store by which the nodes exchange data in a round.
std::string pmix_keys(int round);
// A round's name, the same on all its nodes. No two jobs on a host have the same name at a time.
// It cannot be guessed without the job's secret: any process that knows it counts as a rank.
std::string nspace_of(const std::string& job_id, int master_port, int round, const Secret& secret);

}  // namespace dlaunch
