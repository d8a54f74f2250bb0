// What dlaunch-bench measures: the collectives with their buffers, and inputs whose results are
// known exactly in every dtype, so that a wrong element is a wrong element and not a rounding.
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
  bool out_of_place;  // has a form whose input and output differ
  bool in_place;
  bool in_parts, out_parts;  // a rank's input, or output, has a part for each rank
  bool rooted;
};
const std::vector<KindInfo>& kinds();
const KindInfo& info(Kind kind);
// "all_reduce", or nccl-tests' "all_reduce_perf"; nullptr if there is none such.
const KindInfo* find_kind(std::string name);

extern const std::vector<std::string> kDtypeNames;  // index: dl_dtype; nccl-tests' words
extern const std::vector<std::string> kOpNames;     // index: dl_op

// One size of one collective. `bytes` is the larger of what a rank gives and gets, as nccl-tests
// counts it; the actual size is a multiple of the elements and ranks and may be a little smaller.
struct Case {
  Kind kind = Kind::all_reduce;
  dl_dtype dtype = DL_FLOAT32;
  dl_op op = DL_SUM;
  int root = 0;
  std::size_t count = 0;  // elements, per rank where ranks have parts
  std::size_t bytes = 0;
};
Case make_case(Kind kind, dl_dtype dtype, dl_op op, int root, std::size_t bytes, int ranks);

// busbw / algbw, as nccl-tests' PERFORMANCE.md derives it.
double bus_factor(Kind kind, int ranks);

// Zeroed memory of one rank.
using Memory = std::unique_ptr<char[], std::function<void(char*)>>;

// The buffers of one rank, large enough for every case up to max_bytes.
class Buffers {
 public:
  // comm: whose dl_alloc() they come from, collectively; null: from nobody's.
  // Throws std::bad_alloc, then on all ranks alike.
  // on_gpu: the collectives get twins of them in device memory, after use_gpu().
  Buffers(int rank, int ranks, std::size_t max_bytes, dl_comm* comm = nullptr, bool on_gpu = false);

  // Writes the input where this form of the collective takes it, and something else into the
  // output.
  void fill(const Case& c, bool in_place);
  // Runs it once.
  dl_result run(dl_comm* comm, const Case& c, bool in_place);
  // What it is given.
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
