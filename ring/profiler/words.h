// NCCL's words for functions and types, as those of our records. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "base/flight.h"
#include "base/ring_names.h"

namespace dlaunch {

template <std::size_t N>
constexpr std::optional<std::uint8_t> index_in(const std::string_view (&names)[N],
                                               std::string_view name) {
  const auto found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<std::uint8_t>(found - std::begin(names));
}

// FlightRecord::what; nullopt: a function that this plug-in does not know.
constexpr std::optional<std::uint8_t> operation_of(std::string_view func) {
  if (func == "Send") return kFlightSend;
  if (func == "Recv") return kFlightRecv;
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"AllReduce", "all_reduce"}, {"ReduceScatter", "reduce_scatter"},
      {"AllGather", "all_gather"}, {"Broadcast", "broadcast"},
      {"Reduce", "reduce"},        {"Gather", "gather"},
      {"Scatter", "scatter"},      {"AlltoAll", "all_to_all"},
      {"AllToAll", "all_to_all"}};
  for (const auto& [name, ours] : kNames) {
    if (name == func) return index_in(kCollectiveNames, ours);
  }
  return std::nullopt;
}

// FlightRecord::dtype. Types that our tables lack count as bytes.
constexpr std::uint8_t dtype_of(std::string_view type) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"ncclInt8", "int8"},         {"ncclInt32", "int32"},       {"ncclUint32", "uint32"},
      {"ncclInt64", "int64"},       {"ncclUint64", "uint64"},     {"ncclFloat16", "half"},
      {"ncclFloat32", "float"},     {"ncclFloat64", "double"},    {"ncclBfloat16", "bfloat16"},
      {"ncclFloat8e4m3", "f8e4m3"}, {"ncclFloat8e5m2", "f8e5m2"}, {"ncclHalf", "half"},
      {"ncclFloat", "float"},       {"ncclDouble", "double"}};
  for (const auto& [name, ours] : kNames) {
    if (name == type) return *index_in(kDtypeNames, ours);
  }
  return *index_in(kDtypeNames, "uint8");
}

}  // namespace dlaunch
