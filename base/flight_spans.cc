#include "base/flight_spans.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/flight.h"
#include "base/ring_names.h"
#include "base/unique_fd.h"

namespace dlaunch {
namespace {

// As plain bytes: an atomic cannot be copied.
struct CopiedHead {
  std::int64_t joined_ns, blocked_ns, since_ns;
  std::int32_t depth;
  std::uint32_t capacity;
  std::int64_t least_ns;
  std::uint64_t written;
  std::uint32_t texts, most_texts;
};
struct CopiedSpan {
  std::uint64_t number, seq, count;
  std::int64_t entered_ns, left_ns;
  std::int32_t peer;
  std::uint32_t group;
  std::uint8_t what, dtype, op, kind;
  std::uint32_t gc_us, input_us;
  std::uint8_t failed;
  std::uint16_t how;
};
static_assert(offsetof(CopiedSpan, how) == offsetof(SpanRecord, how));
static_assert(offsetof(CopiedHead, most_texts) == offsetof(SpanHead, most_texts));

constexpr std::uint32_t kMostSpans = 1 << 20;

TimePoint time_at(std::int64_t ns) { return TimePoint(std::chrono::nanoseconds(ns)); }

bool is_sensible(const CopiedSpan& s) {
  const bool message = s.what == kFlightSend || s.what == kFlightRecv;
  return (s.what < std::size(kCollectiveNames) || message) && s.kind >= 1 && s.kind <= 3 &&
         s.dtype < std::size(kDtypeNames) && s.entered_ns >= 0 && s.left_ns >= s.entered_ns;
}

Span span_of(const CopiedSpan& s) {
  return {.kind = static_cast<SpanKind>(s.kind),
          .what = s.what,
          .dtype = s.dtype,
          .op = s.op,
          .failed = s.failed != 0,
          .how = s.how,
          .peer = s.peer,
          .group = s.group,
          .seq = s.seq,
          .count = s.count,
          .entered = time_at(s.entered_ns),
          .left = time_at(s.left_ns),
          .gc = std::chrono::microseconds(s.gc_us),
          .input = std::chrono::microseconds(s.input_us)};
}

// The head is read again: the texts of the newest spans may have come meanwhile.
template <class Read>
std::vector<std::string> read_texts(Read read) {
  std::vector<std::string> texts;
  CopiedHead head;
  if (!read(&head, sizeof head, 0) || head.capacity > kMostSpans) return texts;
  const std::size_t count = std::min({head.texts, head.most_texts, kTraceTexts});
  for (std::size_t i = 0; i < count; ++i) {
    std::array<char, kTextBytes> text;
    if (!read(text.data(), text.size(), span_file_bytes(head.capacity) + i * kTextBytes)) break;
    texts.emplace_back(text.data(), ::strnlen(text.data(), text.size()));
  }
  return texts;
}

// read(to, bytes, offset): whether all of these bytes of the file were there.
template <class Read>
SpanFile read_with(Read read, std::uint64_t after, TimePoint now) {
  SpanFile file;
  CopiedHead head;
  if (!read(&head, sizeof head, 0)) return file;
  if (head.capacity == 0 || head.capacity > kMostSpans) return file;
  file.exists = true;
  file.joined = time_at(std::max<std::int64_t>(head.joined_ns, 0));
  // Nonsense must not overflow: no rank was blocked for longer than its machine runs.
  file.blocked = std::clamp<Duration>(std::chrono::nanoseconds(head.blocked_ns), Duration::zero(),
                                      std::max(Duration::zero(), now.time_since_epoch()));
  if (head.depth > 0 && head.since_ns > 0) {
    file.blocked += std::max(Duration::zero(), now - time_at(head.since_ns));
  }
  file.least = std::chrono::nanoseconds(head.least_ns);
  file.written = head.written;
  const std::uint64_t oldest = head.written > head.capacity ? head.written - head.capacity : 0;
  const std::uint64_t first = std::max(after, oldest);
  file.dropped = first > after ? first - after : 0;
  // Not "up to the last number": that may be the largest there is.
  const std::uint64_t fresh = head.written > first ? head.written - first : 0;
  for (std::uint64_t i = 0; i < fresh; ++i) {
    const std::uint64_t number = first + 1 + i;
    const std::size_t place = sizeof(SpanHead) + number % head.capacity * sizeof(SpanRecord);
    CopiedSpan span;
    if (!read(&span, sizeof span, place)) break;
    if (span.number < number) {  // being written: the next look finds it
      file.written = number - 1;
      break;
    }
    if (span.number == number && is_sensible(span)) file.spans.push_back(span_of(span));
  }
  if (head.most_texts > 0) file.texts = read_texts(read);
  return file;
}

bool read_at(int fd, void* to, std::size_t bytes, std::size_t offset) {
  ssize_t n;
  do {
    n = ::pread(fd, to, bytes, static_cast<off_t>(offset));
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(bytes);
}

}  // namespace

std::string spans_file(const std::string& round_dir, int rank) {
  return round_dir + "/spans." + std::to_string(rank);
}

std::string trace_file(const std::string& round_dir, int rank) {
  return round_dir + "/trace." + std::to_string(rank);
}

SpanFile read_spans_of(std::string_view bytes, std::uint64_t after, TimePoint now) {
  return read_with(
      [bytes](void* to, std::size_t size, std::size_t offset) {
        if (offset > bytes.size() || size > bytes.size() - offset) return false;
        std::memcpy(to, bytes.data() + offset, size);
        return true;
      },
      after, now);
}

SpanFile read_span_file(const std::string& path, std::uint64_t after, TimePoint now) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return {};
  return read_with([&fd](void* to, std::size_t size,
                         std::size_t offset) { return read_at(fd.get(), to, size, offset); },
                   after, now);
}

}  // namespace dlaunch
