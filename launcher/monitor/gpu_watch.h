// GpuWatch: figures of this host's GPUs for those who watch a job, as NVML tells them to a process
// that this one starts each time somebody asks: a driver in trouble holds up nobody else. One
// thread, the loop's.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <vector>

#include <asio/io_context.hpp>

#include "launcher/monitor/gpu_figures.h"
#include "launcher/process/command.h"

namespace dlaunch {

// The word on that process's command line.
inline constexpr const char* kGpuFiguresWord = "gpu-figures";
// Its work, to its exit code.
int run_gpu_figures();

class GpuWatch {
 public:
  GpuWatch(asio::io_context& loop, std::set<pid_t>& helpers) : command_(loop, helpers) {}

  // The newest that are there, while newer ones are fetched; none where there is no NVML or it does
  // not work. nullopt: the first have not come yet.
  const std::optional<std::vector<GpuFigures>>& look();

 private:
  void take(const Command::End& end);

  Command command_;
  bool asks_ = false, never_ = false;
  std::optional<std::vector<GpuFigures>> newest_;
  TimePoint newest_at_{};
};

}  // namespace dlaunch
