#include "launcher/progress_watch.h"

#include <algorithm>

#include "base/flight.h"
#include "launcher/process_tree.h"
#include "launcher/worker_evidence.h"

namespace dlaunch {
namespace {

constexpr Duration kInterval = std::chrono::milliseconds(200);

HangConfig config_of(std::optional<Duration> hang_timeout) {
  const Duration limit = hang_timeout.value_or(Duration::max());
  return {.hang_timeout = limit, .stop_limit = limit};
}

}  // namespace

ProgressWatch::ProgressWatch(asio::io_context& loop, const Processes& processes, int slots,
                             std::optional<Duration> hang_timeout, Listener listener)
    : processes_(processes),
      slots_(slots),
      regular_(hang_timeout.has_value()),
      judge_(config_of(hang_timeout)),
      listener_(std::move(listener)),
      timer_(loop) {
  arm();
}

void ProgressWatch::arm() {
  if (!regular_ || stopped_) return;
  timer_.expires_after(kInterval);
  timer_.async_wait([this](asio::error_code ec) {
    if (ec) return;
    look();
    arm();
  });
}

void ProgressWatch::stop() {
  stopped_ = true;
  timer_.cancel();
}

void ProgressWatch::look() {
  if (stopped_) return;
  HangJudge::Samples samples;
  for (Slot slot = 0; slot < slots_; ++slot) {
    if (processes_.running(slot) && processes_.place(slot).rank >= 0) add_samples(slot, samples);
  }
  feed(samples);
  if (regular_) feed(HangJudge::Clock{});
}

void ProgressWatch::add_samples(Slot slot, HangJudge::Samples& samples) const {
  const auto& place = processes_.place(slot);
  const auto state = state_of_process(processes_.program_pid(slot));
  if (!state) return;
  const std::string flight = place.round_dir + "/flight." + std::to_string(place.rank);
  const auto positions = read_positions(read_left_file(flight));
  const auto now = steady_now();
  ProgressSample sample{.rank = place.rank, .state = *state};
  for (const auto& position : positions) {
    sample.group = position.group;
    sample.seq = position.seq;
    sample.inside = position.inside;
    sample.what = position.what;
    sample.age = std::max(Duration::zero(), now - position.moved);
    samples.push_back(sample);
  }
  if (positions.empty()) samples.push_back(sample);
}

void ProgressWatch::feed(const HangJudge::Event& event) {
  for (const auto& action : judge_.step(steady_now(), event)) {
    if (const auto* warn = std::get_if<HangJudge::Warn>(&action)) {
      listener_.warn(warn->rank, warn->sentence);
    } else if (const auto* dump = std::get_if<HangJudge::Dump>(&action)) {
      listener_.dump(dump->ranks);
    } else if (const auto* replace = std::get_if<HangJudge::Replace>(&action)) {
      listener_.replace(replace->ranks, replace->sentence);
    }
  }
}

}  // namespace dlaunch
