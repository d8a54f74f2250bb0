// The dumps of PyTorch's Flight Recorder: where a rank stands in each of its process groups. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/wire/monitor_message.h"

namespace dlaunch {

// One position for each group: in the oldest collective that is not complete, or else behind the
// last one; seq 0 if the rank has called none there. Group 0 is PyTorch's default one. Error: the
// dump is damaged, or of another format.
Result<std::vector<NodePosition>> read_torch_dump(std::string_view bytes);

}  // namespace dlaunch
