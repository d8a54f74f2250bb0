#include "ring/device/libraries.h"

#include <string>

#include <fmt/format.h>

#include "base/symbols.h"

// cuda.h maps functions to their current versions: look up those names.
#define DL_TEXT_OF(name) #name
#define DL_SYMBOL(name) DL_TEXT_OF(name)

namespace dlaunch {
namespace {

const CudaDriver* load_cuda_driver() {
  static CudaDriver driver{};
  SymbolReader symbols{.library = open_library("libcuda.so.1")};
  if (symbols.library == nullptr) return nullptr;
  symbols.read(driver.init, DL_SYMBOL(cuInit));
  symbols.read(driver.get_error_string, DL_SYMBOL(cuGetErrorString));
  symbols.read(driver.device_get, DL_SYMBOL(cuDeviceGet));
  symbols.read(driver.device_get_count, DL_SYMBOL(cuDeviceGetCount));
  symbols.read(driver.device_get_name, DL_SYMBOL(cuDeviceGetName));
  symbols.read(driver.device_get_uuid, DL_SYMBOL(cuDeviceGetUuid));
  symbols.read(driver.primary_ctx_retain, DL_SYMBOL(cuDevicePrimaryCtxRetain));
  symbols.read(driver.primary_ctx_release, DL_SYMBOL(cuDevicePrimaryCtxRelease));
  symbols.read(driver.ctx_push, DL_SYMBOL(cuCtxPushCurrent));
  symbols.read(driver.ctx_pop, DL_SYMBOL(cuCtxPopCurrent));
  symbols.read(driver.pointer_get_attributes, DL_SYMBOL(cuPointerGetAttributes));
  symbols.read(driver.stream_create, DL_SYMBOL(cuStreamCreate));
  symbols.read(driver.stream_destroy, DL_SYMBOL(cuStreamDestroy));
  symbols.read(driver.stream_wait_event, DL_SYMBOL(cuStreamWaitEvent));
  symbols.read(driver.event_create, DL_SYMBOL(cuEventCreate));
  symbols.read(driver.event_destroy, DL_SYMBOL(cuEventDestroy));
  symbols.read(driver.event_record, DL_SYMBOL(cuEventRecord));
  symbols.read(driver.event_query, DL_SYMBOL(cuEventQuery));
  symbols.read(driver.mem_alloc, DL_SYMBOL(cuMemAlloc));
  symbols.read(driver.mem_free, DL_SYMBOL(cuMemFree));
  symbols.read(driver.mem_host_alloc, DL_SYMBOL(cuMemHostAlloc));
  symbols.read(driver.mem_free_host, DL_SYMBOL(cuMemFreeHost));
  symbols.read(driver.copy_to_host, DL_SYMBOL(cuMemcpyDtoHAsync));
  symbols.read(driver.copy_to_device, DL_SYMBOL(cuMemcpyHtoDAsync));
  symbols.read(driver.copy_on_device, DL_SYMBOL(cuMemcpyDtoDAsync));
  return symbols.missing == nullptr ? &driver : nullptr;
}

Result<const NcclLibrary*> load_nccl() {
  static NcclLibrary nccl{};
  SymbolReader symbols{.library = open_library("libnccl.so.2")};
  if (symbols.library == nullptr) {
    return Error{.code = Errc::unsupported, .what = "there is no libnccl.so.2"};
  }
  symbols.read(nccl.get_version, "ncclGetVersion");
  symbols.read(nccl.get_unique_id, "ncclGetUniqueId");
  symbols.read(nccl.get_error_string, "ncclGetErrorString");
  symbols.read(nccl.get_last_error, "ncclGetLastError");
  symbols.read(nccl.comm_init_rank_config, "ncclCommInitRankConfig");
  symbols.read(nccl.comm_get_async_error, "ncclCommGetAsyncError");
  symbols.read(nccl.comm_finalize, "ncclCommFinalize");
  symbols.read(nccl.comm_destroy, "ncclCommDestroy");
  symbols.read(nccl.comm_abort, "ncclCommAbort");
  symbols.read(nccl.group_start, "ncclGroupStart");
  symbols.read(nccl.group_end, "ncclGroupEnd");
  symbols.read(nccl.all_reduce, "ncclAllReduce");
  symbols.read(nccl.reduce, "ncclReduce");
  symbols.read(nccl.broadcast, "ncclBroadcast");
  symbols.read(nccl.reduce_scatter, "ncclReduceScatter");
  symbols.read(nccl.all_gather, "ncclAllGather");
  symbols.read(nccl.send, "ncclSend");
  symbols.read(nccl.recv, "ncclRecv");
  symbols.read(nccl.red_op_create_pre_mul_sum, "ncclRedOpCreatePreMulSum");
  symbols.read(nccl.red_op_destroy, "ncclRedOpDestroy");
  if (symbols.missing == nullptr) return &nccl;
  return Error{.code = Errc::unsupported,
               .what = fmt::format("libnccl.so.2 is too old: it has no {}", symbols.missing)};
}

}  // namespace

const CudaDriver* cuda_driver() {
  static const CudaDriver* const driver = load_cuda_driver();
  return driver;
}

Result<const NcclLibrary*> nccl_library() {
  static const Result<const NcclLibrary*> library = load_nccl();
  return library;
}

Error cuda_error(std::string_view call, CUresult result) {
  const char* text = nullptr;
  if (cuda_driver() != nullptr) cuda_driver()->get_error_string(result, &text);
  return Error{
      .code = Errc::io,
      .what = fmt::format("{}: {}", call,
                          text != nullptr ? std::string(text) : "error " + std::to_string(result))};
}

Result<void> cuda_done(std::string_view call, CUresult result) {
  if (result != CUDA_SUCCESS) return cuda_error(call, result);
  return {};
}

}  // namespace dlaunch
