#include "launcher/node/mpi/pmix_job.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/record.h"
#include "base/text.h"

namespace dlaunch {
namespace {

constexpr RecordLimits kPmixLimits{.text = 4096, .items = 1 << 20};
constexpr std::size_t kMostOfJobId = 64;   // in a name of at most 255 bytes
constexpr std::size_t kSecretDigits = 32;  // 128 bits

Result<void> check_versions(const std::vector<PmixNode>& nodes) {
  for (const auto& node : nodes) {
    const auto& first = nodes.front();
    if (pmix_version_in(node.pmix_version).major == pmix_version_in(first.pmix_version).major) {
      continue;
    }
    return Error{.code = Errc::unsupported,
                 .what = fmt::format("{} has libpmix {} and {} has {}: all hosts need one of the "
                                     "same major version",
                                     escaped(first.host), escaped(first.pmix_version),
                                     escaped(node.host), escaped(node.pmix_version))};
  }
  return {};
}

}  // namespace

std::string encode_order(const PmixOrder& order) { return encode_record(order, kPmixLimits); }

Result<PmixOrder> decode_order(std::string_view bytes) {
  PmixOrder order;
  if (decode_record(bytes, order, kPmixLimits)) return order;
  return protocol_error("an order for a PMIx server is malformed");
}

std::string encode_node(const PmixNode& node) { return encode_record(node, kPmixLimits); }

Result<PmixNode> decode_node(std::string_view bytes, int size) {
  PmixNode node;
  const bool whole = decode_record(bytes, node, kPmixLimits);
  const bool plausible =
      std::ranges::all_of(node.ranks, [&](int rank) { return rank >= 0 && rank < size; });
  // In a list of hosts such a name would mean several hosts, or none.
  const bool named = !node.host.empty() && node.host.find_first_of(",;[]") == node.host.npos;
  if (!whole || !plausible || !named) {
    return protocol_error("another node sent malformed data about its ranks");
  }
  return node;
}

Result<void> check_nodes(std::vector<PmixNode>& nodes, int size) {
  if (auto ok = check_versions(nodes); !ok) return ok;
  std::vector<bool> seen(static_cast<std::size_t>(size));
  std::map<std::string, int> names;
  std::size_t all = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const int rank : nodes[i].ranks) {
      seen[static_cast<std::size_t>(rank)] = true;
      ++all;
    }
    if (++names[nodes[i].host] > 1) nodes[i].host += fmt::format("-node{}", i);
  }
  if (all == seen.size() && std::ranges::find(seen, false) == seen.end()) return {};
  return protocol_error(fmt::format("the nodes have other ranks than 0 to {}", size - 1));
}

std::string joined(const std::vector<int>& ranks) {
  return fmt::format("{}", fmt::join(ranks, ","));
}

std::string host_list(const std::vector<PmixNode>& nodes) {
  std::string list;
  for (const auto& node : nodes) list += (list.empty() ? "" : ",") + node.host;
  return list;
}

std::string rank_lists(const std::vector<PmixNode>& nodes) {
  std::string lists;
  for (const auto& node : nodes) lists += (lists.empty() ? "" : ";") + joined(node.ranks);
  return lists;
}

std::vector<int> nodes_with(const std::vector<PmixNode>& nodes, const std::vector<int>& ranks) {
  std::vector<int> found;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto& own = nodes[i].ranks;
    const bool has = ranks.empty() || std::find_first_of(own.begin(), own.end(), ranks.begin(),
                                                         ranks.end()) != own.end();
    if (has) found.push_back(static_cast<int>(i));
  }
  return found;
}

pmix::Proc proc_of(const PmixOrder& order, int rank) {
  pmix::Proc proc{};
  order.nspace.copy(proc.nspace, sizeof proc.nspace - 1);
  proc.rank = static_cast<pmix::Rank>(rank);
  return proc;
}

PmixVersion pmix_version_in(const std::string& text) {
  const char* at = std::strpbrk(text.c_str(), "0123456789");
  if (at == nullptr) return {};
  PmixVersion version;
  version.text.assign(at, std::strspn(at, "0123456789."));
  char* end = nullptr;
  version.major = static_cast<int>(std::strtol(at, &end, 10));
  if (*end == '.') version.minor = static_cast<int>(std::strtol(end + 1, &end, 10));
  return version;
}

std::optional<std::uint16_t> pmix_port_in(const std::vector<std::string>& environment) {
  constexpr std::string_view kBefore = ";tcp4://127.0.0.1:";
  for (const auto& item : environment) {
    const auto at = item.find(kBefore);
    if (!item.starts_with("PMIX_SERVER_URI") || at == item.npos) continue;
    const int port = std::atoi(item.c_str() + at + kBefore.size());
    if (port > 0 && port <= UINT16_MAX) return static_cast<std::uint16_t>(port);
  }
  return {};
}

// A rank takes the newest of the protocols that it knows. Open MPI 4 accepts a server only if it
// knows the launcher: that variable names one for which it only leaves the ranks' binding alone.
Variables pmix_environment(const PmixOrder& order, int rank, std::uint16_t port,
                           const PmixVersion& version) {
  const std::string uri =
      fmt::format("{}.{};tcp4://127.0.0.1:{}", kPmixServerName, order.node_rank, port);
  Variables all = {{"PMIX_NAMESPACE", order.nspace},
                   {"PMIX_RANK", std::to_string(rank)},
                   {"PMIX_SERVER_URI2", uri},
                   {"PMIX_SERVER_URI21", uri},
                   {"PMIX_SERVER_URI3", uri},
                   {"PMIX_SECURITY_MODE", "native"},
                   {"PMIX_BFROP_BUFFER_TYPE", "PMIX_BFROP_BUFFER_NON_DESC"},
                   {"PMIX_GDS_MODULE", "hash"},
                   {"PMIX_HOSTNAME", order.host},
                   {"PMIX_VERSION", version.text},
                   {"JSM_JSRUN_PORT", std::to_string(port)}};
  const PmixVersion v4{4, 0, {}}, v41{4, 1, {}}, v51{5, 1, {}};
  if (version < v4) all.emplace_back("PMIX_PTL_MODULE", "tcp");
  if (version >= v4) all.emplace_back("PMIX_SERVER_URI4", uri);
  if (version >= v41) all.emplace_back("PMIX_SERVER_URI41", uri);
  if (version >= v51) all.emplace_back("PMIX_SERVER_URI51", uri);
  return all;
}

std::string pmix_keys(int round) { return fmt::format("pmix/r{}/", round); }

std::string nspace_of(const std::string& job_id, int master_port, int round, const Secret& secret) {
  std::string job = job_id.substr(0, kMostOfJobId);
  std::ranges::replace_if(
      job, [](unsigned char c) { return std::isalnum(c) == 0; }, '-');
  const auto name = fmt::format("dlaunch-{}-{}-{}", job, master_port, round);
  const Mac mac = secret.mac("PMIx " + name);
  return fmt::format("{}-{}", name, sha256_hex({mac.data(), mac.size()}).substr(0, kSecretDigits));
}

}  // namespace dlaunch
