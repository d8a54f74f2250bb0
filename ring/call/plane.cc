#include "ring/call/plane.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include "base/fnv1a.h"
#include "base/ring_names.h"
#include "base/units.h"
#include "ring/kernels/program_op.h"
#include "ring/kernels/reduce.h"

namespace dlaunch {
namespace {

constexpr std::string_view kWithinNames[] = {"",
                                             "dl_split",
                                             "dl_alloc",
                                             "all_to_all_v",
                                             "a comparison of results",
                                             "all_reduce_shards",
                                             "scan",
                                             "exscan",
                                             "a reduction in the order of ranks",
                                             "compressed_average"};
// CallSignature::packed has 4 bits for the type, and 4 for the operation or Within.
static_assert(std::size(kDtypeNames) == DL_FLOAT8_E5M2 + 1 && DL_FLOAT8_E5M2 < 16);
static_assert(std::size(kOpNames) <= 16 && std::size(kWithinNames) <= 16);
static_assert(op_code(static_cast<dl_op>(kFirstFunction + 1)) + 1 == std::size(kOpNames));
constexpr std::uint32_t kWithCounts = 0x80;  // beside the collective
template <std::size_t N>
std::string_view name_at(const std::string_view (&names)[N], std::size_t index) {
  return index < N ? names[index] : "unknown";
}

Collective collective_of(const CallSignature& s) {
  return static_cast<Collective>(s.packed & (kWithCounts - 1));
}

std::string describe(const CallSignature& s) {
  const bool with_counts = (s.packed & kWithCounts) != 0;
  const Collective collective = collective_of(s);
  const auto& traits = traits_of(collective);
  const std::uint32_t op = s.packed >> 12 & 0xf;
  if (op != 0 && !traits.reduces) return std::string(name_at(kWithinNames, op));
  std::string text(collective_name(collective));
  if (collective == Collective::barrier) return text;
  const bool of_list = collective == Collective::all_reduce || collective == Collective::broadcast;
  const bool composed = is_composed(collective);
  text += !with_counts ? fmt::format("(count {}, ", s.count)
          : composed   ? "("
          : of_list    ? "_list("
                       : "_v(";
  text += dtype_name(static_cast<dl_dtype>(s.packed >> 8 & 0xf));
  if (traits.reduces) text += fmt::format(", {}", op_name(static_cast<dl_op>(op)));
  if (traits.rooted) text += fmt::format(", root {}", s.packed >> 16);
  return text + ")";
}

Within within_of(const CallSignature& s) {
  return traits_of(collective_of(s)).reduces ? Within::itself
                                             : static_cast<Within>(s.packed >> 12 & 0xf);
}

// Whether both are steps of the same composed call, which sizes may cut into other steps.
bool are_same_composed(const CallSignature& a, const CallSignature& b) {
  return within_of(a) == within_of(b) && within_of(a) >= Within::all_reduce_shards;
}

// What may differ where two calls are equal in all but CallSignature::count.
const char* what_differs(const CallSignature& s) {
  const Within within = within_of(s);
  if (collective_of(s) == Collective::all_reduce_shards || within == Within::all_reduce_shards) {
    return "counts, types, operations or numbers of shards";
  }
  if (collective_of(s) == Collective::compressed_average || within == Within::compressed_average) {
    return "counts or codecs";
  }
  if (collective_of(s) == Collective::all_reduce_some) {
    return "counts or terms";
  }
  if (within == Within::in_order) return "calls, counts, types or roots";
  return within == Within::scan || within == Within::exscan ? "counts, types or operations"
                                                            : "counts";
}

}  // namespace

std::uint64_t hash_of(std::span<const std::size_t> values) {
  Fnv1a hash;
  for (const std::size_t value : values) hash.add(value);
  return hash.value();
}

std::string_view collective_name(Collective collective) {
  return name_at(kCollectiveNames, static_cast<std::size_t>(collective));
}
std::optional<Collective> collective_named(std::string_view name) {
  const auto found = std::find(std::begin(kCollectiveNames), std::end(kCollectiveNames), name);
  if (found == std::end(kCollectiveNames)) return std::nullopt;
  return static_cast<Collective>(found - std::begin(kCollectiveNames));
}
std::string_view dtype_name(dl_dtype dtype) { return name_at(kDtypeNames, dtype); }
std::string_view op_name(dl_op op) { return name_at(kOpNames, op_code(op)); }
std::size_t dtype_bytes(dl_dtype dtype) { return element_bytes(dtype); }
bool dtype_is_float(dl_dtype dtype) { return dtype >= DL_FLOAT16; }

Result<TensorList> make_tensor_list(std::size_t tensors, const void* const* in, void* const* out,
                                    const std::size_t* counts) {
  const auto wrong = [](std::string what) {
    return Error{.code = Errc::usage, .what = std::move(what)};
  };
  if (tensors > 0 && (in == nullptr || out == nullptr || counts == nullptr)) {
    return wrong("an array of a list is null");
  }
  TensorList list;
  std::size_t total = 0;
  for (std::size_t i = 0; i < tensors; ++i) {
    if (counts[i] == 0) continue;
    if (in[i] == nullptr || out[i] == nullptr) return wrong(fmt::format("tensor {} is null", i));
    if (__builtin_add_overflow(total, counts[i], &total)) return wrong("count is too large");
    list.in.push_back(in[i]);
    list.out.push_back(out[i]);
    list.ends.push_back(total);
    list.numbers.push_back(i);
  }
  return list;
}

std::uint64_t layout_of(const ShardInput& input, std::size_t count, dl_op op) {
  return hash_of(std::array{static_cast<std::size_t>(input.shards), count,
                            static_cast<std::size_t>(op_code(op))}) |
         1;
}

std::uint64_t layout_of(const Compression& compression, std::size_t count) {
  return hash_of(
             std::array{static_cast<std::size_t>(compression.codec), count, compression.common}) |
         1;
}

std::uint64_t layout_of(const SomeTerms& terms, std::size_t count) {
  return hash_of(std::array{static_cast<std::size_t>(terms.need),
                            static_cast<std::size_t>(terms.max_behind), count}) |
         1;
}

std::uint64_t layout_of(const TensorList& list) {
  return list.ends.size() > 1 ? hash_of(list.ends) | 1 : 0;
}

bool needs_order(const Call& call) {
  const bool rounds = call.op != DL_MAX && call.op != DL_MIN && !is_function(call.op);
  return traits_of(call.collective).reduces &&
         (is_in_order(call.op) || (is_float8(call.dtype) && rounds));
}

bool sums_may_overflow(const Call& call) {
  return traits_of(call.collective).reduces && call.op == DL_AVG && call.dtype == DL_FLOAT16;
}

Shape shape_of(const Call& call, int ranks) {
  Shape shape{.collective = call.collective,
              .count = call.count,
              .element_bytes = dtype_bytes(call.dtype),
              .root = call.root,
              .counts = {},
              .members = {},
              .in_order = needs_order(call),
              .in_one_pass = sums_may_overflow(call)};
  if (call.members != nullptr) shape.members = *call.members;
  if (call.counts == nullptr && call.splits == nullptr) return shape;
  shape.count = 0;  // differs between ranks
  if (call.counts != nullptr) shape.counts.assign(call.counts, call.counts + ranks);
  if (call.splits != nullptr) shape.splits = *call.splits;
  return shape;
}

std::vector<Part> parts_of(const std::size_t* counts, int ranks) {
  std::vector<Part> parts(static_cast<std::size_t>(ranks));
  std::size_t first = 0;
  for (Part& part : parts) {
    part = {first, *counts++};
    first += part.count;
  }
  return parts;
}

CallSignature signature_of(const Call& call, int ranks) {
  const bool rooted = traits_of(call.collective).rooted;
  const auto root = static_cast<std::uint32_t>(rooted ? call.root & 0xffff : users_call(call).past);
  const bool with_counts = call.counts != nullptr || call.splits != nullptr || call.layout != 0;
  const auto all = static_cast<std::size_t>(ranks);
  const auto count = call.layout != 0         ? call.layout
                     : call.counts != nullptr ? hash_of({call.counts, all})
                     : call.splits != nullptr ? call.splits->longest
                                              : call.count;
  const auto op = traits_of(call.collective).reduces ? op_code(call.op)
                                                     : static_cast<std::uint32_t>(call.within);
  return CallSignature{
      .count = count,
      .packed = static_cast<std::uint32_t>(call.collective) | (with_counts ? kWithCounts : 0) |
                static_cast<std::uint32_t>(call.dtype) << 8 | op << 12 | root << 16,
      .seq = static_cast<std::uint32_t>(call.seq)};
}

// 31 is odd, so two pasts that differ in one root stay different.
std::uint16_t rooted_past(std::uint16_t past, const CallSignature& last) {
  return static_cast<std::uint16_t>(past * 31U + (last.packed ^ last.packed >> 16));
}

Error mismatch_error(int rank_a, const CallSignature& a, int rank_b, const CallSignature& b) {
  CallSignature with_past_of_b = a;
  with_past_of_b.packed = (a.packed & 0xffff) | (b.packed & ~0xffffU);
  if (with_past_of_b == b && !traits_of(collective_of(a)).rooted) {
    return Error{
        .code = Errc::mismatch,
        .what = fmt::format("collective #{}, {}: rank {} and rank {} gave different roots, "
                            "or made different calls with a root, before it",
                            a.seq, describe(a), rank_a, rank_b),
        .rank = rank_b};
  }
  if ((a.packed == b.packed && (a.packed & kWithCounts) != 0) || are_same_composed(a, b)) {
    return Error{.code = Errc::mismatch,
                 .what = fmt::format("collective #{}, {}: rank {} and rank {} gave different {}",
                                     a.seq, describe(a), rank_a, rank_b, what_differs(a)),
                 .rank = rank_b};
  }
  return Error{.code = Errc::mismatch,
               .what = fmt::format("collective #{}: rank {} called {}, rank {} called {}", a.seq,
                                   rank_a, describe(a), rank_b, describe(b)),
               .rank = rank_b};
}

const Call& users_call(const Call& call) { return call.step_of != nullptr ? *call.step_of : call; }

std::string_view call_name(const Call& call) {
  return call.within == Within::itself
             ? collective_name(call.collective)
             : name_at(kWithinNames, static_cast<std::size_t>(call.within));
}

Duration waited_in(const Call& call, TimePoint now) { return now - users_call(call).begun; }

Error op_timeout_error(const Call& given, Duration waited, std::string_view missing,
                       std::string_view arrived) {
  const Call& call = users_call(given);
  return Error{
      .code = Errc::timeout,
      .what = fmt::format("{} #{} timed out after {}: waiting for rank {}; arrived: {}",
                          call_name(call), call.seq, format_duration(waited), missing, arrived)};
}

Error named_in(const Call& given, const Error& error) {
  const Call& call = users_call(given);
  Error named = error;
  named.what = fmt::format("{} #{}: {}", call_name(call), call.seq, error.what);
  return named;
}

}  // namespace dlaunch
