#include "cli/doctor/gpu_test.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/symbols.h"
#include "cli/doctor/host_test.h"

namespace dlaunch {
namespace {

// -- The part of the driver's interface that is used here

using Device = int;
using Context = void*;
using DeviceMemory = std::uint64_t;
constexpr int kCudaDone = 0, kCudaNoMemory = 2, kCudaTaken = 46, kCudaNoDevice = 100;

struct CudaTestCalls {
  int (*init)(unsigned);
  int (*error_string)(int, const char**);
  int (*count)(int*);
  int (*device)(Device*, int);
  int (*bus)(char*, int, Device);
  int (*retain)(Context*, Device);
  int (*release)(Device);
  int (*push)(Context);
  int (*pop)(Context*);
  int (*alloc)(DeviceMemory*, std::size_t);
  int (*free)(DeviceMemory);
  int (*host_alloc)(void**, std::size_t, unsigned);
  int (*host_free)(void*);
  int (*to_gpu)(DeviceMemory, const void*, std::size_t);
  int (*from_gpu)(void*, DeviceMemory, std::size_t);
  int (*load)(void**, const void*);
  int (*unload)(void*);
  int (*function)(void**, void*, const char*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**);
  int (*synchronize)();
};

Result<CudaTestCalls> load_calls() {
  SymbolReader symbols{.library = open_library("libcuda.so.1")};
  if (symbols.library == nullptr) {
    return Error{.code = Errc::unsupported, .what = "there is no libcuda.so.1"};
  }
  CudaTestCalls calls{};
  symbols.read(calls.init, "cuInit");
  symbols.read(calls.error_string, "cuGetErrorString");
  symbols.read(calls.count, "cuDeviceGetCount");
  symbols.read(calls.device, "cuDeviceGet");
  symbols.read(calls.bus, "cuDeviceGetPCIBusId");
  symbols.read(calls.retain, "cuDevicePrimaryCtxRetain");
  symbols.read(calls.release, "cuDevicePrimaryCtxRelease_v2");
  symbols.read(calls.push, "cuCtxPushCurrent_v2");
  symbols.read(calls.pop, "cuCtxPopCurrent_v2");
  symbols.read(calls.alloc, "cuMemAlloc_v2");
  symbols.read(calls.free, "cuMemFree_v2");
  symbols.read(calls.host_alloc, "cuMemHostAlloc");
  symbols.read(calls.host_free, "cuMemFreeHost");
  symbols.read(calls.to_gpu, "cuMemcpyHtoD_v2");
  symbols.read(calls.from_gpu, "cuMemcpyDtoH_v2");
  symbols.read(calls.load, "cuModuleLoadData");
  symbols.read(calls.unload, "cuModuleUnload");
  symbols.read(calls.function, "cuModuleGetFunction");
  symbols.read(calls.launch, "cuLaunchKernel");
  symbols.read(calls.synchronize, "cuCtxSynchronize");
  if (symbols.missing == nullptr) return calls;
  return Error{.code = Errc::unsupported,
               .what = fmt::format("libcuda.so.1 has no {}", symbols.missing)};
}

// compute() of cli/doctor/host_test.h, step by step: each thread from a seed of its own. The two
// constants of the Lehmer generator, 48271 and 2^31 - 1, are doubles in hexadecimal.
constexpr const char* kKernel = R"(
.version 6.0
.target sm_50
.address_size 64
.visible .entry dl_compute(.param .u64 to, .param .u64 seed, .param .u32 steps)
{
  .reg .pred %end;
  .reg .b32 %steps, %block, %size, %thread, %i;
  .reg .b64 %to, %mixed, %at, %t;
  .reg .f64 %lehmer, %q;
  ld.param.u64 %to, [to];
  ld.param.u64 %mixed, [seed];
  ld.param.u32 %steps, [steps];
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %i, %block, %size, %thread;
  cvt.u64.u32 %at, %i;
  add.u64 %mixed, %mixed, %at;
  shl.b64 %at, %at, 3;
  add.u64 %at, %at, %to;
  rem.u64 %t, %mixed, 2147483646;
  add.u64 %t, %t, 1;
  cvt.rn.f64.u64 %lehmer, %t;
more:
  setp.eq.u32 %end, %steps, 0;
  @%end bra done;
  sub.u32 %steps, %steps, 1;
  shr.u64 %t, %mixed, 30;
  xor.b64 %mixed, %mixed, %t;
  mul.lo.u64 %mixed, %mixed, 0xbf58476d1ce4e5b9;
  shr.u64 %t, %mixed, 27;
  xor.b64 %mixed, %mixed, %t;
  mul.rn.f64 %lehmer, %lehmer, 0d40e791e000000000;
  div.rn.f64 %q, %lehmer, 0d41dfffffffc00000;
  cvt.rzi.s64.f64 %t, %q;
  cvt.rn.f64.s64 %q, %t;
  mul.rn.f64 %q, %q, 0d41dfffffffc00000;
  sub.rn.f64 %lehmer, %lehmer, %q;
  cvt.rzi.u64.f64 %t, %lehmer;
  add.u64 %mixed, %mixed, %t;
  bra more;
done:
  st.global.u64 [%at], %mixed;
  ret;
}
)";

constexpr std::size_t kWords = (16 << 20) / sizeof(std::uint64_t);
constexpr unsigned kBlocks = 128, kThreads = 128;
constexpr std::uint32_t kGpuSteps = 100;
constexpr std::uint64_t kGpuSeed = 4711;
constexpr int kCopies = 5;  // the fastest counts

class GpuTester {
 public:
  GpuTester(const CudaTestCalls& cuda, bool speed) : cuda_(cuda), speed_(speed) {}

