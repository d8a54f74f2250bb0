// RankAddress: what a rank publishes in the store for the others: where it listens, and what all
// ranks must have in common. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/contract.h"
#include "base/result.h"
#include "ring/links/connections.h"

namespace dlaunch {

struct RankAddress {
  Connections::Target at;
  int ranks = 0;  // in the world that it knows
  std::string plan;
  LinkChoice links = LinkChoice::automatic;
  VerifyMode verify = VerifyMode::off;
};

std::string encode(const RankAddress& address);
Result<RankAddress> decode_rank_address(std::string_view bytes);

// Errc::mismatch, in words for rank `own`, which has read the address of another rank.
Result<void> check_common(const RankAddress& own, const RankAddress& other, int other_rank);

}  // namespace dlaunch
