// The facts about a host's GPUs, for `dlaunch doctor` and for the test of a host that joins a job:
// from NVML and the kernel's log, and a short test of each GPU. A process of its own gathers them,
// because a driver in trouble may block it for ever.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/node/watch/gpu_figures.h"

namespace dlaunch {

struct GpuTest {
  std::string wrong;                            // the wrong result; "": none, or not tested
  double to_gpu_per_s = 0, from_gpu_per_s = 0;  // bytes; 0: not measured
};

struct GpuFacts {
  GpuFigures figures;
  int xid = 0;  // the worst that the driver has reported since boot; 0: none
  GpuTest test;
};

struct AllGpuFacts {
  std::string trouble;  // why no GPU is known; "": the list is complete
  std::vector<GpuFacts> gpus;
};

inline constexpr const char* kGpuTestWord = "gpu-test";

// The process's work: prints the facts. Returns its exit code.
int run_gpu_test(bool speed);
// The output of such a process on this host. speed: also measure the GPUs' speed.
AllGpuFacts gpu_facts_of_host(bool speed, Duration limit);

// -- Its parts

// In this process: the GPUs that CUDA_VISIBLE_DEVICES names, or all. in_files: the buses of GPUs
// in the driver's files, each of which should answer.
AllGpuFacts find_gpu_facts(bool speed, const std::vector<std::string>& in_files,
                           std::string_view kernel_log);

// By bus ("0000:17:00", without the function) the worst relevant Xid from the kernel's log: Xids
// about the hardware and not about a program.
std::map<std::string, int> xids_in(std::string_view kernel_log);
// The kernel's log since boot; "": we may not read it.
std::string kernel_log();

std::string encode(const AllGpuFacts& facts);
Result<AllGpuFacts> decode_gpu_facts(std::string_view bytes);

}  // namespace dlaunch
