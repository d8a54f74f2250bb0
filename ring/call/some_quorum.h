// SomeQuorum: decides for each dl_all_reduce_some() whose contributions are in. One rank has it,
// and hears of every rank's arrival in every call. Pure. It needs no clock: a rank that waits in a
// call says so when its time is up.
//
// A call is decided once all ranks have come. It is also decided once three things hold: `need`
// ranks have come with contributions, some rank in the call has waited for its time, and no rank is
// more than `max_behind` calls behind this one. Calls are decided one after the other, because a
// rank enters a call only after it has got the decision on the one before.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ring/call/plane.h"

namespace dlaunch {

// A rank comes to a call, or says there that it has waited.
struct SomeArrival {
  std::uint64_t number = 0;         // of the call among those of its kind, from 1
  std::uint32_t contributions = 0;  // 0: the rank only takes the result
  std::uint32_t need = 1;
  std::uint32_t max_behind = 0;
  bool waited = false;
  CallSignature call = {};  // what all ranks must have in common, `need` and `max_behind` included
  bool operator==(const SomeArrival&) const = default;
};

// By rank: how many of its contributions are in. 0: it is late, or gives nothing.
using SomeGiven = std::vector<std::uint32_t>;

struct SomeDecision {
  std::uint64_t number = 0;
  SomeGiven given;
};

// The text of their link frames; the number goes beside it.
inline constexpr std::size_t kArrivalBytes = 4 + 4 + 4 + 1 + 8 + 4 + 4;
std::string encode(const SomeArrival& arrival);
std::optional<SomeArrival> arrival_in(std::string_view text, std::uint64_t number);
inline constexpr std::size_t kGivenBytes = 4;  // of each rank
std::string encode(const SomeGiven& given);
std::optional<SomeGiven> given_in(std::string_view text, int ranks);
// A decision for more ranks does not fit into a frame.
inline constexpr int kMostSomeRanks = 0xffff / kGivenBytes;
// Of one rank in a call: the sum over all ranks is an int.
constexpr std::uint32_t most_contributions(int ranks) {
  return static_cast<std::uint32_t>(std::numeric_limits<int>::max() / ranks);
}

class SomeQuorum {
 public:
  explicit SomeQuorum(int ranks)
      : reached_(static_cast<std::size_t>(ranks)), given_(static_cast<std::size_t>(ranks)) {}

  // Errc::mismatch: the rank's call is not that of the others. Errc::protocol: a rank cannot be
  // there, or no call has such terms.
  Result<std::optional<SomeDecision>> arrive(int rank, const SomeArrival& arrival);

 private:
  struct Called {
    int rank;  // the first to come
    CallSignature call;
  };

  bool sound(const SomeArrival& arrival) const;
  Result<void> compare(int rank, const SomeArrival& arrival);
  std::optional<SomeDecision> decide();

  std::uint64_t open_ = 1;              // the call that is not decided yet
  std::vector<std::uint64_t> reached_;  // by rank: its last call
  // In the open call.
  SomeGiven given_;
  std::uint32_t need_ = 1, max_behind_ = 0;
  bool waited_ = false;
  // The calls that not all ranks have reached, the last one of them open_, once a rank is there.
  std::deque<Called> called_;
  std::uint64_t first_called_ = 1;
};

}  // namespace dlaunch
