// Buffers on a GPU for dlaunch-bench: each host buffer, filled and checked as usual, has a twin in
// device memory, which the collectives get. The CUDA driver is found at run time.
#pragma once

#include <cstddef>
#include <string>

namespace bench {

// Selects the GPU for all later memory: number `local_rank`, modulo the number of GPUs. Returns
// "", or why there is none.
std::string use_gpu(int local_rank);

// Copies the 16 bytes of its UUID to `uuid`. False: the driver does not say.
bool gpu_uuid(char* uuid);
// Waits until its default stream is empty. Throws std::runtime_error.
void await_gpu();

class GpuMemory {
 public:
  // Throws std::bad_alloc. Call it after use_gpu().
  explicit GpuMemory(std::size_t bytes);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  char* get() const { return reinterpret_cast<char*>(address_); }
  // Copy all of it, there and back. Throws std::runtime_error if the driver refuses.
  void write(const void* host);
  void read(void* host) const;

 private:
  unsigned long long address_ = 0;
  std::size_t bytes_;
};

}  // namespace bench
