#include "cli/doctor/gpu_findings.h"

#include <doctest/doctest.h>

#include "cli/doctor/host_test.h"

using namespace dlaunch;

namespace {

AllGpuFacts healthy_gpus(int count) {
  AllGpuFacts facts;
  for (int i = 0; i < count; ++i) {
    GpuFacts& gpu = facts.gpus.emplace_back();
    gpu.figures.bus = "0000:1" + std::to_string(i) + ":00.0";
    gpu.figures.uncorrected = 0;
    gpu.test = {.wrong = "", .to_gpu_per_s = 25e9, .from_gpu_per_s = 24e9};
  }
  return facts;
}

// "!" for what is bad.
std::vector<std::string> gpu_found(const AllGpuFacts& facts) {
  std::vector<std::string> words;
  for (const auto& finding : gpu_findings("h", facts)) {
    CHECK_FALSE(finding.fix.empty());
    words.push_back((finding.bad ? "!" : "") + finding.what);
  }
  return words;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("gpu findings: none for healthy GPUs, or without GPUs") {
  CHECK(gpu_found(healthy_gpus(8)).empty());
  CHECK(gpu_found({}).empty());
  CHECK(worst_of(healthy_gpus(2)).empty());
}

TEST_CASE("gpu findings: from NVML and the kernel's log") {
  auto facts = healthy_gpus(3);
  GpuFacts& gpu = facts.gpus[1];
  SUBCASE("ECC") {
    gpu.figures.uncorrected = 1;
    CHECK(gpu_found(facts) ==
          Words{"!h: GPU 0000:11:00.0 had 1 uncorrected ECC error since its driver "
                "was loaded"});
    gpu.figures.uncorrected = -1;
    CHECK(gpu_found(facts).empty());
  }
  SUBCASE("pages") {
    gpu.figures.pages_pending = true;
    CHECK(gpu_found(facts) ==
          Words{"!h: GPU 0000:11:00.0 has pages of memory that wait to be retired"});
  }
  SUBCASE("rows") {
    gpu.figures.rows_pending = true;
    CHECK(gpu_found(facts) ==
          Words{"!h: GPU 0000:11:00.0 has rows of memory that wait to be remapped"});
    gpu.figures.rows_failed = true;
    CHECK(gpu_found(facts) ==
          Words{"!h: GPU 0000:11:00.0 has bad memory that could not be remapped"});
  }
  SUBCASE("lost, when nothing else says so") {
    gpu.figures.lost = "GPU is lost";
    gpu.figures.uncorrected = 3;
    CHECK(gpu_found(facts) == Words{"!h: GPU 0000:11:00.0 has fallen off the bus: GPU is lost"});
  }
  SUBCASE("Xid") {
    gpu.xid = 79;
    CHECK(gpu_found(facts) ==
          Words{"h: GPU 0000:11:00.0 is in the kernel's log with Xid 79, an error "
                "of the hardware"});
    CHECK(worst_of(facts).empty());  // it may have been mended since
  }
  SUBCASE("the test") {
    gpu.test.wrong = "it computes wrong (thread 7)";
    CHECK(gpu_found(facts) ==
          Words{"!h: GPU 0000:11:00.0 fails a short test: it computes wrong (thread 7)"});
    CHECK(worst_of(facts).starts_with("this host: GPU 0000:11:00.0 fails a short test: "));
  }
  SUBCASE("none of them") {
    facts = {.trouble = "NVML: nvmlInit: Driver Not Loaded", .gpus = {}};
    CHECK(gpu_found(facts) ==
          Words{"!h: its GPUs cannot be used: NVML: nvmlInit: Driver Not Loaded"});
  }
}

TEST_CASE("gpu findings: a GPU that is slow to reach beside the others of its host") {
  auto facts = healthy_gpus(4);
  facts.gpus[2].test.from_gpu_per_s = 6e9;
  CHECK(gpu_found(facts) == Words{"!h: GPU 0000:12:00.0 is slow to reach: 25 GB/s there and 6 GB/s "
                                  "back; the median GPU there has 24 GB/s"});
  facts.gpus[2].test.from_gpu_per_s = 13e9;
  CHECK(gpu_found(facts).empty());
  CHECK(gpu_found({.trouble = "", .gpus = {facts.gpus[0]}}).empty());
}

TEST_CASE("gpu findings: Xids of the hardware, by card, the worst of each") {
  const auto xids = xids_in(
      "6,1,2,-;NVRM: Xid (PCI:0000:17:00): 31, pid=7, a program's fault\n"
      "6,1,2,-;NVRM: Xid (PCI:0000:65:00): 48, pid='<unknown>'\n"
      "6,1,2,-;NVRM: Xid (PCI:0000:65:00): 63\n"
      "6,1,2,-;NVRM: Xid (PCI:0000:66:00): 63\n"
      "6,1,2,-;NVRM: Xid (PCI:0000:66:00): 79, GPU has fallen off the bus.\n"
      "6,1,2,-;NVRM: Xid (PCI:cut");
  CHECK(xids == std::map<std::string, int>{{"0000:65:00", 48}, {"0000:66:00", 79}});
  CHECK(xids_in("").empty());
}

TEST_CASE("gpu findings: facts are read as they were written, or refused") {
  auto facts = healthy_gpus(2);
  facts.trouble = "CUDA: no";
  facts.gpus[1].figures.rows_pending = true;
  facts.gpus[1].xid = 48;
  facts.gpus[1].test.wrong = "it is";
  const std::string bytes = encode(facts);
  const auto back = decode_gpu_facts(bytes);
  REQUIRE(back);
  CHECK(encode(*back) == bytes);
  CHECK(back->gpus[1].figures.rows_pending);
  CHECK(back->gpus[1].xid == 48);
  CHECK(back->gpus[0].test.to_gpu_per_s == 25e9);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(decode_gpu_facts(bytes.substr(0, size)));
  }
  CHECK_FALSE(decode_gpu_facts(bytes + "x"));
}
