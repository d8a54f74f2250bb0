// Asks PyTorch's Flight Recorder in a worker where the worker's process groups stand. A byte in the
// named pipe of TORCH_NCCL_DEBUG_INFO_PIPE_FILE makes ProcessGroupNCCL write a dump to the file of
// TORCH_FR_DUMP_TEMP_FILE; the rank follows both names.
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include <asio/io_context.hpp>

#include "base/clock.h"
#include "launcher/wire/monitor_message.h"

namespace dlaunch {

inline constexpr Duration kRecorderLimit = std::chrono::seconds(3);

// Returns at once; the loop calls `done`, always once, after `limit` at the latest: with no
// position if the process has no such recorder, or does not answer.
void ask_torch_recorder(asio::io_context& loop, pid_t pid, int rank,
                        std::function<void(std::vector<NodePosition>)> done,
                        Duration limit = kRecorderLimit);

}  // namespace dlaunch
