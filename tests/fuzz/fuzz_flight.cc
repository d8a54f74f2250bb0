#include "base/flight.h"
#include "base/flight_rate.h"
#include "base/flight_spans.h"
#include "base/nccl_record.h"
#include "fuzz.h"

static int fuzz_flight(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const TimePoint now(std::chrono::hours(24 * 365));
  const std::string_view bytes = fuzz_text(data, size);
  Duration since{};
  for (const auto& entry : read_flight(bytes)) since = now - entry.started;
  for (const auto& position : read_positions(bytes)) since = now - position.moved;
  for (const auto& span : read_spans(bytes)) since = span.left - span.entered;
  for (const auto& from : read_received(bytes)) since = from.time;
  for (const auto& span : read_spans_of(bytes, 0, now).spans) since = span.left - span.entered;
  for (const auto& comm : read_nccl(bytes)) {
    if (comm.last.size() > kNcclCalls || in_words(comm).empty()) __builtin_trap();
    for (const auto& call : comm.last) {
      if (in_words(call).empty()) __builtin_trap();
    }
  }
  for (const auto& entry : read_nccl_flight(bytes)) since = now - entry.started;
  (void)since;
  if (read_rate(bytes, now).over > std::chrono::seconds(5)) __builtin_trap();
  return 0;
}

static const FuzzTarget flight_target("flight", fuzz_flight);
