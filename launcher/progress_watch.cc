#include "launcher/progress_watch.h"

#include <algorithm>

#include "base/flight.h"
#include "launcher/process_tree.h"
#include "launcher/worker_evidence.h"

namespace dlaunch {
namespace {

constexpr Duration kHangInterval = std::chrono::milliseconds(200);

Duration interval_of(const ProgressWatch::Options& options) {
  const Duration tenth = options.stragglers.detection.window_time / 10;
  const Duration slow =
      std::clamp<Duration>(tenth, std::chrono::milliseconds(100), std::chrono::seconds(1));
  return options.hang_timeout ? std::min(slow, kHangInterval) : slow;
}

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

ProgressWatch::ProgressWatch(asio::io_context& loop, const Processes& processes,
                             const Options& options, Listener listener)
    : processes_(processes),
      looks_for_hangs_(options.hang_timeout.has_value()),
      looks_for_slow_(options.stragglers.mode != StragglerMode::off),
      interval_(interval_of(options)),
      hangs_(config_of(options.hang_timeout)),
      stragglers_(options.stragglers),
      listener_(std::move(listener)),
      timer_(loop) {
  arm();
}

void ProgressWatch::new_round(const StragglerJudge::NewRound& round,
                              std::optional<Duration> recovered) {
  feed(HangJudge::NewRound{});
  left_.clear();
  digest_.reset();
  feed(StragglerJudge::Event(round));
  if (recovered) feed(StragglerJudge::Event(StragglerJudge::Recovered{*recovered}));
}

void ProgressWatch::arm() {
  if (stopped_ || !(looks_for_hangs_ || looks_for_slow_)) return;
  timer_.expires_after(interval_);
  timer_.async_wait([this](asio::error_code ec) {
    if (ec) return;
    if (looks_for_hangs_) look();
    if (looks_for_slow_) look_for_slow();
    arm();
  });
}

void ProgressWatch::stop() {
  stopped_ = true;
  timer_.cancel();
}

// Who waits for the next round hangs in none; one that does not leave the round it is in may.
void ProgressWatch::note_leavers() {
  for (const Slot slot : processes_.members()) {
    const int rank = processes_.place(slot).rank;
    if (processes_.waits(slot) && left_.insert(rank).second) feed(HangJudge::Gone{rank});
  }
}

void ProgressWatch::look() {
  if (stopped_) return;
  note_leavers();
  HangJudge::Samples samples;
  for (const Slot slot : processes_.members()) {
    const auto& place = processes_.place(slot);
    if (left_.contains(place.rank)) continue;
    const auto state = state_of_process(processes_.program_pid(slot));
    if (state) add_samples(place.rank, *state, read_positions(flight_record_of(place)), samples);
  }
  feed(HangJudge::Event(samples));
  if (looks_for_hangs_) feed(HangJudge::Clock{});
}

// Where one rank has no record the program does not use libdlring, or not yet.
void ProgressWatch::look_for_slow() {
  std::map<int, StepDigest::Record> records;
  for (const Slot slot : processes_.members()) {
    const auto& place = processes_.place(slot);
    const std::string flight = flight_record_of(place);
    if (flight.empty()) return;
    records[place.rank] = {read_spans(flight), read_received(flight)};
  }
  if (const auto step = digest_.add(records)) feed(StragglerJudge::Event(*step));
}

void ProgressWatch::feed(const HangJudge::Event& event) {
  for (const auto& action : hangs_.step(steady_now(), event)) {
    if (const auto* warn = std::get_if<HangJudge::Warn>(&action)) {
      listener_.warn(warn->sentence);
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
      listener_.warn(warn->slowness.sentence);
    } else if (const auto* clear = std::get_if<StragglerJudge::Clear>(&action)) {
      listener_.warn(clear->slowness.sentence + ": this is over");
    } else if (const auto* restart = std::get_if<StragglerJudge::Restart>(&action)) {
      listener_.replace_slow(restart->rank, restart->why);
    } else if (const auto* evict = std::get_if<StragglerJudge::Evict>(&action)) {
      listener_.replace_slow(evict->rank, evict->why);
    } else if (const auto* refrain = std::get_if<StragglerJudge::Refrain>(&action)) {
      listener_.warn(refrain->why);
    }
  }
}

}  // namespace dlaunch
