#include "launcher/node/watch/gpu_watch.h"

#include <cstdio>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/print.h"
#include "base/text.h"
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
    std::fprintf(stderr, "%s\n", gpus.error().what.c_str());
    return kExitSystem;
  }
  const std::string bytes = encode_gpus(*gpus);
  return print_all(bytes) ? kExitOk : kExitSystem;
}

const std::optional<std::vector<GpuFigures>>& GpuWatch::look() {
  const TimePoint now = steady_now();
  if (newest_ && !asks_.missing() && now - newest_at_ > kNvmlLimit) newest_.reset();
  // A driver may hold the process of an earlier question, which cannot be killed then.
  if (!asks_.may_ask(now) || command_.runs()) return newest_;
  const Command::Request asks{.argv = {"/proc/self/exe", kGpuFiguresWord},
                              .env = own_environment(),
                              .keep_errors = true,
                              .limit = kNvmlLimit};
  asks_.begins();
  const auto started = command_.run(asks, [this](const Command::End& end) { take(end); });
  if (!started) take({.text = started.error().what, .status = kExitSystem});
  return newest_;
}

void GpuWatch::take(const Command::End& end) {
  newest_at_ = steady_now();
  std::string how = describe(end, kNvmlLimit);
  auto gpus = decode_gpus(how.empty() ? std::string_view(end.text) : std::string_view());
  auto answer = gpus ? GpuAsks::Answer::figures : GpuAsks::Answer::failed;
  if (end.status == kNoNvml && !end.too_late) answer = GpuAsks::Answer::none;
  newest_ = gpus ? std::move(*gpus) : std::vector<GpuFigures>();
  if (how.empty())
    how = "gave a malformed answer";
  else if (!end.text.empty())
    how += " (" + escaped(end.text.substr(0, end.text.find('\n'))) + ")";
  const std::string news = asks_.answered(newest_at_, answer, how);
  if (!news.empty()) log_warn("{}", news);
}

}  // namespace dlaunch
