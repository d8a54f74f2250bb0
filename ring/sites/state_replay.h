// StateReplay: computes the outer state of a site again from its journal
// (ring/sites/site_journal.h) with the arithmetic of the training. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ring/compress/outer_state.h"
#include "ring/sites/outer_merge.h"
#include "ring/sites/site_journal.h"

namespace dlaunch {

class StateReplay {
 public:
  // The replay goes on from this state.
  Result<void> snapshot(const JournalSnapshot& snapshot);
  // The hash of the state after the merge; nothing: there is no state to begin from.
  Result<std::optional<std::uint64_t>> merge(const Merge& merge,
                                             const std::vector<std::string_view>& payloads,
                                             const std::vector<std::string>& names);
  // Now; nothing: there was no snapshot.
  std::optional<std::uint64_t> hash() const;

 private:
  std::vector<float> tensor_;
  std::unique_ptr<OuterState> state_;
  WireCodec codec_ = WireCodec::none;
  std::uint64_t common_ = 0;
};

}  // namespace dlaunch
