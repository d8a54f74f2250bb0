// NCCL called by itself, on the buffers that libdlring is given: what a call of ours costs more.
// Found at run time, like the CUDA driver.
#pragma once

#include <memory>
#include <string>

#include <dlaunch/ring.h>

#include "cli/bench/bench_case.h"

namespace bench {

class NcclDirect {
 public:
  // The kinds that are one function of NCCL.
  static bool has(Kind kind);

  // Collective; after use_gpu(). Null: `text` says why, the same on all ranks; else the version.
  static std::unique_ptr<NcclDirect> start(dl_comm* comm, std::string& text);
  ~NcclDirect();
  NcclDirect(const NcclDirect&) = delete;
  NcclDirect& operator=(const NcclDirect&) = delete;

  // Whether it has the op, too.
  bool serves(const Case& c) const;
  // Puts it in the legacy default stream: await_gpu() waits for it. Throws std::runtime_error in
  // NCCL's words.
  void put(const Case& c, const void* in, void* out);

 private:
  explicit NcclDirect(void* comm) : comm_(comm) {}
  void* const comm_;
};

}  // namespace bench
