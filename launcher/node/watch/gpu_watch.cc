#include "launcher/node/watch/gpu_watch.h"

#include <cstdio>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/print.h"
#include "launcher/node/watch/nvml.h"

namespace dlaunch {
namespace {

constexpr Duration kNvmlLimit = std::chrono::seconds(5);
constexpr int kNoNvml = 3;  // exit code: there is no library, and will be none

}  // namespace

int run_gpu_figures() {
  const auto gpus = ask_nvml();
  if (!gpus) {
    if (gpus.error().code == Errc::unsupported) return kNoNvml;
    std::fprintf(stderr, "dlaunch: NVML: %s\n", gpus.error().what.c_str());
    return kExitSystem;
  }
  const std::string bytes = encode_gpus(*gpus);
  return print_all(bytes) ? kExitOk : kExitSystem;
}

const std::optional<std::vector<GpuFigures>>& GpuWatch::look() {
  if (never_) return newest_;
  if (newest_ && steady_now() - newest_at_ > kNvmlLimit) newest_.reset();
  if (asks_) return newest_;
  const Command::Request asks{
      .argv = {"/proc/self/exe", kGpuFiguresWord}, .env = own_environment(), .limit = kNvmlLimit};
  asks_ = true;
  const auto started = command_.run(asks, [this](const Command::End& end) { take(end); });
  if (!started) take({.text = started.error().what, .status = kExitSystem});
  return newest_;
}

// After a failure it never asks again: a process that a driver holds cannot even be killed.
void GpuWatch::take(const Command::End& end) {
  asks_ = false;
  newest_at_ = steady_now();
  const std::string how = describe(end, kNvmlLimit);
  auto gpus = decode_gpus(how.empty() ? std::string_view(end.text) : std::string_view());
  never_ = !gpus;
  newest_ = gpus ? std::move(*gpus) : std::vector<GpuFigures>();
  if (gpus || (end.status == kNoNvml && !end.too_late)) return;
  log_warn("no figures of GPUs: asking NVML {}", how.empty() ? "gave a malformed answer" : how);
}

}  // namespace dlaunch
