// ListPacker: carries out a call on a list of tensors for planes that need one buffer. The extra
// copy is cheap beside those that sockets make.
#pragma once

#include <algorithm>
#include <vector>

#include "ring/call/plane.h"
#include "ring/kernels/copy.h"

namespace dlaunch {

class ListPacker {
 public:
  // run(contiguous call) -> Result<void>
  template <class Run>
  Result<void> run(const Call& call, Run run) {
    const std::size_t element = dtype_bytes(call.dtype);
    packed_.resize(std::max(packed_.size(), call.count * element));
    const auto each = [&](auto move) {
      for (std::size_t i = 0, begin = 0; i < call.list->ends.size(); begin = call.list->ends[i++]) {
        move(i, packed_.data() + begin * element, (call.list->ends[i] - begin) * element);
      }
    };
    each([&](std::size_t i, std::byte* at, std::size_t bytes) {
      copy_cached(at, call.list->in[i], bytes);
    });
    Call contiguous = call;
    contiguous.list = nullptr;
    contiguous.in = contiguous.out = packed_.data();
    if (Result<void> done = run(contiguous); !done) return done;
    each([&](std::size_t i, const std::byte* at, std::size_t bytes) {
      copy_cached(call.list->out[i], at, bytes);
    });
    return {};
  }

 private:
  std::vector<std::byte> packed_;  // keeps its memory
};

}  // namespace dlaunch
