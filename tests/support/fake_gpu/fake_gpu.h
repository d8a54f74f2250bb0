// The common part of the two fakes, and tests' access to them beside CUDA's own functions.
//
// libcuda.so.1 and libnccl.so.2 of this folder are imitations for tests only and never installed.
// They do what the device plane needs, slowly and in order, and fail on command. Their behaviour
// says nothing about a GPU or about NCCL.
//
// "Device memory" is memory of the process that is inaccessible at the addresses that programs get:
// code that uses it as host memory dies at once. Every stream has a thread, which does one thing
// after the other.
//
// FAKE_NCCL="RANK:OP:WHAT", read at each call: what happens to that rank in that group (from 0):
//   async_error   NCCL reports ncclRemoteError, and the device's work stands still
//   wedge         the device's work stands still, without an error
//   launch_error  the launch is refused
//   kill          the process kills itself
//   init_wedge    the communicator is never ready (OP does not matter, as below)
//   init_error    it ends with ncclSystemError instead of being ready
//   abort_hang    ncclCommAbort never returns, and the work stays still: use with a wedge,
//                 "1:0:wedge,1:0:abort_hang"
#pragma once

#include <cuda.h>

#include <cstddef>
#include <functional>

// The place where the fakes see the bytes of a device address; null: not device memory.
void* fake_gpu_view(const void* memory);
// Runs `work` in the stream's order.
void fake_gpu_enqueue(CUstream stream, std::function<void()> work);
// The GPU whose context is current on this thread; -1: none.
int fake_gpu_current();
// FAKE_GPU_WRONG="GPU:copy" or "GPU:kernel": whether the current GPU gets that wrong.
bool fake_gpu_wrong(const char* what);
// Groups that this process has launched in NCCL.
int fake_nccl_launches();
// Bytes that NCCL's broadcasts have brought to this process from others.
std::size_t fake_nccl_broadcast_to_here();
