// The doctor's test of GPUs, with the imitations of CUDA and NVML.
#include "cli/doctor/gpu_test.h"

#include <cstdlib>

#include <doctest/doctest.h>

#include "tests/support/fake_gpu/fake_gpu.h"

using namespace dlaunch;

extern "C" const char* nvmlErrorString(int result);

TEST_CASE("GPUs that copy and compute right, with their speed on request") {
  REQUIRE(fake_gpu_current() == -1);
  const auto quick = test_gpus_by_cuda(false);
  REQUIRE(quick);
  REQUIRE(quick->size() == 8);
  for (const auto& [bus, test] : *quick) {
    CHECK(test.wrong == "");
    CHECK(test.to_gpu_per_s == 0);
  }
  const auto measured = test_gpus_by_cuda(true);
  REQUIRE(measured);
  CHECK(measured->begin()->first == "0000:10:00.0");
  CHECK(measured->begin()->second.to_gpu_per_s > 0);
  CHECK(measured->begin()->second.from_gpu_per_s > 0);
  CHECK(fake_gpu_current() == -1);
}

TEST_CASE("a GPU whose copies or whose results are wrong is found, and no other") {
  for (const auto& [how, says] :
       {std::pair("2:copy", "its memory does not hold what was written: word 0 is "),
        std::pair("2:kernel", "it computes wrong (thread 7)")}) {
    ::setenv("FAKE_GPU_WRONG", how, 1);
    const auto tests = test_gpus_by_cuda(false);
    ::unsetenv("FAKE_GPU_WRONG");
    REQUIRE(tests);
    for (const auto& [bus, test] : *tests) {
      if (bus == "0000:12:00.0") {
        CHECK(test.wrong.starts_with(says));
      } else {
        CHECK(test.wrong == "");
      }
    }
  }
}

TEST_CASE("facts of GPUs: from NVML, the log, the test, and the kernel's files") {
  REQUIRE(nvmlErrorString(15) == std::string("GPU is lost"));
  ::setenv("FAKE_NVML", "gpus=8,uncorrected=3:2", 1);
  ::setenv("FAKE_GPU_WRONG", "4:kernel", 1);
  auto facts = find_gpu_facts(false, {"0000:10:00.0", "0000:42:00.0"},
                              "NVRM: Xid (PCI:0000:15:00): 48, x\n");
  REQUIRE(facts.gpus.size() == 9);
  CHECK(facts.trouble == "");
  CHECK(facts.gpus[3].figures.uncorrected == 2);
  CHECK(facts.gpus[4].test.wrong == "it computes wrong (thread 7)");
  CHECK(facts.gpus[5].xid == 48);
  CHECK(facts.gpus[6].xid == 0);
  CHECK(facts.gpus[8].figures.lost == "NVML does not list it");
  ::unsetenv("FAKE_GPU_WRONG");

  ::setenv("CUDA_VISIBLE_DEVICES", "3,GPU-fake-1", 1);
  facts = find_gpu_facts(false, {"0000:42:00.0"}, "");
  REQUIRE(facts.gpus.size() >= 2);
  CHECK(facts.gpus[0].figures.bus == "0000:13:00.0");
  CHECK(facts.gpus[1].figures.bus == "0000:11:00.0");
  for (const auto& gpu : facts.gpus) CHECK(gpu.figures.lost == "");
  ::unsetenv("CUDA_VISIBLE_DEVICES");

  ::setenv("FAKE_NVML", "dead", 1);
  CHECK(find_gpu_facts(false, {"0000:10:00.0"}, "").trouble ==
        "NVML: nvmlInit: an error of the fake NVML");
  CHECK(find_gpu_facts(false, {}, "").trouble == "");  // no GPU, no driver, and the library
  ::unsetenv("FAKE_NVML");
}
