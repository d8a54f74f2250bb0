// Plane: one transport for a communicator's data (shared memory, stream sockets). The communicator
// checks arguments, numbers the calls and picks the plane; a plane executes one call at a time on
// the caller's thread. Internal to libdlring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/ring_names.h"
#include "dlaunch/ring.h"
#include "ring/kernels/program_op.h"
#include "ring/kernels/wire_codec.h"

namespace dlaunch {

enum class Collective : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  barrier,
  reduce,
  gather,
  scatter,
  all_to_all,
  // The communicator composes these of the others: planes never see them.
  all_reduce_shards,
  scan,
  exscan,
  compressed_average,
  all_reduce_some,
};

// Properties of a collective, for code that handles all of them alike.
struct CollectiveTraits {
  bool reduces = false;    // takes an op
  bool rooted = false;     // takes a root
  bool in_parts = false;   // `in` has a part of `count` elements for each rank
  bool out_parts = false;  // `out` has one from each rank
  bool in_at_root = false, out_at_root = false;  // only the root has that buffer
};
const CollectiveTraits& traits_of(Collective collective);
// The communicator runs it as several calls of planes.
constexpr bool is_composed(Collective collective) {
  return static_cast<std::size_t>(collective) >= kFirstComposed;
}
static_assert(is_composed(Collective::all_reduce_shards) && !is_composed(Collective::all_to_all));
std::string_view collective_name(Collective collective);
std::optional<Collective> collective_named(std::string_view name);
std::string_view dtype_name(
    dl_dtype dtype);                      // "float32"; the words of nccl-tests: "float", "half" …
std::string_view op_name(dl_op op);       // "sum"
bool dtype_is_float(dl_dtype dtype);      // or complex
std::size_t dtype_bytes(dl_dtype dtype);  // 0 for a value outside the enum

// Tensors that one call treats as one buffer, end to end. All ranks have the same lengths.
struct TensorList {
  std::vector<const void*> in;
  std::vector<void*> out;
  std::vector<std::size_t> ends;     // elements up to the end of each tensor
  std::vector<std::size_t> numbers;  // place in the caller's list, which also counts empty ones
};

// A hash of the tensors' lengths, which must be equal on all ranks like the count; 0: at most one
// tensor.
std::uint64_t layout_of(const TensorList& list);

// Errc::usage if a tensor with elements is null, or the sum of the counts is too large.
Result<TensorList> make_tensor_list(std::size_t tensors, const void* const* in, void* const* out,
                                    const std::size_t* counts);

// For a call with buffers on a GPU; ring/device fills it in.
struct DeviceTask {
  int device = -1;         // CUDA's number of the GPU; -1: host buffers
  void* stream = nullptr;  // CUstream to work in, unless there is
  void* after = nullptr;   // a CUevent to wait for, outside the user's stream
  bool ordered = false;    // the call may return when the stream has it
};

// The call that a collective is part of.
enum class Within : std::uint8_t {
  itself,
  split,
  alloc,
  all_to_all_v,
  verify,
  all_reduce_shards,
  scan,
  exscan,
  in_order,
  compressed_average,
};

// Elements of a buffer.
struct Part {
  std::size_t first = 0;
  std::size_t count = 0;
  bool operator==(const Part&) const = default;
};

// An all_to_all of parts that differ, as one rank knows it. Each rank knows what it gives and
// takes; before the data move the ranks tell each other the rest.
struct Splits {
  int rank = 0;
  std::vector<Part> given;        // elements of `in` for each rank
  std::vector<Part> taken;        // elements of `out` from each rank
  std::vector<std::size_t> from;  // the first element for this rank in each rank's `in`
  std::size_t longest = 0;        // elements of the longest part that a rank gives
  bool operator==(const Splits&) const = default;

  std::size_t given_count() const { return end_of(given); }
  std::size_t taken_count() const { return end_of(taken); }
  // The average length of a given part, rounded up.
  std::size_t average() const { return (given_count() + given.size() - 1) / given.size(); }

 private:
  static std::size_t end_of(const std::vector<Part>& parts) {
    return parts.empty() ? 0 : parts.back().first + parts.back().count;
  }
};
// Parts of these lengths, end to end.
std::vector<Part> parts_of(const std::size_t* counts, int ranks);

