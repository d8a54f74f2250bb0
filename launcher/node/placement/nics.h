// The InfiniBand and RoCE adapters (HCAs) of this host, and which of them are near a GPU: fewest
// PCI bridges between them, by the kernel's files.
#pragma once

#include <string>
#include <vector>

namespace dlaunch {

struct Hca {
  std::string name;                  // "mlx5_0"
  std::vector<std::string> bridges;  // PCI devices from the host bridge to the one above the HCA
  std::vector<int> cpus;             // near it, ascending; empty: not known
  bool active = false;               // one of its ports is active
};

// Below `root` ("" is the machine's own), by name.
std::vector<Hca> read_hcas(const std::string& root = "");

// The active HCAs near a GPU with these bridges and CPUs: those that share the most bridges with
// it, or, if none shares any, its CPUs. Empty if nothing tells them apart. Pure.
std::vector<std::string> hcas_near(const std::vector<std::string>& bridges,
                                   const std::vector<int>& cpus, const std::vector<Hca>& hcas);

}  // namespace dlaunch
