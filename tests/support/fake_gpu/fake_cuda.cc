// An imitation of libcuda.so.1 for tests: see fake_gpu.h.
#include <sys/mman.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "fake_gpu.h"

namespace {

constexpr int kGpus = 8;

// -- Memory

struct Block {
  std::size_t bytes;
  char* view;
  int gpu;
};

struct Memory {
  std::mutex mutex;
  std::map<const char*, Block> device;
  std::map<const char*, std::size_t> pinned;
};

// Work of all streams that is not done, by number.
struct Pending {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::uint64_t> numbers;
  std::uint64_t next = 0;

  std::uint64_t begin() {
    const std::lock_guard lock(mutex);
    numbers.insert(next);
    return next++;
  }
  void end(std::uint64_t number) {
    const std::lock_guard lock(mutex);
    numbers.erase(number);
    changed.notify_all();
  }
  void await_present() {
    std::unique_lock lock(mutex);
    const std::uint64_t until = next;
    changed.wait(lock, [&] { return numbers.empty() || *numbers.begin() >= until; });
  }
};

Pending& pending() {
  static Pending* const the = new Pending;
  return *the;
}

Memory& memory() {
  static Memory* const the = new Memory;
  return *the;
}

// The block around `address`, and the offset inside; under the mutex.
const Block* block_of(const void* address, std::size_t& inside) {
  auto& blocks = memory().device;
  auto next = blocks.upper_bound(static_cast<const char*>(address));
  if (next == blocks.begin()) return nullptr;
  --next;
  inside = static_cast<std::size_t>(static_cast<const char*>(address) - next->first);
  return inside < next->second.bytes ? &next->second : nullptr;
}

bool is_pinned(const void* address) {
  const std::lock_guard lock(memory().mutex);
  auto next = memory().pinned.upper_bound(static_cast<const char*>(address));
  if (next == memory().pinned.begin()) return false;
  --next;
  return static_cast<const char*>(address) < next->first + next->second;
}

}  // namespace

void* fake_gpu_view(const void* address) {
  const std::lock_guard lock(memory().mutex);
  std::size_t inside = 0;
  const Block* const block = block_of(address, inside);
  return block == nullptr ? nullptr : block->view + inside;
}

// -- Contexts

struct CUctx_st {
  int gpu;
};

namespace {

CUctx_st contexts[kGpus] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
thread_local std::vector<CUcontext> t_current;

}  // namespace

int fake_gpu_current() { return t_current.empty() ? -1 : t_current.back()->gpu; }

// -- Streams and events

struct CUstream_st {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  bool closing = false;
  std::thread thread;  // last: it uses the others

  CUstream_st() : thread([this] { main(); }) {}
  void main() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return closing || !work.empty(); });
      if (work.empty()) return;
      const auto next = std::move(work.front());
      work.pop_front();
      lock.unlock();
      next();
      lock.lock();
    }
  }
  void push(std::function<void()> next) {
    const std::lock_guard lock(mutex);
    work.push_back(std::move(next));
    changed.notify_all();
  }
};

namespace {

// An event's state while streams may still reach it.
struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0, passed = 0;
};

CUstream stream_or_default(CUstream stream) {
  static CUstream const legacy = new CUstream_st;
  return stream != nullptr ? stream : legacy;
}

}  // namespace

struct CUevent_st {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

void fake_gpu_enqueue(CUstream stream, std::function<void()> work) {
  const std::uint64_t number = pending().begin();
  stream_or_default(stream)->push([number, work = std::move(work)] {
    work();
    pending().end(number);
  });
}

// -- The driver's functions

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }

CUresult cuGetErrorString(CUresult result, const char** text) {
  *text = result == CUDA_ERROR_INVALID_VALUE ? "invalid argument" : "an error of the fake driver";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal < 0 || ordinal >= kGpus) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = kGpus;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::strncpy(name, "fake GPU", static_cast<std::size_t>(size));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  std::memset(uuid, 0, sizeof *uuid);
  uuid->bytes[0] = static_cast<char>(device + 1);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = &contexts[device];
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }

