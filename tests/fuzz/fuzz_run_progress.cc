// What a worker writes to the pipe of its heartbeats: whole and in pieces it must mean the same,
// its numbers are within their limits, and what was read is read again from its own line.
#include <cmath>

#include "base/run_progress.h"
#include "fuzz.h"

namespace {

// A number that is none is equal to no other.
bool same(const dlaunch::RunProgress& a, const dlaunch::RunProgress& b) {
  return a.at == b.at && a.step == b.step && a.total == b.total &&
         std::equal(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(),
                    [](const auto& x, const auto& y) {
                      return x.name == y.name &&
                             (x.value == y.value || (std::isnan(x.value) && std::isnan(y.value)));
                    });
}

}  // namespace

static int fuzz_run_progress(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const TimePoint now(std::chrono::hours(24 * 365) / 10);
  const std::string_view text = fuzz_text(data, size);
  ProgressReader whole, pieces, again;
  whole.feed(now, text);
  for (std::size_t at = 0; at < text.size(); at += 3) pieces.feed(now, text.substr(at, 3));
  fuzz_check(whole.last().has_value() == pieces.last().has_value());
  if (!whole.last()) return -1;
  const RunProgress& last = *whole.last();
  fuzz_check(same(last, *pieces.last()));
  fuzz_check(last.step >= 0 && last.total >= 0 && last.values.size() <= kMaxProgressValues);
  again.feed(now, progress_line_of(last));
  fuzz_check(again.last() && same(*again.last(), last));
  return 0;
}

static const FuzzTarget run_progress_target("run_progress", fuzz_run_progress);
