// Staging places of the ranks of a call in blocks; see shm_engine.h.
#pragma once

#include "ring/shm/shm_engine.h"

namespace dlaunch {

// Borrows what this call needs of the host's memory, and gives it back at its end. The user of the
// memory reports whether the call succeeded.
class ShmPlane::Loans {
 public:
  Loans(ShmPlane& plane, bool reduces);
  ~Loans();
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;

  Result<void> borrow();
  void went_well();

 private:
  StagingPool& pair_pool() const;

  ShmPlane& plane_;
  const bool reduces_;
  const bool uses_pair_;
  bool has_staging_ = false, has_pair_ = false;
  bool well_ = false;
};

}  // namespace dlaunch
