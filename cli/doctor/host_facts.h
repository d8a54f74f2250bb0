// The facts that `dlaunch doctor` gathers on each host, without changing anything there.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cli/doctor/gpu_facts.h"

namespace dlaunch {

struct HostFacts {
  std::string host;
  std::string address, interface;  // by which other hosts reach it; "": it is the only one
  int mtu = 0;                     // of that interface; 0: not known
  bool named_loopback = false;     // its own name resolves to 127.0.0.0/8 or ::1, or not at all
  int cpus = 0;                    // that we may use
  double cpu_quota = 0;            // CPUs' worth of time that the cgroup grants; 0: no limit
  double load = 0;                 // processes that wanted a CPU, on average over the last minute
  std::uint64_t memory = 0, memory_free = 0;       // bytes, within a cgroup's limit
  std::uint64_t open_files = 0;                    // the hard limit: dlaunch raises the soft one
  std::uint64_t locked_memory = 0;                 // bytes, soft limit; ~0: none
  std::uint64_t shared_memory = 0;                 // bytes of /dev/shm; 0: there is none
  std::uint64_t send_buffer = 0, recv_buffer = 0;  // bytes: TCP's maximum for a socket
  std::string huge_pages;                          // "always", "madvise", "never"; "": not known
  bool infiniband = false;
  int gpus = 0;            // NVIDIA's
  std::string gpu_driver;  // its version
  AllGpuFacts gpu_facts;   // of visible GPUs; from gpu_facts_of_host()

  // Measured by the first host:
  double clock_ahead_s = 0, clock_error_s = 0;  // of its clock
  double started_s = -1;  // from the beginning until its worker ran; < 0: not known
};

// The facts of this host. towards: the host to which it looks for the way; "": there are no
// others.
HostFacts find_host_facts(const std::string& towards);

std::string encode(const HostFacts& facts);
Result<HostFacts> decode_host_facts(std::string_view bytes);

}  // namespace dlaunch
