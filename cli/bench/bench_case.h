// The cases that dlaunch-bench measures: the collectives with their buffers, and inputs with exact
// results in every dtype, so that a wrong element is an error and not a rounding.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <dlaunch/ring.h>

#include "cli/bench/gpu_memory.h"

namespace bench {

enum class Kind {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  sendrecv,
  barrier
};

struct KindInfo {
  Kind kind;
  const char* name;
  bool reduces;       // takes an op
  bool out_of_place;  // has an out-of-place form
  bool in_place;
  bool in_parts, out_parts;  // a rank's input, or output, has a part for each rank
  bool rooted;
};
const std::vector<KindInfo>& kinds();
const KindInfo& info(Kind kind);
// "all_reduce", or nccl-tests' "all_reduce_perf"; nullptr: unknown.
const KindInfo* find_kind(std::string name);

extern const std::vector<std::string> kDtypeNames;  // index: dl_dtype; nccl-tests' words
extern const std::vector<std::string> kOpNames;     // index: dl_op

// One size of one collective. `bytes` is the larger of a rank's input and output, as in
// nccl-tests; the actual size is a multiple of the elements and ranks and may be a little smaller.
struct Case {
  Kind kind = Kind::all_reduce;
  dl_dtype dtype = DL_FLOAT32;
  dl_op op = DL_SUM;
  int root = 0;
  std::size_t count = 0;  // elements, per rank where ranks have parts
  std::size_t bytes = 0;
};
Case make_case(Kind kind, dl_dtype dtype, dl_op op, int root, std::size_t bytes, int ranks);

// busbw / algbw, as in nccl-tests' PERFORMANCE.md.
double bus_factor(Kind kind, int ranks);

// Zeroed memory of one rank.
using Memory = std::unique_ptr<char[], std::function<void(char*)>>;

// The buffers of one rank, large enough for every case up to max_bytes.
class Buffers {
 public:
  // comm: allocates the buffers with dl_alloc(), collectively; null: no dl_alloc(). on_gpu: the
  // collectives get twins of them in device memory, after use_gpu(). Throws std::bad_alloc, then
  // on all ranks alike.
  Buffers(int rank, int ranks, std::size_t max_bytes, dl_comm* comm = nullptr, bool on_gpu = false);

  // Writes the input for this form of the collective, and other values into the output.
  void fill(const Case& c, bool in_place);
  // Runs it once.
  dl_result run(dl_comm* comm, const Case& c, bool in_place);
  // The arguments of the collective.
  struct Given {
    void *in, *out;
  };
  Given given(const Case& c, bool in_place);
  // The same in the background; all_reduce only.
  dl_result start(dl_comm* comm, const Case& c, bool in_place, dl_request** request);
  // Elements of this rank's output that differ from the exact result.
  std::size_t wrong(const Case& c, bool in_place) const;

 private:
  dl_result send_around(dl_comm* comm, const Case& c, const void* in, void* out);
  void* given(char* host) const;
  bool gives_input(const Case& c) const;
  bool gets_output(const Case& c) const;
  char* input(const Case& c, bool in_place);
  char* output(const Case& c, bool in_place);

  int rank_, ranks_;
  std::size_t bytes_;
  Memory in_, out_;
  std::unique_ptr<GpuMemory> gpu_in_, gpu_out_;
};

}  // namespace bench
