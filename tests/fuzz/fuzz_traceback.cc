// What a worker prints: whole and in pieces it must tell the same, and what is kept is bounded.
#include "fuzz.h"
#include "launcher/output/traceback_watch.h"

namespace {

void check(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  constexpr std::size_t kMostLines = 16, kMostBytes = 2048;
  const std::string_view text = fuzz_text(data, size);
  TracebackWatch whole, pieces;
  whole.feed(TimePoint(), text);
  for (std::size_t at = 0; at < text.size(); at += 3) pieces.feed(TimePoint(), text.substr(at, 3));
  const auto last = whole.last(), same = pieces.last();
  check(last.has_value() == same.has_value());
  if (!last) return 0;
  check(last->lines == same->lines && last->behind == same->behind && last->first == same->first);
  check(last->error == same->error && last->between == same->between);
  check(last->first.empty() == last->first_error.empty());
  for (const auto* lines : {&last->lines, &last->behind, &last->first}) {
    check(lines->size() <= kMostLines);
    for (const auto& line : *lines) check(line.size() <= kMostBytes);
  }
  whole.stop();
  whole.feed(TimePoint(), text);
  check(whole.last()->lines == last->lines);
  return 0;
}
