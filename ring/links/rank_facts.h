// RankFacts: what ranks tell each other when they agree during the bootstrap: where others find
// them, and that by which all of them plan alike. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ring/kernels/wire_codec.h"
#include "ring/links/connections.h"

namespace dlaunch {

struct RankFacts {
  int rank = 0;
  std::uint64_t host = 0;  // the same for ranks that may share memory
  WireCodec codec = WireCodec::none;
  Duration round_trip{};  // the longest to another host that it knows; zero: none
  std::string rack = {};  // as for rack_groups(); "": it does not know
  Connections::Target at{};

  bool operator==(const RankFacts&) const = default;
};

// Encoded facts of several ranks may follow each other, in any order.
std::string encode(const RankFacts& facts);
// Those of ranks 0 to ranks - 1, by rank. Errc::protocol: a rank is missing, or said twice, or the
// bytes make no sense.
Result<std::vector<RankFacts>> decode_rank_facts(std::string_view bytes, int ranks);
// More than the facts of one rank take.
inline constexpr std::size_t kMostFactsBytes = 1536;

// The lowest rank on each rank's host.
std::vector<int> first_on_host(const std::vector<RankFacts>& facts);

// A number for this host and user: ranks with the same one can pass descriptors to each other. It
// stands for a boot of a kernel, a host name, a network namespace and a user.
std::uint64_t own_host_number();

}  // namespace dlaunch
