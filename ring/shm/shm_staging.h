// Where the ranks of a call in blocks stage what they give; see shm_engine.h.
#pragma once

#include "ring/shm/shm_engine.h"

namespace dlaunch {

// Borrows what this call needs of the host's memory, and gives it back at its end. Who knows what
// it was needed for says whether the call went well.
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
