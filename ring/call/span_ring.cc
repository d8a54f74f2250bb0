#include "ring/call/span_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>

#include "base/unique_fd.h"

namespace dlaunch {
namespace {

std::atomic<std::int64_t> gc_ns{0}, input_ns{0};

// Adds where one thread writes at a time: a store costs less than an atomic addition.
template <class Number>
Number add_to(std::atomic<Number>& sum, Number value) {
  const Number now = sum.load(std::memory_order_relaxed) + value;
  sum.store(now, std::memory_order_release);
  return now;
}

std::int64_t ns_of(TimePoint time) { return time.time_since_epoch().count(); }

std::uint32_t taken_us(std::atomic<std::int64_t>& ns) {
  if (ns.load(std::memory_order_relaxed) == 0) return 0;
  const std::int64_t us = ns.exchange(0, std::memory_order_relaxed) / 1000;
  return static_cast<std::uint32_t>(std::min<std::int64_t>(us, UINT32_MAX));
}

}  // namespace

SpanRing::SpanRing(const std::string& path, std::uint32_t capacity, Duration least,
                   std::uint32_t texts) {
  if (path.empty()) return;
  const std::size_t bytes = span_file_bytes(capacity, texts);
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  // posix_fallocate finds a full disk here; otherwise a SIGBUS would follow later.
  if (!fd || ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)) != 0) return;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return;
  memory_ = std::shared_ptr<void>(memory, [bytes](void* m) { ::munmap(m, bytes); });
  head_ = new (memory) SpanHead;
  records_ = new (static_cast<std::byte*>(memory) + sizeof(SpanHead)) SpanRecord[capacity];
  head_->least_ns = least.count();
  head_->capacity = capacity;
  head_->most_texts = texts;
  texts_ = static_cast<char*>(memory) + span_file_bytes(capacity);
}

void SpanRing::joined(TimePoint now) {
  if (head_ == nullptr) return;
  last_left_ = ns_of(now);
  head_->joined_ns.store(ns_of(now), std::memory_order_release);
}

void SpanRing::block(TimePoint now) {
  if (head_ == nullptr) return;
  if (head_->depth.load(std::memory_order_relaxed) == 0) {
    head_->since_ns.store(ns_of(now), std::memory_order_release);
  }
  add_to(head_->depth, 1);
}

// Time in which several threads are blocked counts once.
void SpanRing::unblock(TimePoint now) {
  if (head_ == nullptr) return;
  if (add_to(head_->depth, -1) == 0) {
    add_to(head_->blocked_ns, ns_of(now) - head_->since_ns.load(std::memory_order_relaxed));
  }
}

void SpanRing::add_wait(TimePoint since, TimePoint now) {
  if (head_ == nullptr || (now - since).count() < head_->least_ns) return;
  std::uint64_t number;
  SpanRecord& record = claim(number);
  record.what = record.dtype = record.op = record.failed = 0;
  record.seq = record.count = 0;
  record.how = 0;
  record.group = record.gc_us = record.input_us = 0;
  record.peer = -1;
  record.entered_ns = ns_of(since);
  record.left_ns = ns_of(now);
  record.kind = SpanKind::wait;
  record.number.store(number, std::memory_order_release);
}

SpanRecord& SpanRing::claim(std::uint64_t& number) {
  number = add_to(head_->written, std::uint64_t{1});
  SpanRecord& record = records_[number % head_->capacity];
  record.number.store(0, std::memory_order_release);
  return record;
}

std::uint16_t SpanRing::add_text(std::string_view text) {
  if (head_ == nullptr) return 0;
  const std::uint32_t count = head_->texts.load(std::memory_order_relaxed);
  if (count >= head_->most_texts) return 0;
  char* const place = texts_ + count * kTextBytes;
  text.copy(place, kTextBytes - 1);  // zeros follow: the file was new
  head_->texts.store(count + 1, std::memory_order_release);
  return static_cast<std::uint16_t>(count + 1);
}

void SpanRing::add(const FlightRecord& operation, SpanKind kind, std::uint16_t how) {
  if (head_ == nullptr) return;
  const std::int64_t left = operation.ended_ns, entered = operation.started_ns;
  const std::int64_t before = std::exchange(last_left_, left);
  const std::int64_t least = head_->least_ns;
  if (left - entered < least && entered - before < least) return;
  std::uint64_t number;
  SpanRecord& record = claim(number);
  record.seq = operation.seq;
  record.count = operation.count;
  record.entered_ns = entered;
  record.left_ns = left;
  record.peer = operation.world_peer;
  record.group = operation.group;
  record.what = operation.what;
  record.dtype = operation.dtype;
  record.op = operation.op;
  record.kind = kind;
  // The ledger's file alone takes these.
  record.gc_us = least > 0 ? taken_us(gc_ns) : 0;
  record.input_us = least > 0 ? taken_us(input_ns) : 0;
  record.how = how;
  record.failed = operation.state == FlightState::failed ? 1 : 0;
  record.number.store(number, std::memory_order_release);
}

void SpanRing::spent_in_gc(Duration time) { gc_ns.fetch_add(time.count()); }
void SpanRing::spent_on_input(Duration time) { input_ns.fetch_add(time.count()); }

}  // namespace dlaunch
