// NCCL called directly, on libdlring's buffers: shows the overhead of our calls. Found at run
// time, like the CUDA driver.
#pragma once

#include <memory>
#include <string>

#include <dlaunch/ring.h>

#include "cli/bench/bench_case.h"

namespace bench {

class NcclDirect {
 public:
  // The kinds that are a single function of NCCL.
  static bool has(Kind kind);

  // Collective; call it after use_gpu(). Null: `text` says why, the same on all ranks; else it is
  // the version.
  static std::unique_ptr<NcclDirect> start(dl_comm* comm, std::string& text);
  ~NcclDirect();
  NcclDirect(const NcclDirect&) = delete;
  NcclDirect& operator=(const NcclDirect&) = delete;

  // Whether NCCL has the case, including the op.
  bool serves(const Case& c) const;
  // Queues it in the legacy default stream: await_gpu() waits for it. Throws std::runtime_error
  // with NCCL's text.
  void put(const Case& c, const void* in, void* out);

 private:
  explicit NcclDirect(void* comm) : comm_(comm) {}
  void* const comm_;
};

}  // namespace bench
