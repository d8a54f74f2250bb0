#include "cli/doctor/gpu_findings.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/units.h"

namespace dlaunch {
namespace {

constexpr double kSlowGpu = 0.5;  // of the median GPU of its host

double slower_way(const GpuFacts& gpu) {
  return std::min(gpu.test.to_gpu_per_s, gpu.test.from_gpu_per_s);
}

class GpuExamination {
 public:
  explicit GpuExamination(const std::string& host) : host_(host) {}

  std::vector<Finding> take(const AllGpuFacts& facts) {
    if (!facts.trouble.empty()) {
      find(true, fmt::format("{}: its GPUs cannot be used: {}", host_, facts.trouble),
           "nvidia-smi there; reload the driver, or restart the host");
    }
    for (const GpuFacts& gpu : facts.gpus) look_at(gpu);
    look_for_slow(facts.gpus);
    return std::move(found_);
  }

 private:
  void find(bool bad, std::string what, std::string fix) {
    found_.push_back({bad, std::move(what), std::move(fix)});
  }
  void find_of(const GpuFacts& gpu, bool bad, const std::string& what, std::string fix) {
    find(bad, fmt::format("{}: GPU {} {}", host_, gpu.figures.bus, what), std::move(fix));
  }

  void look_at(const GpuFacts& gpu) {
    const GpuFigures& its = gpu.figures;
    const std::string reset =
        "nvidia-smi --gpu-reset -i " + its.bus + " once nothing runs there, or restart the host";
    if (!its.lost.empty()) {
      return find_of(
          gpu, true, "has fallen off the bus: " + its.lost,
          "restart the host; if it comes again, check its slot and its power, or replace the card");
    }
    if (its.rows_failed) {
      find_of(gpu, true, "has bad memory that could not be remapped", "another card");
    } else if (its.rows_pending || its.pages_pending) {
      find_of(gpu, true,
              its.rows_pending ? "has rows of memory that wait to be remapped"
                               : "has pages of memory that wait to be retired",
              reset);
    }
    if (its.uncorrected > 0) {
      find_of(gpu, true,
              fmt::format("had {} uncorrected ECC error{} since its driver was loaded",
                          its.uncorrected, its.uncorrected == 1 ? "" : "s"),
              reset + "; replace the card if they come again");
    }
    if (!gpu.test.wrong.empty()) {
      find_of(gpu, true, "fails a short test: " + gpu.test.wrong,
              reset + "; dcgmi diag -r 3 says more");
    }
    if (gpu.xid != 0) {
      find_of(gpu, false,
              fmt::format("is in the kernel's log with Xid {}, an error of the hardware", gpu.xid),
              "NVIDIA's list of Xids explains it; dmesg has the line");
    }
  }

  // All GPUs of a host are of one kind.
  void look_for_slow(const std::vector<GpuFacts>& gpus) {
    std::vector<double> rates;
    for (const GpuFacts& gpu : gpus) {
      if (slower_way(gpu) > 0) rates.push_back(slower_way(gpu));
    }
    if (rates.size() < 2) return;
    const double usual = upper_median(rates);
    for (const GpuFacts& gpu : gpus) {
      if (slower_way(gpu) <= 0 || slower_way(gpu) >= kSlowGpu * usual) continue;
      find_of(
          gpu, true,
          fmt::format("is slow to reach: {} there and {} back; the median GPU there has {}",
                      format_rate(gpu.test.to_gpu_per_s), format_rate(gpu.test.from_gpu_per_s),
                      format_rate(usual)),
          "check the generation and width of its PCIe link (nvidia-smi -q -d PCIE), and its slot");
    }
  }

  const std::string& host_;
  std::vector<Finding> found_;
};

}  // namespace

std::vector<Finding> gpu_findings(const std::string& host, const AllGpuFacts& facts) {
  return GpuExamination(host).take(facts);
}

}  // namespace dlaunch
