// LateSource: makes a link when a rank first needs one, and takes those that other ranks make. Only
// the thread of a trunk and its senders use it, under its lock.
#pragma once

#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

class LateSource {
 public:
  // A link to a rank; an empty one: the rank can no longer be reached.
  using Made = std::vector<std::pair<int, UniqueFd>>;

  virtual ~LateSource() = default;
  // Readable when accept() may find a link.
  virtual int descriptor() const = 0;
  // A link to the rank. os_errno of the error: EAGAIN if it comes later, from accept() or another
  // call of this, ECONNREFUSED if the rank's process has ended. May run beside accept().
  virtual Result<UniqueFd> connect(int rank) = 0;
  // The links that have been made, with their ranks. Call it from time to time, too: it may have
  // lacked room for a descriptor.
  virtual Made accept() = 0;
  // In a forked child: closes the descriptors, and leaves alone what the parent's thread may have
  // been changing.
  virtual void close_in_child() = 0;
};

}  // namespace dlaunch
