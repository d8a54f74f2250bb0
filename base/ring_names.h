// The words for libdlring's operations, for the library, the launcher's report and the benchmark.
// As in nccl-tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace dlaunch {

// By ring's Collective.
inline constexpr std::string_view kCollectiveNames[] = {"all_reduce",
                                                        "reduce_scatter",
                                                        "all_gather",
                                                        "broadcast",
                                                        "barrier",
                                                        "reduce",
                                                        "gather",
                                                        "scatter",
                                                        "all_to_all",
                                                        "all_reduce_shards",
                                                        "scan",
                                                        "exscan",
                                                        "compressed_average",
                                                        "all_reduce_some"};
// From this one on libdlring composes them of others.
inline constexpr std::size_t kFirstComposed = 9;
constexpr bool is_composed_name(std::string_view collective) {
  const auto* const first = std::begin(kCollectiveNames) + kFirstComposed;
  return std::find(first, std::end(kCollectiveNames), collective) != std::end(kCollectiveNames);
}
// By dl_dtype.
inline constexpr std::string_view kDtypeNames[] = {
    "int8",     "uint8", "int32",  "uint32",    "int64",      "uint64", "half",
    "bfloat16", "float", "double", "complex64", "complex128", "f8e4m3", "f8e5m2"};
inline constexpr std::size_t kRealDtypes = 10;  // without the last ones, which the benchmark lacks
// By dl_op, and behind those the kinds of operations that programs make.
inline constexpr std::string_view kOpNames[] = {"sum",
                                                "prod",
                                                "max",
                                                "min",
                                                "avg",
                                                "band",
                                                "bor",
                                                "bxor",
                                                "premul_sum",
                                                "function",
                                                "function_in_order"};
inline constexpr std::size_t kOwnOps = 8;  // those of dl_op

}  // namespace dlaunch
