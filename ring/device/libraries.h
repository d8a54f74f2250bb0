// The CUDA driver and NCCL as tables of functions, found at run time: one binary serves machines
// with and without GPUs. Only files of this folder that include this one see their headers.
//
// It uses the driver, not the CUDA runtime: each process has exactly one driver, while it may have
// many runtimes, often linked statically.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <string_view>

#include "base/result.h"

namespace dlaunch {

// Members have the names of the functions, without their prefix; cuda.h says what they do.
struct CudaDriver {
  decltype(&::cuInit) init;
  decltype(&::cuGetErrorString) get_error_string;
  decltype(&::cuDeviceGet) device_get;
  decltype(&::cuDeviceGetCount) device_get_count;
  decltype(&::cuDeviceGetName) device_get_name;
  decltype(&::cuDeviceGetUuid) device_get_uuid;
  decltype(&::cuDevicePrimaryCtxRetain) primary_ctx_retain;
  decltype(&::cuDevicePrimaryCtxRelease) primary_ctx_release;
  decltype(&::cuCtxPushCurrent) ctx_push;
  decltype(&::cuCtxPopCurrent) ctx_pop;
  decltype(&::cuPointerGetAttributes) pointer_get_attributes;
  decltype(&::cuStreamCreate) stream_create;
  decltype(&::cuStreamDestroy) stream_destroy;
  decltype(&::cuStreamWaitEvent) stream_wait_event;
  decltype(&::cuEventCreate) event_create;
  decltype(&::cuEventDestroy) event_destroy;
  decltype(&::cuEventRecord) event_record;
  decltype(&::cuEventQuery) event_query;
  decltype(&::cuMemAlloc) mem_alloc;
  decltype(&::cuMemFree) mem_free;
  decltype(&::cuMemHostAlloc) mem_host_alloc;
  decltype(&::cuMemFreeHost) mem_free_host;
  decltype(&::cuMemcpyDtoHAsync) copy_to_host;
  decltype(&::cuMemcpyHtoDAsync) copy_to_device;
  decltype(&::cuMemcpyDtoDAsync) copy_on_device;
};

struct NcclLibrary {
  decltype(&::ncclGetVersion) get_version;
  decltype(&::ncclGetUniqueId) get_unique_id;
  decltype(&::ncclGetErrorString) get_error_string;
  decltype(&::ncclGetLastError) get_last_error;
  decltype(&::ncclCommInitRankConfig) comm_init_rank_config;
  decltype(&::ncclCommGetAsyncError) comm_get_async_error;
  decltype(&::ncclCommFinalize) comm_finalize;
  decltype(&::ncclCommDestroy) comm_destroy;
  decltype(&::ncclCommAbort) comm_abort;
  decltype(&::ncclGroupStart) group_start;
  decltype(&::ncclGroupEnd) group_end;
  decltype(&::ncclAllReduce) all_reduce;
  decltype(&::ncclReduce) reduce;
  decltype(&::ncclBroadcast) broadcast;
  decltype(&::ncclReduceScatter) reduce_scatter;
  decltype(&::ncclAllGather) all_gather;
  decltype(&::ncclSend) send;
  decltype(&::ncclRecv) recv;
  decltype(&::ncclRedOpCreatePreMulSum) red_op_create_pre_mul_sum;
  decltype(&::ncclRedOpDestroy) red_op_destroy;
};

// Null: this process has no libcuda.so.1, or that lacks a function. Looks for it once.
const CudaDriver* cuda_driver();
// Errc::unsupported: there is no libnccl.so.2, or it is too old. Looks for it once.
Result<const NcclLibrary*> nccl_library();

// "cuMemHostAlloc: out of memory"; `call` is the function's name.
Error cuda_error(std::string_view call, CUresult result);
// Success or the error, of Errc::io.
Result<void> cuda_done(std::string_view call, CUresult result);

}  // namespace dlaunch
