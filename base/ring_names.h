// The words for libdlring's operations, for the library, the launcher's report and the benchmark.
// As in nccl-tests.
#pragma once

#include <string_view>

namespace dlaunch {

// By ring's Collective.
inline constexpr std::string_view kCollectiveNames[] = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast",         "barrier", "reduce",
    "gather",     "scatter",        "all_to_all", "all_reduce_shards", "scan",    "exscan"};
// By dl_dtype.
inline constexpr std::string_view kDtypeNames[] = {
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "bfloat16", "float", "double"};
// By dl_op.
inline constexpr std::string_view kOpNames[] = {"sum", "prod", "max", "min",
                                                "avg", "band", "bor", "bxor"};

}  // namespace dlaunch
