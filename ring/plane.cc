#include "ring/plane.h"

#include <iterator>

#include <fmt/format.h>

#include "base/units.h"

namespace dlaunch {
namespace {

constexpr std::string_view kCollectives[] = {"all_reduce", "reduce_scatter", "all_gather",
                                             "broadcast", "barrier"};
constexpr std::string_view kDtypes[] = {"int8",   "uint8", "int32",    "uint32", "int64",
                                        "uint64", "half",  "bfloat16", "float",  "double"};
constexpr std::string_view kOps[] = {"sum", "prod", "max", "min", "avg", "band", "bor", "bxor"};

template <std::size_t N>
std::string_view name_at(const std::string_view (&names)[N], std::size_t index) {
  return index < N ? names[index] : "unknown";
}

std::string describe(const CallSignature& s) {
  const auto collective = static_cast<Collective>(s.packed & 0xff);
  std::string text(collective_name(collective));
  if (collective == Collective::barrier) return text;
  text +=
      fmt::format("(count {}, {}", s.count, dtype_name(static_cast<dl_dtype>(s.packed >> 8 & 0xf)));
  if (collective == Collective::all_reduce || collective == Collective::reduce_scatter) {
    text += fmt::format(", {}", op_name(static_cast<dl_op>(s.packed >> 12 & 0xf)));
  }
  if (collective == Collective::broadcast) text += fmt::format(", root {}", s.packed >> 16);
  return text + ")";
}

}  // namespace

std::string_view collective_name(Collective collective) {
  return name_at(kCollectives, static_cast<std::size_t>(collective));
}
std::string_view dtype_name(dl_dtype dtype) { return name_at(kDtypes, dtype); }
std::string_view op_name(dl_op op) { return name_at(kOps, op); }
std::size_t dtype_bytes(dl_dtype dtype) {
  constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 2, 4, 8};
  return static_cast<std::size_t>(dtype) < std::size(kBytes) ? kBytes[dtype] : 0;
}
bool dtype_is_float(dl_dtype dtype) { return dtype >= DL_FLOAT16 && dtype <= DL_FLOAT64; }

CallSignature signature_of(const Call& call) {
  const auto root = static_cast<std::uint32_t>(call.root & 0xffff);
  return CallSignature{.count = call.count,
                       .packed = static_cast<std::uint32_t>(call.collective) |
                                 static_cast<std::uint32_t>(call.dtype) << 8 |
                                 static_cast<std::uint32_t>(call.op) << 12 | root << 16,
                       .seq = static_cast<std::uint32_t>(call.seq)};
}

Error mismatch_error(int rank_a, const CallSignature& a, int rank_b, const CallSignature& b) {
  return Error{.code = Errc::mismatch,
               .what = fmt::format("collective #{}: rank {} called {}, rank {} called {}", a.seq,
                                   rank_a, describe(a), rank_b, describe(b)),
               .rank = rank_b};
}

Error op_timeout_error(const Call& call, Duration waited, std::string_view missing,
                       std::string_view arrived) {
  return Error{.code = Errc::timeout,
               .what = fmt::format("{} #{} timed out after {}: waiting for rank {}; arrived: {}",
                                   collective_name(call.collective), call.seq,
                                   format_duration(waited), missing, arrived)};
}

}  // namespace dlaunch
