#include "launcher/wire/complaint.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

namespace dlaunch {
namespace {

constexpr std::array<std::string_view, 33> kGaveUp = {
    // Gloo, also in JAX
    "ms for recv operation to complete",
    "ms for send operation to complete",
    "Application timeout caused pair closure",
    "Connect timeout [",
    "failed to pass monitoredBarrier",
    // c10d's store
    "wait timeout after",
    "Wait timeout",
    "Socket Timeout",
    "client socket has timed out",
    "waiting for clients",
    "in store based barrier",
    "Timeout waiting for key",
    "DistStoreError",
    // the watchdog of NCCL in PyTorch
    "collective operation timeout",
    "Watchdog caught collective",
    "NCCL watchdog thread terminated",
    "watchdog got stuck",
    "due to a collective timeout",
    // JAX, TensorFlow: XLA and the coordination service
    "Barrier timed out",
    "Barrier failed because",
    "barrier timed out",
    "DEADLINE_EXCEEDED",
    "DeadlineExceededError",
    "not all of them arrived on time",
    "stopped sending heartbeats",
    "Timed out waiting for all",
    // Horovod
    "Stalled ranks",
    "exceeded the stall shutdown threshold",
    // MPI
    "PMIX_ERR_TIMEOUT",
    "PMIX ERROR: TIMEOUT",
    "MPIX_ERR_TIMEOUT",
    "Endpoint timeout",
    "UCS_ERR_ENDPOINT_TIMEOUT",
};
constexpr std::array<std::string_view, 4> kLostService = {
    "distributed service detected fatal errors", "Failed to send RPC to coordination service",
    "leader task/coordination service",
    "CoordinationServiceAgent::SetError()",  // in the trace after its words
};
constexpr std::array<std::string_view, 8> kLostConnection = {
    "Connection reset by peer",
    "Connection closed by peer",
    "Connection closed by remote peer",
    "connection was closed",
    "Broken pipe",
    "Socket closed",
    "remote process exited",
    "ECONNRESET",
};
constexpr std::array<std::string_view, 7> kTimeout = {
    "timed out", "Timed out", "timeout", "Timeout", "TIMEOUT", "watchdog", "Watchdog"};

using LineSpan = std::span<const std::string>;

bool speaks_of(LineSpan lines, std::span<const std::string_view> words) {
  return std::ranges::any_of(lines, [words](const std::string& line) {
    return std::ranges::any_of(
        words, [&line](std::string_view word) { return line.find(word) != std::string::npos; });
  });
}

// all: the lines that a library's own words may be among. A trace in C++ may follow these.
Complaint complaint_in(LineSpan lines, LineSpan all) {
  if (speaks_of(all, kLostService)) return Complaint::lost_service;
  if (speaks_of(all, kGaveUp)) return Complaint::gave_up_waiting;
  if (speaks_of(lines, kLostConnection)) return Complaint::lost_connection;
  return speaks_of(all, kTimeout) ? Complaint::timeout : Complaint::none;
}

}  // namespace

bool gave_up_in(const Traceback& traceback) {
  return speaks_of(traceback.lines, kGaveUp) || speaks_of(traceback.behind, kGaveUp);
}

Complaint complaint_of(const WorkerEnd& worker, bool by_traceback) {
  const LineSpan tail = worker.stderr_tail;
  if (!worker.error_file.empty()) {
    const LineSpan file(&worker.error_file, 1);
    return complaint_in(file, file);
  }
  if (by_traceback && !worker.traceback->lines.empty()) {
    std::vector<std::string> lines = worker.traceback->lines;
    const auto& behind = worker.traceback->behind;
    lines.insert(lines.end(), behind.begin(), behind.end());
    return complaint_in(lines, lines);
  }
  constexpr std::size_t kLastWords = 8;
  const Complaint said = complaint_in(tail.last(std::min(kLastWords, tail.size())), tail);
  // It may have taken long to end, and have lost the service meanwhile, or said more of it.
  const bool before = worker.traceback && gave_up_in(*worker.traceback);
  return may_follow(said) && before ? Complaint::gave_up_waiting : said;
}

}  // namespace dlaunch
