// Where a device is on the PCI bus, as the kernel's files tell.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace dlaunch {

// The bridges above the device whose folder in sysfs that is, the host bridge first; empty: not
// known.
std::vector<std::string> bridges_of(const std::filesystem::path& device);
// The same of the device of that name ("0000:17:00.0"), below `root` ("" is the machine's own).
std::vector<std::string> bridges_above(const std::string& bus, const std::string& root = "");

// "0-3,8\n", as its local_cpulist has it; empty: it is none.
std::vector<int> cpus_in_list(const std::string& list);

}  // namespace dlaunch