// The values of this rank's virtual shards, for an all_reduce over all ranks' shards: see
// ring/call/shard_tree.h.
struct ShardInput {
  int shards = 0;               // of all ranks
  std::vector<const void*> in;  // `count` elements each
};

// How the values of a compressed_average move: see ring/compress/encoded_average.h.
struct Compression {
  WireCodec codec = WireCodec::none;
  float* residual = nullptr;  // null: what is lost is not kept
  std::uint64_t common = 0;   // a hash of what else must be equal on all ranks
};

std::uint64_t hash_of(std::span<const std::size_t> values);
// A hash of what must be equal on all ranks in a composed call: Call::layout of its steps.
std::uint64_t layout_of(const ShardInput& input, std::size_t count, dl_op op);
std::uint64_t layout_of(const Compression& compression, std::size_t count);

// What all_reduce_some takes beside `in`, which is null if this rank gives nothing, and where it
// puts the outcome.
struct SomeTerms {
  int need = 1;
  Duration wait{};
  bool carries = false;
  int max_behind = 0;
  int slot = 0;
  int* given = nullptr;
  dl_fate* fate = nullptr;
};
std::uint64_t layout_of(const SomeTerms& terms, std::size_t count);

// One collective call of one rank, with arguments already checked. Counts as in ring.h.
struct Call {
  Collective collective = Collective::barrier;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  dl_dtype dtype = DL_UINT8;
  dl_op op = DL_SUM;
  int root = -1;          // for rooted collectives
  std::uint64_t seq = 0;  // number of this collective on the communicator, from 1
  TimePoint deadline = kNever;
  // Elements of each rank's part, for all_gather, gather, scatter and reduce_scatter of parts that
  // differ; `count` is then this rank's own. Null: all parts have `count`.
  const std::size_t* counts = nullptr;
  // An all_to_all of parts that differ; `count` is then the average length of a given part.
  const Splits* splits = nullptr;
  // all_reduce_shards: the values of this rank's shards, in place of `in`.
  const ShardInput* shards = nullptr;
  const Compression* compression = nullptr;  // compressed_average
  const SomeTerms* some = nullptr;           // for all_reduce_some
  // all_reduce and broadcast: where the `count` elements lie, in place of `in` and `out`.
  const TensorList* list = nullptr;
  std::uint64_t layout = 0;  // of the list; stays when its tensors have been packed together. Or
                             // a hash of what ranks must have in common beside the other fields
  // The participating ranks, ascending, `root` among them; null: all. Other ranks make other calls
  // meanwhile. Only some planes take it, and say so.
  const std::vector<int>* members = nullptr;
  // The user's call that this one is a step of; null: this is the user's call. For error texts.
  const Call* step_of = nullptr;
  TimePoint begun{};  // for error texts; of the user's call where this is a step
  DeviceTask task;
  std::uint16_t past = 0;          // rooted_past() of the communicator; of the user's call
  Within within = Within::itself;  // anything else: only where nothing is reduced
  // What `op` stands for, if the program made it.
  std::shared_ptr<const ProgramOp> program_op = nullptr;
  Duration limit{-1};  // makes `deadline` when the call begins; negative: none
};

// Makes `step` a part of this call, with its number and its limits.
inline void make_step(Call& step, const Call& call, Within within) {
  step.seq = call.seq;
  step.deadline = call.deadline;
  step.begun = call.begun;
  step.past = call.past;
  step.within = within;
}

// What must be equal on every rank for a call to make sense. Planes carry it beside their data so
// that a difference becomes Errc::mismatch naming both ranks instead of a hang or wrong numbers.
struct CallSignature {
  std::uint64_t count = 0;   // with Call::counts: a hash of them; with a list: its layout; with
                             // splits: the longest part, once it is known; Call::layout where it
                             // is not 0
  std::uint32_t packed = 0;  // collective, whether with counts, dtype, op or within, root or past
  std::uint32_t seq = 0;     // low half of Call::seq

  bool operator==(const CallSignature&) const = default;
};
CallSignature signature_of(const Call& call, int ranks);
// A hash of the rooted calls so far, up to `last`. If ranks differ in a root, possibly no rank
// waits for the data. So the next call without a root carries this hash and detects the difference.
std::uint16_t rooted_past(std::uint16_t past, const CallSignature& last);