  GpuTest test(Device device) {
    Context context = nullptr;
    if (!done("cuDevicePrimaryCtxRetain", cuda_.retain(&context, device))) return result_;
    if (done("cuCtxPushCurrent", cuda_.push(context))) {
      test_here();
      cuda_.pop(&context);
    }
    cuda_.release(device);
    return result_;
  }

 private:
  bool done(const char* call, int result) {
    if (result == kCudaDone) return true;
    if (result == kCudaNoMemory || result == kCudaTaken) return false;  // in use: not tested
    const char* text = nullptr;
    cuda_.error_string(result, &text);
    result_.wrong = fmt::format("{}: {}", call, text != nullptr ? text : "error");
    return false;
  }

  void test_here() {
    void* pinned = nullptr;
    if (!done("cuMemHostAlloc", cuda_.host_alloc(&pinned, kWords * sizeof(std::uint64_t), 0)))
      return;
    DeviceMemory memory = 0;
    if (done("cuMemAlloc", cuda_.alloc(&memory, kWords * sizeof(std::uint64_t)))) {
      const std::span words(static_cast<std::uint64_t*>(pinned), kWords);
      if (test_copies(words, memory)) test_math(words, memory);
      cuda_.free(memory);
    }
    cuda_.host_free(pinned);
  }

  // Over both turns each bit of the memory is once 0 and once 1.
  bool test_copies(std::span<std::uint64_t> words, DeviceMemory memory) {
    for (int turn = 0; turn < (speed_ ? kCopies : 2); ++turn) {
      fill_pattern(words, turn % 2);
      const TimePoint begin = steady_now();
      if (!done("cuMemcpyHtoD", cuda_.to_gpu(memory, words.data(), words.size_bytes())))
        return false;
      const TimePoint there = steady_now();
      std::fill(words.begin(), words.end(), 0);
      const TimePoint back = steady_now();
      if (!done("cuMemcpyDtoH", cuda_.from_gpu(words.data(), memory, words.size_bytes())))
        return false;
      note_speed(words.size_bytes(), there - begin, steady_now() - back);
      if (const auto at = first_wrong(words, turn % 2)) {
        result_.wrong = fmt::format("its memory does not hold what was written: word {} is {:016x}",
                                    *at, words[*at]);
        return false;
      }
    }
    return true;
  }

  void note_speed(std::size_t bytes, Duration to, Duration from) {
    if (!speed_) return;
    const auto per_s = [bytes](Duration took) {
      return static_cast<double>(bytes) / std::max(1e-9, to_seconds(took));
    };
    result_.to_gpu_per_s = std::max(result_.to_gpu_per_s, per_s(to));
    result_.from_gpu_per_s = std::max(result_.from_gpu_per_s, per_s(from));
  }

  void test_math(std::span<std::uint64_t> words, DeviceMemory memory) {
    void *module = nullptr, *function = nullptr;
    if (!done("cuModuleLoadData", cuda_.load(&module, kKernel))) return;
    std::uint64_t seed = kGpuSeed;
    std::uint32_t steps = kGpuSteps;
    void* arguments[] = {&memory, &seed, &steps};
    const auto results = words.first(std::size_t{kBlocks} * kThreads);
    if (done("cuModuleGetFunction", cuda_.function(&function, module, "dl_compute")) &&
        done("cuLaunchKernel", cuda_.launch(function, kBlocks, 1, 1, kThreads, 1, 1, 0, nullptr,
                                            arguments, nullptr)) &&
        done("cuCtxSynchronize", cuda_.synchronize()) &&
        done("cuMemcpyDtoH", cuda_.from_gpu(results.data(), memory, results.size_bytes()))) {
      check_math(results);
    }
    cuda_.unload(module);
  }

  void check_math(std::span<const std::uint64_t> results) {
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i] == compute(kGpuSeed + i, kGpuSteps)) continue;
      result_.wrong = fmt::format("it computes wrong (thread {})", i);
      return;
    }
  }

  const CudaTestCalls& cuda_;
  const bool speed_;
  GpuTest result_;
};

}  // namespace

Result<std::map<std::string, GpuTest>> test_gpus_by_cuda(bool speed) {
  const auto cuda = load_calls();
  if (!cuda) return cuda.error();
  const auto error = [&](const char* call, int result) {
    const char* text = nullptr;
    cuda->error_string(result, &text);
    return Error{.code = result == kCudaNoDevice ? Errc::unsupported : Errc::io,
                 .what = fmt::format("{}: {}", call, text != nullptr ? text : "error")};
  };
  if (const int result = cuda->init(0); result != kCudaDone) return error("cuInit", result);
  int count = 0;
  if (const int result = cuda->count(&count); result != kCudaDone)
    return error("cuDeviceGetCount", result);
  std::map<std::string, GpuTest> tests;
  for (int i = 0; i < count; ++i) {
    Device device = 0;
    char bus[64] = {};
    if (cuda->device(&device, i) != kCudaDone) continue;
    if (cuda->bus(bus, sizeof bus - 1, device) != kCudaDone) continue;
    tests[short_bus(bus)] = GpuTester(*cuda, speed).test(device);
  }
  return tests;
}

}  // namespace dlaunch
