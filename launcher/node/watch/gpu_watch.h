// GpuWatch: figures of this host's GPUs for people who watch a job. A process of its own queries
// NVML, started for each query, so that a driver in trouble blocks only that process. One thread,
// the loop's.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <vector>

#include <asio/io_context.hpp>

#include "launcher/node/watch/gpu_asks.h"
#include "launcher/node/watch/gpu_figures.h"
#include "launcher/process/command.h"

namespace dlaunch {

// The word on that process's command line.
inline constexpr const char* kGpuFiguresWord = "gpu-figures";
// That process's work. Returns its exit code.
int run_gpu_figures();

class GpuWatch {
 public:
  GpuWatch(asio::io_context& loop, std::set<pid_t>& helpers) : command_(loop, helpers) {}

  // The newest figures so far, while newer ones are fetched; empty if NVML is missing, or does not
  // work at present. nullopt: the first have not come yet.
  const std::optional<std::vector<GpuFigures>>& look();

 private:
  void take(const Command::End& end);

  Command command_;
  GpuAsks asks_;
  std::optional<std::vector<GpuFigures>> newest_;
  TimePoint newest_at_{};
};

}  // namespace dlaunch
