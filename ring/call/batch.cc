#include "ring/call/batch.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "ring/call/overlap.h"

namespace dlaunch {
namespace {

struct Used {
  MemoryRange memory;
  bool written;
  std::size_t call;
};

bool is_small(const Call& call) {
  const bool has_lists =
      call.collective == Collective::all_reduce || call.collective == Collective::broadcast;
  // The ranks' numbers of equal functions may differ.
  return has_lists && call.list == nullptr && call.count > 0 && call.op >= DL_SUM &&
         call.op <= DL_BXOR && call.count * dtype_bytes(call.dtype) <= kMostMergedBytes;
}

bool are_of_one_kind(const Call& a, const Call& b) {
  return a.collective == b.collective && a.dtype == b.dtype && a.op == b.op && a.root == b.root;
}

class Uses {
 public:
  void add(const void* at, std::size_t bytes, bool written, std::size_t call) {
    if (bytes > 0 && at != nullptr)
      all_.push_back({{static_cast<const char*>(at), bytes}, written, call});
  }
  // A call that reads and writes, possibly in place.
  void add(MemoryRange in, MemoryRange out, std::size_t call) {
    const bool in_place = in.overlaps(out);
    if (in_place) {
      const char* const begin = std::min(in.begin, out.begin, std::less<>());
      const char* const end = std::max(in.end(), out.end(), std::less<>());
      return add(begin, static_cast<std::size_t>(end - begin), true, call);
    }
    add(in.begin, in.bytes, false, call);
    add(out.begin, out.bytes, true, call);
  }

  // Two calls, if one of them writes what the other one uses.
  std::optional<std::pair<std::size_t, std::size_t>> conflict() {
    std::sort(all_.begin(), all_.end(), [](const Used& a, const Used& b) {
      return std::less<>()(a.memory.begin, b.memory.begin);
    });
    const Used *any = nullptr, *written = nullptr;  // those that end last
    for (const Used& next : all_) {
      for (const Used* const before : {written, next.written ? any : nullptr}) {
        if (before == nullptr || before->call == next.call) continue;
        if (std::less<>()(next.memory.begin, before->memory.end())) {
          return std::minmax(before->call, next.call);
        }
      }
      if (any == nullptr || std::less<>()(any->memory.end(), next.memory.end())) any = &next;
      const bool reaches =
          written == nullptr || std::less<>()(written->memory.end(), next.memory.end());
      if (next.written && reaches) written = &next;
    }
    return std::nullopt;
  }

 private:
  std::vector<Used> all_;
};

void add_list(const Call& call, std::size_t at, Uses& uses) {
  for (std::size_t i = 0, begin = 0; i < call.list->ends.size(); begin = call.list->ends[i++]) {
    const std::size_t bytes = (call.list->ends[i] - begin) * dtype_bytes(call.dtype);
    if (call.list->in[i] != call.list->out[i]) uses.add(call.list->in[i], bytes, false, at);
    uses.add(call.list->out[i], bytes, true, at);
  }
}

void add_call(const Call& call, int rank, int ranks, std::size_t at, Uses& uses) {
  const std::size_t element = dtype_bytes(call.dtype);
  if (call.collective == Collective::broadcast && call.list == nullptr) {
    // On the root, too, although that only reads it: all ranks refuse the same batches.
    return uses.add(call.out, call.count * element, true, at);
  }
  if (call.list != nullptr) return add_list(call, at, uses);
  const Shape shape = shape_of(call, ranks);
  const MemoryRange out{static_cast<const char*>(call.out),
                        out_count(shape, rank, ranks) * element};
  if (call.shards != nullptr) {
    uses.add(out.begin, out.bytes, true, at);
    for (const void* values : call.shards->in) {
      if (values != call.out) uses.add(values, call.count * element, false, at);
    }
    return;
  }
  const MemoryRange in{static_cast<const char*>(call.in), in_count(shape, rank, ranks) * element};
  uses.add(in, out, at);
  if (call.compression != nullptr && call.compression->residual != nullptr) {
    uses.add(call.compression->residual, out.bytes, true, at);
  }
}

std::string_view name_of(const BatchedCall& call) {
  if (!call.is_message) return call_name(call.collective.call);
  return call.message.is_send ? "send" : "recv";
}

}  // namespace

std::vector<std::vector<std::size_t>> merged(const std::deque<BatchedCall>& calls,
                                             const MayMerge& may_merge) {
  std::vector<std::vector<std::size_t>> all;
  std::vector<std::size_t> open_at;  // in `all`: groups that take more calls
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].is_message) continue;
    const Call& call = calls[i].collective.call;
    const bool takes = is_small(call) && may_merge(call);
    const auto like = std::find_if(open_at.begin(), open_at.end(), [&](std::size_t group) {
      return are_of_one_kind(calls[all[group].front()].collective.call, call);
    });
    if (takes && like != open_at.end()) {
      all[*like].push_back(i);
      continue;
    }
    if (takes) open_at.push_back(all.size());
    all.push_back({i});
  }
  return all;
}

TensorList list_of(const std::deque<BatchedCall>& calls, const std::vector<std::size_t>& places) {
  TensorList list;
  std::size_t end = 0;
  for (const std::size_t place : places) {
    const Call& call = calls[place].collective.call;
    list.in.push_back(call.in);
    list.out.push_back(call.out);
    list.ends.push_back(end += call.count);
    list.numbers.push_back(place);
  }
  return list;
}

std::string dependency_in(const std::deque<BatchedCall>& calls, int rank, int ranks) {
  Uses uses;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Message& message = calls[i].message;
    const std::size_t bytes = message.count * dtype_bytes(message.dtype);
    if (!calls[i].is_message) {
      add_call(calls[i].collective.call, rank, ranks, i, uses);
    } else if (message.is_send) {
      uses.add(message.send, bytes, false, i);
    } else {
      uses.add(message.recv, bytes, true, i);
    }
  }
  const auto pair = uses.conflict();
  if (!pair) return "";
  const auto [first, second] = *pair;
  return fmt::format(
      "calls {} ({}) and {} ({}) use the same memory, and one of them writes to it: the calls of a "
      "batch must not depend on each other",
      first + 1, name_of(calls[first]), second + 1, name_of(calls[second]));
}

}  // namespace dlaunch
