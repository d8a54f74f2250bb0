// The CPUs that a thread may run on. Ranks exchange these sets if no launcher has counted the CPUs:
// each may be bound differently, and all have to plan alike.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

// A set of CPUs on the wire: CPU i is bit i % 8 of byte i / 8; the last byte is not 0.
inline constexpr std::size_t kMostCpuBytes = 1024;

// This thread's set; empty if the system does not say.
std::string own_cpus();
std::string united(std::string a, std::string_view b);
int count_cpus(std::string_view set);
// The numbers in a set, ascending; and a set of one.
std::vector<int> cpus_in(std::string_view set);
std::string only_cpu(int cpu);
// Binds this thread to a set. Returns 0, or errno.
int run_on(std::string_view set);

}  // namespace dlaunch
