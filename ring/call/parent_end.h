// ParentEnd: shows a group's bootstrap that the parent communicator has ended, with ranks in the
// group's numbers.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/result.h"
#include "ring/call/abort_flag.h"

namespace dlaunch {

class ParentEnd {
 public:
  // flag: the parent's, which must outlive this; ranks: the group's ranks in the parent's numbers.
  // Empty: the same numbers.
  explicit ParentEnd(const AbortFlag& flag, std::vector<int> ranks = {})
      : flag_(flag), ranks_(std::move(ranks)) {}

  bool raised() const { return flag_.raised(); }
  // Call it only after raised() was true. A rank outside the group is -1.
  Error error() const {
    Error error = flag_.error();
    if (ranks_.empty()) return error;
    const auto found = std::find(ranks_.begin(), ranks_.end(), error.rank);
    error.rank = found == ranks_.end() ? -1 : static_cast<int>(found - ranks_.begin());
    return error;
  }

 private:
  const AbortFlag& flag_;
  const std::vector<int> ranks_;
};

}  // namespace dlaunch
