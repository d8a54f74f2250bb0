// Buffers on a GPU for dlaunch-bench: the host's own, filled and checked as ever, have a twin in
// device memory, which the collectives are given. The CUDA driver is found at run time.
#pragma once

#include <cstddef>
#include <string>

namespace bench {

// Makes GPU number `local_rank`, or from the first again where there are fewer, the one that all
// memory from now on is on. "" or why there is none.
std::string use_gpu(int local_rank);

// The 16 bytes of its UUID, into `uuid`. False: the driver does not say.
bool gpu_uuid(char* uuid);
// Until all is done that was put into its default stream. Throws std::runtime_error.
void await_gpu();

class GpuMemory {
 public:
  // Throws std::bad_alloc. After use_gpu().
  explicit GpuMemory(std::size_t bytes);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  char* get() const { return reinterpret_cast<char*>(address_); }
  // All of it, and back. Throws std::runtime_error where the driver refuses.
  void write(const void* host);
  void read(void* host) const;

 private:
  unsigned long long address_ = 0;
  std::size_t bytes_;
};

}  // namespace bench
