// What is known of the GPUs of a host, for `dlaunch doctor` and for the test of a host that joins a
// job: what NVML and the kernel's log tell, and a short test of each. All of it is found by a
// process of its own, which a driver in trouble may hold up for ever.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/monitor/gpu_figures.h"

namespace dlaunch {

struct GpuTest {
  std::string wrong;                            // what it got wrong; "": nothing, or not tested
  double to_gpu_per_s = 0, from_gpu_per_s = 0;  // bytes; 0: not measured
};

struct GpuFacts {
  GpuFigures figures;
  int xid = 0;  // the worst that the driver has reported since the host was started; 0: none
  GpuTest test;
};

struct AllGpuFacts {
  std::string trouble;  // why nothing is known of any; "": all is known that there is
  std::vector<GpuFacts> gpus;
};

inline constexpr const char* kGpuTestWord = "gpu-test";

// The process: prints its finds. Its exit code.
int run_gpu_test(bool speed);
// What such a process finds on this host. speed: whether it also measures how fast the GPUs are.
AllGpuFacts gpu_facts_of_host(bool speed, Duration limit);

// -- Its parts

// By this process. Those that CUDA_VISIBLE_DEVICES names, or all. in_files: the buses of GPUs that
// the driver's files tell of, each of which should answer.
AllGpuFacts find_gpu_facts(bool speed, const std::vector<std::string>& in_files,
                           std::string_view kernel_log);

// What the driver has reported of each bus ("0000:17:00", without the function) that matters here:
// Xids that speak of the hardware and not of a program, of which the worst. From the kernel's log.
std::map<std::string, int> xids_in(std::string_view kernel_log);
// Since it was started; "": we may not read it.
std::string kernel_log();

std::string encode(const AllGpuFacts& facts);
Result<AllGpuFacts> decode_gpu_facts(std::string_view bytes);

}  // namespace dlaunch