// The properties of a call that determine its data movements, except where its buffers lie.
struct Shape {
  Collective collective = Collective::barrier;
  std::size_t count = 0;  // as in ring.h; 0 with `counts` or `splits`
  std::size_t element_bytes = 1;
  int root = -1;                                // -1 except for rooted collectives
  std::vector<std::size_t> counts;              // as Call::counts; empty: all parts have `count`
  std::vector<int> members;                     // as Call::members; empty: all ranks
  std::optional<Splits> splits = std::nullopt;  // as Call::splits
  bool in_order = false;                        // needs_order()
  bool in_one_pass = false;                     // sums_may_overflow()
  bool operator==(const Shape&) const = default;
};
Shape shape_of(const Call& call, int ranks);
// Whether one pass over all ranks' values has to make each result: a function does not commute, or
// 8 bits are too few for partial sums, which could leave the range within an average.
bool needs_order(const Call& call);
// Whether a sum of the ranks' values may be out of the type's range although the result is in it:
// for an average of float16. (For one of 8-bit floats needs_order() holds.)
bool sums_may_overflow(const Call& call);

// The longest part that a rank gives another; without parts: `count`.
std::size_t longest_part(const Shape& shape);
// Rank r's part of a buffer with a part for each rank.
Part part_of(const Shape& shape, int r);
// The elements of such a buffer.
std::size_t all_parts(const Shape& shape, int ranks);
// The elements of a rank's buffers, in all parts together; 0 without such a buffer.
std::size_t in_count(const Shape& shape, int rank, int ranks);
std::size_t out_count(const Shape& shape, int rank, int ranks);

// What one rank gives another, or itself, in collectives that only move data: gather, scatter,
// all_gather, all_to_all, broadcast. With splits, one of the two must be this rank, and the other
// end's place is not known: as the giver it is `to`, as the taker `from` until the ranks have told
// each other.
struct Delivery {
  bool exists = false;
  std::size_t from = 0;  // first element in the giver's `in`
  std::size_t to = 0;    // first element in the taker's `out`
  std::size_t count = 0;
};
Delivery delivery(const Shape& shape, int giver, int taker);

// "rank 2 called all_reduce(count 10, float32, sum), rank 0 called broadcast(count 4, int8, root
// 1)"
Error mismatch_error(int rank_a, const CallSignature& a, int rank_b, const CallSignature& b);

// The call as the user knows it.
const Call& users_call(const Call& call);
std::string_view call_name(const Call& call);  // "all_reduce"; "dl_split"

// How long the user has waited in the call.
Duration waited_in(const Call& call, TimePoint now);

// "all_reduce #17 timed out after 30 s: waiting for rank 2, 5; arrived: 0-1, 3-4, 6-7"
Error op_timeout_error(const Call& call, Duration waited, std::string_view missing,
                       std::string_view arrived);

// "all_reduce #17: the function of its operation returned 42 on this rank"
Error named_in(const Call& call, const Error& error);
// without_exceptions() for a call: the text of a Thrown gets the user's call.
template <class Body>
Result<void> without_exceptions_in(const Call& call, Body body) {
  return without_exceptions([&]() -> Result<void> {
    try {
      return body();
    } catch (const Thrown& thrown) {
      return named_in(call, thrown.error());
    }
  });
}

class Plane {
 public:
  virtual ~Plane() = default;
  // Errors are final for the communicator, and so is a Thrown. When the AbortFlag given at
  // construction is raised while waiting, the flag's error is returned within a millisecond.
  virtual Result<void> run(const Call& call) = 0;
  virtual const char* name() const = 0;  // "shm", "tcp"
  // Whether this reduction combines the ranks' values in the order of ranks.
  virtual bool keeps_order(const Call& /*call*/) const { return true; }
  // Whether ranks get what others took in, or reduced, from ranks that had got it themselves.
  virtual bool passes_on(const Call& /*call*/) const { return false; }
  // Describes how run() would do this call; buffers do not matter.
  virtual std::string explain(const Call& call) const = 0;
  // In a forked child: closes the child's copies of its sockets.
  virtual void close_in_child() {}
};

}  // namespace dlaunch
