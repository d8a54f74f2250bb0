#include "launcher/node/watch/gpu_figures.h"

#include <cstdlib>

#include <doctest/doctest.h>

#include "launcher/node/watch/nvml.h"

using namespace dlaunch;

// Of the fake NVML (tests/support/fake_gpu), which is linked so that it is the one that is found.
extern "C" const char* nvmlErrorString(int result);

namespace {

std::vector<GpuFigures> two() {
  std::vector<GpuFigures> gpus(2);
  gpus[0].uuid = "GPU-aa11";
  gpus[1].uuid = "GPU-bb22";
  gpus[1].processes = {{40, 1 << 20}, {41, 0}};
  return gpus;
}

// The second one cut into two instances.
std::vector<GpuFigures> cut() {
  auto gpus = two();
  gpus[1].instances = {{.number = 0, .uuid = "MIG-cc33", .memory_used = 5, .memory_total = 9},
                       {.number = 2, .uuid = "MIG-dd44", .processes = {{42, 7}}}};
  return gpus;
}

using Uses = std::vector<GpuUse>;

}  // namespace

TEST_CASE("gpu figures: a bus as the kernel writes it") {
  CHECK(short_bus("00000000:17:00.0") == "0000:17:00.0");
  CHECK(short_bus("00010000:AF:00.0") == "0000:af:00.0");
  CHECK(short_bus("0000:3b:00.0") == "0000:3b:00.0");
  CHECK(short_bus("number 3") == "number 3");
}

TEST_CASE("gpu figures: a worker's GPU is known by its processes, or if only one is visible") {
  CHECK(gpus_named(two(), "1,0") == Uses{{1}, {0}});
  CHECK(gpus_named(two(), "GPU-bb, 7,0") == Uses{{1}});
  CHECK(gpus_named(two(), "") == Uses{});
  CHECK(gpus_of(two(), {1, 41}, "0") == Uses{{1}});
  CHECK(gpus_of(two(), {1, 2}, "0") == Uses{{0}});
  CHECK(gpus_of(two(), {1, 2}, "0,1") == Uses{});
  CHECK(gpus_of(two(), {1, 2}, "") == Uses{});
}

TEST_CASE("gpu figures: a worker's MIG instance") {
  CHECK(gpus_named(cut(), "MIG-dd,0,MIG-ee,1") == Uses{{1, 1}, {0}});
  CHECK(gpus_named(two(), "MIG-dd") == Uses{});
  CHECK(gpus_of(cut(), {42}, "MIG-cc33") == Uses{{1, 1}});
  CHECK(gpus_of(cut(), {1}, "MIG-cc33") == Uses{{1, 0}});
  CHECK(gpus_of(cut(), {1}, "MIG-cc33,MIG-dd44") == Uses{});
  // NVML tells it of the whole GPU.
  CHECK(gpus_of(cut(), {40}, "MIG-cc33") == Uses{{1, 0}});
  CHECK(gpus_of(cut(), {40}, "0") == Uses{{1}});
}

TEST_CASE("gpu figures: MIG instances arrive with NVML's values") {
  ::setenv("FAKE_NVML", "gpus=2,mig=1:2,process=1:4711", 1);
  const auto asked = ask_nvml();
  ::unsetenv("FAKE_NVML");
  REQUIRE(asked);
  const auto told = decode_gpus(encode_gpus(*asked));
  REQUIRE(told);
  CHECK(told->at(0).instances.empty());
  CHECK(told->at(0).utilisation == 40);
  const GpuFigures& parent = told->at(1);
  CHECK(parent.utilisation == -1);
  CHECK(parent.temperature == 51);
  CHECK(parent.lost.empty());
  CHECK(parent.processes.empty());
  REQUIRE(parent.instances.size() == 2);
  const GpuInstance &first = parent.instances[0], &second = parent.instances[1];
  CHECK(first.uuid == "MIG-fake-1-0");
  CHECK(first.memory_used == 1ULL << 30);
  CHECK(first.memory_total == 10ULL << 30);
  CHECK(first.processes.empty());
  CHECK(second.number == 2);
  CHECK(second.uuid == "MIG-fake-1-2");
  CHECK(second.memory_used == 3ULL << 30);
  REQUIRE(second.processes.size() == 1);
  CHECK(second.processes[0].pid == 4711);
}

TEST_CASE("gpu figures: NVML's values return from the process that reads them") {
  REQUIRE(nvmlErrorString(15) == std::string("GPU is lost"));
  ::setenv("FAKE_NVML", "gpus=2,uncorrected=1:3,rows_failed=1,process=0:4711", 1);
  const auto asked = ask_nvml();
  REQUIRE(asked);
  const auto told = decode_gpus(encode_gpus(*asked));
  REQUIRE(told);
  REQUIRE(told->size() == 2);
  const GpuFigures &first = told->at(0), &second = told->at(1);
  CHECK(first.bus == "0000:10:00.0");
  CHECK(second.uuid == "GPU-fake-1");
  CHECK(first.utilisation == 40);
  CHECK(second.temperature == 51);
  CHECK(first.memory_used == 20ULL << 30);
  CHECK(first.memory_total == 80ULL << 30);
  CHECK(first.uncorrected == 0);
  CHECK(second.uncorrected == 3);
  CHECK(second.rows_failed);
  CHECK_FALSE(second.rows_pending);
  CHECK_FALSE(first.rows_failed);
  CHECK(first.lost.empty());
  REQUIRE(first.processes.size() == 1);
  CHECK(first.processes[0].pid == 4711);

  ::setenv("FAKE_NVML", "gpus=2,lost=1", 1);
  const auto lost = ask_nvml();
  REQUIRE(lost);
  CHECK(lost->at(0).lost.empty());
  CHECK(lost->at(1).lost == "GPU is lost");
  ::setenv("FAKE_NVML", "gpus=2,dead", 1);
  const auto dead = ask_nvml();
  REQUIRE_FALSE(dead);
  CHECK(dead.error().code == Errc::io);
  CHECK(dead.error().what.starts_with("nvmlInit: "));
  ::unsetenv("FAKE_NVML");
}

TEST_CASE("gpu figures: malformed encodings are refused") {
  const std::string bytes = encode_gpus(cut());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(decode_gpus(bytes.substr(0, size)));
  }
  CHECK_FALSE(decode_gpus(bytes + "x"));
  CHECK_FALSE(decode_gpus(std::string(4, '\xff')));
}
