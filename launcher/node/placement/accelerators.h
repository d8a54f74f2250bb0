// Counts this host's accelerators other than NVIDIA's in the kernel's files. Loads no driver's
// library.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dlaunch {

// The kinds that count_accelerators() knows, by PyTorch's names for them.
std::span<const std::string_view> accelerator_kinds();

// xpu: Intel GPUs (/sys/class/drm/renderD*), hpu: Intel Gaudi (/sys/class/accel), npu: Huawei
// Ascend (/dev/davinci*), mlu: Cambricon (/dev/cambricon_dev*), musa: Moore Threads (/dev/mtgpu.*).
// nullopt: an unknown kind. `root`: "" is the machine's own.
std::optional<int> count_accelerators(std::string_view kind, const std::string& root = "");

}  // namespace dlaunch
