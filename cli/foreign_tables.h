// The tables behind foreign_options.h, one for each launcher, and helpers of their translations.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "cli/foreign_options.h"

namespace dlaunch {

std::span<const ForeignOption> torchrun_options();
std::span<const ForeignOption> accelerate_options();
std::span<const ForeignOption> deepspeed_options();
std::span<const ForeignOption> horovodrun_options();
std::span<const ForeignOption> mpirun_options();
std::span<const ForeignOption> mpiexec_options();
std::span<const ForeignOption> srun_options();

template <class... Args>
Error not_here(fmt::format_string<Args...> format, Args&&... args) {
  return Error{.code = Errc::usage, .what = fmt::format(format, std::forward<Args>(args)...)};
}

// "ppr:2:numa" -> 2 workers for each NUMA node.
Result<Meaning> per_resource(std::string_view count, std::string_view resource);

}  // namespace dlaunch