CUresult cuCtxPushCurrent(CUcontext context) {
  t_current.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  if (t_current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = t_current.back();
  t_current.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr pointer) {
  const std::lock_guard lock(memory().mutex);
  std::size_t inside = 0;
  const Block* const block = block_of(reinterpret_cast<const void*>(pointer), inside);
  for (unsigned i = 0; i < n; ++i) {
    if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
      *static_cast<unsigned*>(values[i]) = block != nullptr ? CU_MEMORYTYPE_DEVICE : 0;
    } else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
      *static_cast<int*>(values[i]) = block != nullptr ? block->gpu : -2;
    } else {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* pointer, std::size_t bytes) {
  if (fake_gpu_current() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  const std::size_t whole = (bytes + 4095) / 4096 * 4096;
  const int fd = ::memfd_create("fake GPU memory", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(whole)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const address = ::mmap(nullptr, whole, PROT_NONE, MAP_SHARED, fd, 0);
  void* const view = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (address == MAP_FAILED || view == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(memory().mutex);
  memory().device[static_cast<char*>(address)] = {whole, static_cast<char*>(view),
                                                  fake_gpu_current()};
  *pointer = reinterpret_cast<CUdeviceptr>(address);
  return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr pointer) {
  const std::lock_guard lock(memory().mutex);
  const auto block = memory().device.find(reinterpret_cast<const char*>(pointer));
  if (block == memory().device.end()) return CUDA_ERROR_INVALID_VALUE;
  ::munmap(const_cast<char*>(block->first), block->second.bytes);
  ::munmap(block->second.view, block->second.bytes);
  memory().device.erase(block);
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  *pointer = std::malloc(bytes);
  if (*pointer == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(memory().mutex);
  memory().pinned[static_cast<char*>(*pointer)] = bytes;
  return CUDA_SUCCESS;
}

// Like the driver's, waits for all that the GPU has to do.
CUresult cuMemFreeHost(void* pointer) {
  pending().await_present();
  const std::lock_guard lock(memory().mutex);
  if (memory().pinned.erase(static_cast<char*>(pointer)) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::free(pointer);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  if (fake_gpu_current() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  *stream = new CUstream_st;
  return CUDA_SUCCESS;
}

// Returns at once, like the driver's; the stream's work is done all the same.
CUresult cuStreamDestroy(CUstream stream) {
  std::thread([stream] {
    {
      const std::lock_guard lock(stream->mutex);
      stream->closing = true;
      stream->changed.notify_all();
    }
    stream->thread.join();
    delete stream;
  }).detach();
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  std::mutex mutex;
  std::condition_variable changed;
  bool passed = false;
  fake_gpu_enqueue(stream, [&] {
    const std::lock_guard lock(mutex);
    passed = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return passed; });
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = new CUevent_st;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  delete event;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  if (fake_gpu_current() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  const auto state = event->state;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(state->mutex);
    number = ++state->recorded;
  }
  fake_gpu_enqueue(stream, [state, number] {
    const std::lock_guard lock(state->mutex);
    state->passed = number;
    state->changed.notify_all();
  });
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event) {
  const std::lock_guard lock(event->state->mutex);
  return event->state->passed == event->state->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  const auto state = event->state;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(state->mutex);
    number = state->recorded;
  }
  fake_gpu_enqueue(stream, [state, number] {
    std::unique_lock lock(state->mutex);
    state->changed.wait(lock, [&] { return state->passed >= number; });
  });
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  const void* const view = fake_gpu_view(reinterpret_cast<const void*>(from));
  if (view == nullptr || !is_pinned(to)) return CUDA_ERROR_INVALID_VALUE;
  fake_gpu_enqueue(stream, [=] { std::memcpy(to, view, bytes); });
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  void* const view = fake_gpu_view(reinterpret_cast<const void*>(to));
  if (view == nullptr || !is_pinned(from)) return CUDA_ERROR_INVALID_VALUE;
  fake_gpu_enqueue(stream, [=] { std::memcpy(view, from, bytes); });
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  void* const view = fake_gpu_view(reinterpret_cast<const void*>(to));
  const void* const source = fake_gpu_view(reinterpret_cast<const void*>(from));
  if (view == nullptr || source == nullptr) return CUDA_ERROR_INVALID_VALUE;
  fake_gpu_enqueue(stream, [=] { std::memmove(view, source, bytes); });
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  void* const view = fake_gpu_view(reinterpret_cast<const void*>(to));
  if (view == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(view, from, bytes);
  if (fake_gpu_wrong("copy")) static_cast<char*>(view)[5] ^= 1;
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  const void* const view = fake_gpu_view(reinterpret_cast<const void*>(from));
  if (view == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(to, view, bytes);
  return CUDA_SUCCESS;
}
