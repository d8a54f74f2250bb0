// What a worker prints: whole and in pieces it must tell the same, and what is kept is bounded.
#include "fuzz.h"
#include "launcher/output/traceback_watch.h"

static int fuzz_traceback(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  constexpr std::size_t kMostLines = 16, kMostBytes = 2048;
  const std::string_view text = fuzz_text(data, size);
  TracebackWatch whole, pieces;
  whole.feed(TimePoint(), text);
  for (std::size_t at = 0; at < text.size(); at += 3) pieces.feed(TimePoint(), text.substr(at, 3));
  const auto last = whole.last(), same = pieces.last();
  fuzz_check(last.has_value() == same.has_value());
  if (!last) return 0;
  fuzz_check(last->lines == same->lines && last->behind == same->behind &&
             last->first == same->first);
  fuzz_check(last->error == same->error && last->between == same->between);
  fuzz_check(last->first.empty() == last->first_error.empty());
  for (const auto* lines : {&last->lines, &last->behind, &last->first}) {
    fuzz_check(lines->size() <= kMostLines);
    for (const auto& line : *lines) fuzz_check(line.size() <= kMostBytes);
  }
  whole.stop();
  whole.feed(TimePoint(), text);
  fuzz_check(whole.last()->lines == last->lines);
  return 0;
}

static const FuzzTarget traceback_target("traceback", fuzz_traceback);
