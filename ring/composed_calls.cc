// Collectives that the planes lack, as steps that they have. Each rank owns a slice of the
// elements. It gets that slice of all ranks' values, reduces it, and gives each rank its result: so
// the ranks move as many bytes as in a ring's all_reduce. For small calls every rank gets
// everything. all_reduce_shards: ring/call/shard_tree.h has the order. scan, exscan: from rank to
// rank. compressed_average: ring/compress/encoded_average.h. all_reduce_some: ring/some_calls.cc.
// Reductions by a function that does not commute, and those of 8-bit floats, which are rounded
// once, where the plane does not keep the order of ranks: in that order.
//
// A sum of products is no call of its own: this rank's values are multiplied on their way into any
// of the calls.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/even_share.h"
#include "ring/call/overlap.h"
#include "ring/call/shard_tree.h"
#include "ring/call/slices.h"
#include "ring/communicator.h"
#include "ring/compress/encoded_average.h"
#include "ring/kernels/reduce.h"

namespace dlaunch {
namespace {

// A rank's virtual shards as nodes, from the caller's memory.
ShardReducer::Known own_shards(const ShardInput& input, int rank, int ranks) {
  const ShardRange own = shard_range(input.shards, rank, ranks);
  return [&input, own](ShardNode node) -> const void* {
    if (node.level > 0 || node.index < own.first || node.index >= own.last) return nullptr;
    return input.in[static_cast<std::size_t>(node.index - own.first)];
  };
}

// Nodes of all ranks that lie end to end, each with as many bytes, in the order of ranks.
class ReceivedNodes {
 public:
  ReceivedNodes(const ShardMoves& moves, const std::byte* at, std::size_t bytes) {
    for (const auto& of_rank : moves.nodes) {
      for (const ShardNode node : of_rank) {
        places_[node] = at;
        at += bytes;
      }
    }
  }
  const void* operator()(ShardNode node) const {
    const auto found = places_.find(node);
    return found == places_.end() ? nullptr : found->second;
  }

