// A device's place on the PCI bus, by the kernel's files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace dlaunch {

// The bridges above the device with that sysfs folder, the host bridge first; empty: not known.
std::vector<std::string> bridges_of(const std::filesystem::path& device);
// The same for the device of that name ("0000:17:00.0"), below `root` ("" is the machine's own).
std::vector<std::string> bridges_above(const std::string& bus, const std::string& root = "");

// Parses a local_cpulist: "0-3,8\n"; empty: it is malformed.
std::vector<int> cpus_in_list(const std::string& list);

}  // namespace dlaunch
