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

void add_samples(int rank, ProcessState state, const std::vector<FlightPosition>& positions,
                 HangJudge::Samples& samples) {
  const auto now = steady_now();
  ProgressSample sample{.rank = rank, .state = state};
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

}  // namespace

ProgressWatch::ProgressWatch(asio::io_context& loop, const Processes& processes, int slots,
                             const Options& options, Listener listener)
    : processes_(processes),
      slots_(slots),
      looks_for_slow_(options.stragglers.mode != StragglerMode::off),
      regular_(options.hang_timeout.has_value() || looks_for_slow_),
      hangs_(config_of(options.hang_timeout)),
      stragglers_(options.stragglers),
      listener_(std::move(listener)),
      timer_(loop) {
  arm();
}

void ProgressWatch::new_round(const StragglerJudge::NewRound& round,
                              std::optional<Duration> recovered) {
  feed(HangJudge::NewRound{});
  digest_.reset();
  feed(StragglerJudge::Event(round));
  if (recovered) feed(StragglerJudge::Event(StragglerJudge::Recovered{*recovered}));
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
  std::map<int, std::vector<FlightSpan>> spans;
  for (Slot slot = 0; slot < slots_; ++slot) {
    if (!processes_.running(slot) || processes_.place(slot).rank < 0) continue;
    const auto& place = processes_.place(slot);
    const auto state = state_of_process(processes_.program_pid(slot));
    if (!state) continue;
    const std::string flight =
        read_left_file(place.round_dir + "/flight." + std::to_string(place.rank));
    add_samples(place.rank, *state, read_positions(flight), samples);
    if (looks_for_slow_) spans[place.rank] = read_spans(flight);
  }
  feed(HangJudge::Event(samples));
  if (!regular_) return;
  feed(HangJudge::Clock{});
  if (const auto step = digest_.add(spans)) feed(StragglerJudge::Event(*step));
}

void ProgressWatch::feed(const HangJudge::Event& event) {
  for (const auto& action : hangs_.step(steady_now(), event)) {
    if (const auto* warn = std::get_if<HangJudge::Warn>(&action)) {
      listener_.warn(warn->rank, warn->sentence);
    } else if (const auto* dump = std::get_if<HangJudge::Dump>(&action)) {
      listener_.dump(dump->ranks);
    } else if (const auto* replace = std::get_if<HangJudge::Replace>(&action)) {
      listener_.replace(replace->ranks, replace->sentence);
    }
  }
}

void ProgressWatch::feed(const StragglerJudge::Event& event) {
  for (const auto& action : stragglers_.step(steady_now(), event)) {
    if (const auto* warn = std::get_if<StragglerJudge::Warn>(&action)) {
      listener_.warn(warn->slowness.rank, warn->slowness.sentence);
    } else if (const auto* clear = std::get_if<StragglerJudge::Clear>(&action)) {
      listener_.warn(clear->slowness.rank, clear->slowness.sentence + ": this is over");
    } else if (const auto* restart = std::get_if<StragglerJudge::Restart>(&action)) {
      listener_.replace_slow(restart->rank, restart->why);
    } else if (const auto* evict = std::get_if<StragglerJudge::Evict>(&action)) {
      listener_.replace_slow(evict->rank, evict->why);
    } else if (const auto* refrain = std::get_if<StragglerJudge::Refrain>(&action)) {
      listener_.warn(refrain->rank, refrain->why);
    }
  }
}

}  // namespace dlaunch