 private:
  std::map<ShardNode, const void*> places_;
};

Within within_steps_of(Collective collective) {
  switch (collective) {
    case Collective::scan:
      return Within::scan;
    case Collective::exscan:
      return Within::exscan;
    case Collective::all_reduce_shards:
      return Within::all_reduce_shards;
    case Collective::compressed_average:
      return Within::compressed_average;
    default:
      return Within::in_order;
  }
}

// A hash of the values that must be equal on all ranks: Call::layout of the steps.
std::uint64_t layout_in(const Call& call, int ranks) {
  if (call.shards != nullptr || call.compression != nullptr) return call.layout;
  if (is_composed(call.collective)) return layout_of({}, call.count, call.op);
  const CallSignature signature = signature_of(call, ranks);
  return layout_of({.shards = call.root}, signature.count ^ signature.packed, call.op);
}

Call step_of_call(const Call& call, Collective collective, int ranks) {
  Call step{.collective = collective, .dtype = call.dtype};
  step.layout = layout_in(call, ranks);
  make_step(step, call, within_steps_of(call.collective));
  return step;
}

// What a rank gives and takes, where each rank's `in` has its nodes' part of one slice after the
// other.
Splits splits_of(const ShardMoves& moves, int rank) {
  const auto own = static_cast<std::size_t>(rank);
  const Part& slice = moves.slices[own];
  std::vector<std::size_t> given, taken, from;
  std::size_t most_nodes = 0, longest = 0;
  for (std::size_t r = 0; r < moves.nodes.size(); ++r) {
    const std::size_t come = moves.nodes[r].size();
    given.push_back(moves.nodes[own].size() * moves.slices[r].count);
    taken.push_back(come * slice.count);
    from.push_back(come * slice.first);
    most_nodes = std::max(most_nodes, come);
    longest = std::max(longest, moves.slices[r].count);
  }
  const auto ranks = static_cast<int>(moves.nodes.size());
  return {.rank = rank,
          .given = parts_of(given.data(), ranks),
          .taken = parts_of(taken.data(), ranks),
          .from = std::move(from),
          .longest = most_nodes * longest};
}

// Replaces each of these parts of `count` elements by the reduction of all parts up to it.
void add_prefixes(std::byte* parts, std::size_t number, std::size_t count, dl_dtype dtype,
                  dl_op op) {
  const std::size_t element = dtype_bytes(dtype), block = kCacheBlockBytes / element;
  for (std::size_t done = 0; done < count; done += block) {
    for (std::size_t i = 1; i < number; ++i) {
      std::byte* const out = parts + (i * count + done) * element;
      const std::array<const void*, 2> both{out - count * element, out};
      reduce(both, out, std::min(block, count - done), dtype, op, 0);
    }
  }
}

// Values of `number` ranks, end to end.
std::vector<const void*> places_in(const std::byte* at, std::size_t number, std::size_t bytes) {
  std::vector<const void*> places;
  for (std::size_t r = 0; r < number; ++r) places.push_back(at + r * bytes);
  return places;
}

// Each rank gives to each other rank its values of that one's slice, and takes those of its own.
Splits splits_by(const std::vector<Part>& slices, int rank) {
  const auto [first, count] = slices[static_cast<std::size_t>(rank)];
  const std::vector<std::size_t> alike(slices.size(), count);
  const auto longest = std::max_element(slices.begin(), slices.end(),
                                        [](auto& a, auto& b) { return a.count < b.count; });
  return {.rank = rank,
          .given = slices,
          .taken = parts_of(alike.data(), static_cast<int>(slices.size())),
          .from = std::vector<std::size_t>(slices.size(), first),
          .longest = longest->count};
}

// What each rank reduces of a reduction in the order of ranks.
std::vector<Part> slices_in(const Call& call, int ranks) {
  if (call.collective != Collective::reduce_scatter) return slices_of(call.count, ranks);
  const std::vector<std::size_t> alike(static_cast<std::size_t>(ranks), call.count);
  return parts_of(call.counts != nullptr ? call.counts : alike.data(), ranks);
}

}  // namespace

Result<void> Communicator::check_shards(const Call& call) {
  const auto wrong = [](const char* what) {
    return usage_error(std::string("all_reduce_shards: ") + what);
  };
  const std::size_t bytes = call.count * dtype_bytes(call.dtype);
  if (bytes > PTRDIFF_MAX / DL_MOST_SHARDS) return wrong("count is too large");
  if (bytes == 0) return {};
  const MemoryRange out{static_cast<const char*>(call.out), bytes};
  if (call.out == nullptr) return wrong("out is null");
  for (const void* shard : call.shards->in) {
    if (shard == nullptr) return wrong("the values of a shard are null");
    const MemoryRange in{static_cast<const char*>(shard), bytes};
    if (shard != call.out && in.overlaps(out)) {
      return wrong("out overlaps a shard's values without being the same buffer");
    }
  }
  return {};
}

std::string Communicator::composition_of(const Call& call) const {
  if (call.collective == Collective::all_reduce_some) {
    return "a sum of those that have come, for slices, each by its owner among them";
  }
  const bool in_order = !is_composed(call.collective);
  std::string text = in_order ? "a reduction in the order of ranks" : "prefixes from rank to rank";
  auto parts = static_cast<std::size_t>(job_.size);
  if (call.shards != nullptr) {
    text = fmt::format("a tree over {} virtual shards", call.shards->shards);
    parts = shard_moves(ShardTree(call.shards->shards), job_.size, 0, 1).all_nodes();
  } else if (call.collective == Collective::all_reduce_shards) {
    text = "a tree over the virtual shards";
  } else if (call.collective == Collective::compressed_average) {
    return "encoded slices, which their owners add in the order of ranks";
  }
  const bool everywhere = (!in_order || call.collective == Collective::all_reduce) &&
                          goes_to_all(call.count * dtype_bytes(call.dtype), parts);
  return text + (everywhere ? ", on every rank" : ", for slices, each by its owner");
}

// The values of a sum of products, which goes on as a sum. `out` of an all_reduce has room for
// them.
Result<void> Communicator::run_multiplied(Call call) {
  const std::size_t element = dtype_bytes(call.dtype);
  const auto products = [&](const void* in, void* out, std::size_t count) {
    scale(in, out, count, call.dtype, call.program_op->factor);
    return out;
  };
  const auto room = [&](std::size_t count) { return room_in(products_, count * element); };
  TensorList list;
  ShardInput shards;
  if (call.list != nullptr) {
    list = *call.list;
    for (std::size_t i = 0, begin = 0; i < list.ends.size(); begin = list.ends[i++]) {
      list.in[i] = products(list.in[i], list.out[i], list.ends[i] - begin);
    }
    call.list = &list;
  } else if (call.shards != nullptr) {
    shards = *call.shards;
    std::byte* at = room(shards.in.size() * call.count);
    for (const void*& values : shards.in) {
      values = products(values, at, call.count);
      at += call.count * element;
    }
    call.shards = &shards;
  } else if (call.collective == Collective::all_reduce) {
    call.in = products(call.in, call.out, call.count);
  } else {
    const std::size_t count = in_count(shape_of(call, job_.size), job_.rank, job_.size);
    call.in = products(call.in, room(count), count);
  }
  call.program_op = nullptr;
  return run_on_host(call);
}

Result<void> Communicator::run_composed(const Call& call) {
  if (!is_composed(call.collective)) return run_in_order(call);
  if (call.collective == Collective::compressed_average) return run_compressed(call);
  if (call.collective == Collective::all_reduce_some) return run_some(call);
  return call.collective == Collective::all_reduce_shards ? run_shards(call) : run_scan(call);
}

Result<void> Communicator::run_shards(const Call& call) {
  const ShardTree tree(call.shards->shards);
  const ShardMoves moves = shard_moves(tree, job_.size, call.count, dtype_bytes(call.dtype));
  return moves.to_all ? gather_and_reduce(call, tree, moves) : reduce_slices(call, tree, moves);
}

Result<void> Communicator::gather_and_reduce(const Call& call, const ShardTree& tree,
                                             const ShardMoves& moves) {
  ShardReducer reducer(tree, call.dtype, call.op);
  const auto own_values = own_shards(*call.shards, job_.rank, job_.size);
  if (job_.size == 1) {
    reducer.reduce(tree.root(), own_values, 0, call.count, call.out);
    return {};
  }
  const std::size_t bytes = call.count * dtype_bytes(call.dtype);
  std::vector<std::size_t> counts;
  std::byte* at = room_in(step_memory_, moves.all_nodes() * bytes);
  Call gather = step_of_call(call, Collective::all_gather, job_.size);
  gather.out = step_memory_.data();
  for (int r = 0; r < job_.size; ++r) {
    if (r == job_.rank) gather.in = at;
    const auto& nodes = moves.nodes[static_cast<std::size_t>(r)];
    counts.push_back(nodes.size() * call.count);
    for (const ShardNode node : nodes) {
      if (r == job_.rank) reducer.reduce(node, own_values, 0, call.count, at);
      at += bytes;
    }
  }
  gather.counts = counts.data();
  gather.count = counts[static_cast<std::size_t>(job_.rank)];
  if (auto done = run_step(gather); !done) return done;
  const ReceivedNodes received(moves, step_memory_.data(), bytes);
  reducer.reduce(tree.root(), received, 0, call.count, call.out);
  return {};
}

Result<void> Communicator::reduce_slices(const Call& call, const ShardTree& tree,
                                         const ShardMoves& moves) {
  const std::size_t element = dtype_bytes(call.dtype);
  const auto own = static_cast<std::size_t>(job_.rank);
  const auto& own_nodes = moves.nodes[own];
  const auto [first, count] = moves.slices[own];
  const std::size_t sent = own_nodes.size() * call.count * element;
  const bool as_given = own_nodes.size() == 1 && own_nodes.front().level == 0;
  room_in(step_memory_, moves.all_nodes() * count * element + (as_given ? 0 : sent));
  ShardReducer reducer(tree, call.dtype, call.op);
  const Splits splits = splits_of(moves, job_.rank);
  Call exchange = step_of_call(call, Collective::all_to_all, job_.size);
  exchange.in = as_given ? call.shards->in.front() : step_memory_.data();
  exchange.out = step_memory_.data() + (as_given ? 0 : sent);
  exchange.splits = &splits;
  exchange.count = splits.average();
  if (!as_given) {
    const auto own_values = own_shards(*call.shards, job_.rank, job_.size);
    std::byte* at = step_memory_.data();
    for (const auto& slice : moves.slices) {
      for (const ShardNode node : own_nodes) {
        reducer.reduce(node, own_values, slice.first, slice.count, at);
        at += slice.count * element;
      }
    }
  }
  if (auto done = run_step(exchange); !done) return done;
  const ReceivedNodes received(moves, static_cast<const std::byte*>(exchange.out), count * element);
  auto* const slice_out = static_cast<std::byte*>(call.out) + first * element;
  reducer.reduce(tree.root(), received, 0, count, slice_out);
  return give_slices(call, moves.slices, slice_out);
}

// Every rank gets all ranks' values, end to end in step_memory_.
Result<void> Communicator::take_values(const Call& call) {
  const std::size_t bytes = call.count * dtype_bytes(call.dtype);
  Call gather = step_of_call(call, Collective::all_gather, job_.size);
  gather.in = call.in;
  gather.out = room_in(step_memory_, static_cast<std::size_t>(job_.size) * bytes);
  gather.count = call.count;
  return run_step(gather);
}

// Each rank gets all ranks' values of its slice, end to end in step_memory_.
Result<void> Communicator::take_slice(const Call& call, const std::vector<Part>& slices) {
  const Splits splits = splits_by(slices, job_.rank);
  const std::size_t bytes = splits.taken.front().count * dtype_bytes(call.dtype);
  Call exchange = step_of_call(call, Collective::all_to_all, job_.size);
  exchange.in = call.in;
  exchange.out = room_in(step_memory_, static_cast<std::size_t>(job_.size) * bytes);
  exchange.splits = &splits;
  exchange.count = splits.average();
  return run_step(exchange);
}

// Each rank gives its result of its slice to all ranks, or to the root of a reduce.
Result<void> Communicator::give_slices(const Call& call, const std::vector<Part>& slices,
                                       const void* result) {
  std::vector<std::size_t> counts(slices.size());
  std::transform(slices.begin(), slices.end(), counts.begin(),
                 [](const Part& slice) { return slice.count; });
  const bool to_root = call.collective == Collective::reduce;
  Call gather =
      step_of_call(call, to_root ? Collective::gather : Collective::all_gather, job_.size);
  gather.in = result;
  gather.out = call.out;
  gather.counts = counts.data();
  gather.count = counts[static_cast<std::size_t>(job_.rank)];
  gather.root = call.root;
  return run_step(gather);
}

Result<void> Communicator::run_compressed(const Call& call) {
  const auto* const in = static_cast<const float*>(call.in);
  auto* const out = static_cast<float*>(call.out);
  float* const residual = call.compression->residual;
  if (job_.size == 1) {
    EncodedAverage::alone(in, residual, call.count, out);
    return {};
  }
  const EncodedAverage average(call.compression->codec, call.count, job_.rank, job_.size);
  Call bytes = call;
  bytes.in = bytes.out = room_in(encoded_, average.bytes());
  bytes.dtype = DL_UINT8;
  average.encode(in, residual, encoded_.data());
  if (auto done = take_slice(bytes, average.slices()); !done) return done;
  std::byte* const own = encoded_.data() + average.own_slice().first;
  average.add_up(step_memory_.data(), in, residual, own);
  if (auto done = give_slices(bytes, average.slices(), own); !done) return done;
  average.decode(encoded_.data(), out);
  return {};
}

// Rank 0 gets nothing from an exscan.
Result<void> Communicator::run_scan(const Call& call) {
  const bool exclusive = call.collective == Collective::exscan;
  const std::size_t element = dtype_bytes(call.dtype), bytes = call.count * element;
  const auto n = static_cast<std::size_t>(job_.size), own = static_cast<std::size_t>(job_.rank);
  if (n == 1) {
    if (!exclusive && bytes > 0) std::memmove(call.out, call.in, bytes);
    return {};
  }
  if (!goes_to_all(bytes, n)) return scan_slices(call);
  if (auto done = take_values(call); !done) return done;
  add_prefixes(step_memory_.data(), own + 1, call.count, call.dtype, call.op);
  if (exclusive && own == 0) return {};
  if (bytes > 0) {
    std::memcpy(call.out, step_memory_.data() + (own - (exclusive ? 1 : 0)) * bytes, bytes);
  }
  return {};
}

Result<void> Communicator::scan_slices(const Call& call) {
  const auto n = static_cast<std::size_t>(job_.size), own = static_cast<std::size_t>(job_.rank);
  const std::size_t skipped = call.collective == Collective::exscan ? 1 : 0;
  const std::vector<Part> slices = slices_of(call.count, job_.size);
  const std::size_t count = slices[own].count;
  // Rank r gets the prefix of the rank before it from an exscan, and rank 0 nothing.
  const auto prefix = [skipped](std::size_t rank, std::size_t length) {
    return rank < skipped ? Part{} : Part{(rank - skipped) * length, length};
  };
  Splits go{.rank = job_.rank,
            .given = {},
            .taken = own < skipped ? std::vector<Part>(n) : slices,
            .from = {},
            .longest = slices.front().count};
  for (std::size_t r = 0; r < n; ++r) {
    go.given.push_back(prefix(r, count));
    go.from.push_back(prefix(own, slices[r].count).first);
  }
  if (auto done = take_slice(call, slices); !done) return done;
  add_prefixes(step_memory_.data(), n, count, call.dtype, call.op);
  Call exchange = step_of_call(call, Collective::all_to_all, job_.size);
  exchange.in = step_memory_.data();
  exchange.out = call.out;
  exchange.splits = &go;
  exchange.count = go.average();
  return run_step(exchange);
}

Result<void> Communicator::run_in_order(const Call& call) {
  if (call.list != nullptr) {
    return packer_.run(call, [this](const Call& packed) { return run_in_order(packed); });
  }
  const auto n = static_cast<std::size_t>(job_.size);
  const bool to_all = call.collective == Collective::all_reduce &&
                      goes_to_all(call.count * dtype_bytes(call.dtype), n);
  return to_all ? gather_in_order(call) : reduce_in_order(call);
}

Result<void> Communicator::gather_in_order(const Call& call) {
  const auto n = static_cast<std::size_t>(job_.size);
  const std::size_t bytes = call.count * dtype_bytes(call.dtype);
  if (auto done = take_values(call); !done) return done;
  reduce(places_in(step_memory_.data(), n, bytes), call.out, call.count, call.dtype, call.op,
         job_.size);
  return {};
}

// The owner of a slice keeps the result (reduce_scatter) or gives it to the rank or the ranks that
// want it.
Result<void> Communicator::reduce_in_order(const Call& call) {
  const std::size_t element = dtype_bytes(call.dtype);
  const auto n = static_cast<std::size_t>(job_.size), own = static_cast<std::size_t>(job_.rank);
  const bool keeps = call.collective == Collective::reduce_scatter;
  const bool in_out = call.collective == Collective::all_reduce || job_.rank == call.root;
  const std::vector<Part> slices = slices_in(call, job_.size);
  const auto [first, count] = slices[own];
  room_in(step_memory_, (n + 1) * count * element);
  if (auto done = take_slice(call, slices); !done) return done;
  std::byte* const result = keeps    ? static_cast<std::byte*>(call.out)
                            : in_out ? static_cast<std::byte*>(call.out) + first * element
                                     : step_memory_.data() + n * count * element;
  reduce(places_in(step_memory_.data(), n, count * element), result, count, call.dtype, call.op,
         job_.size);
  return keeps ? Result<void>() : give_slices(call, slices, result);
}

}  // namespace dlaunch
