#include "ring/call/flight_recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "base/unique_fd.h"
#include "ring/call/spread.h"

namespace dlaunch {

class FlightRecorder::Turn {
 public:
  explicit Turn(FlightRecorder& recorder) : busy_(recorder.busy_) {
    while (busy_.test_and_set(std::memory_order_acquire)) offer_core();
  }
  ~Turn() { busy_.clear(std::memory_order_release); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic_flag& busy_;
};

std::shared_ptr<FlightRecorder> FlightRecorder::of_process(const std::string& path,
                                                           const std::string& spans, int ranks,
                                                           const std::string& trace) {
  static std::mutex mutex;
  static auto* const known = new std::pair<std::string, std::shared_ptr<FlightRecorder>>;
  const std::lock_guard lock(mutex);
  if (!known->second || known->first != path) {
    *known = {path, std::make_shared<FlightRecorder>(path, spans, ranks, trace)};
  }
  return known->second;
}

FlightRecorder::FlightRecorder(const std::string& path, const std::string& spans, int ranks,
                               const std::string& trace)
    : spans_(spans, kLedgerSpans, least_span(ranks)),
      trace_(trace, kTraceSpans, Duration::zero(), kTraceTexts),
      traces_(!trace.empty()) {
  if (path.empty()) return;
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  // posix_fallocate finds a full disk here; otherwise a SIGBUS would follow later.
  if (!fd || ::posix_fallocate(fd.get(), 0, kFlightBytes) != 0) return;
  void* const memory =
      ::mmap(nullptr, kFlightBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return;
  file_ = std::shared_ptr<FlightFile>(new (memory) FlightFile,
                                      [](FlightFile* file) { ::munmap(file, kFlightBytes); });
}

void FlightRecorder::joined() {
  const TimePoint now = steady_now();
  const Turn turn(*this);
  spans_.joined(now);
}

FlightRecorder::Blocked::Blocked(std::shared_ptr<FlightRecorder> recorder)
    : recorder_(std::move(recorder)), since_(steady_now()) {
  const Turn turn(*recorder_);
  recorder_->spans_.block(since_);
}

FlightRecorder::Blocked::~Blocked() {
  const TimePoint now = steady_now();
  const Turn turn(*recorder_);
  recorder_->spans_.unblock(now);
  recorder_->spans_.add_wait(since_, now);
  recorder_->trace_.add_wait(since_, now);
}

// fill(record) sets what the operation is.
template <class Fill>
FlightRecorder::Ticket FlightRecorder::write(TimePoint now, SpanKind kind, Fill fill) {
  if (!file_) return 0;
  const Turn turn(*this);
  if (kind == SpanKind::call) spans_.block(now);
  const Ticket ticket = ++last_;
  FlightRecord& record = file_->records[ticket % kFlightRecords];
  record.number.store(0, std::memory_order_release);
  record.started_ns = now.time_since_epoch().count();
  record.ended_ns = 0;
  record.state = FlightState::running;
  fill(record);
  record.number.store(ticket, std::memory_order_release);
  return ticket;
}

FlightRecorder::Ticket FlightRecorder::begin(TimePoint now, const Call& call, std::uint32_t group,
                                             int world_peer, SpanKind kind) {
  return write(now, kind, [&](FlightRecord& record) {
    const bool reduces = traits_of(call.collective).reduces;
    record.what = static_cast<std::uint8_t>(call.collective);
    record.seq = call.seq;
    record.count = call.count;
    record.dtype = static_cast<std::uint8_t>(call.dtype);
    record.op = reduces ? static_cast<std::uint8_t>(op_code(call.op)) : kFlightNoOp;
    record.peer = call.root;
    record.tag = 0;
    record.group = group;
    record.world_peer = world_peer;
  });
}

FlightRecorder::Ticket FlightRecorder::begin(TimePoint now, const Message& message, int world_peer,
                                             SpanKind kind) {
  return write(now, kind, [&](FlightRecord& record) {
    record.what = message.is_send ? kFlightSend : kFlightRecv;
    record.seq = 0;
    record.count = message.count;
    record.dtype = static_cast<std::uint8_t>(message.dtype);
    record.op = kFlightNoOp;
    record.peer = message.peer;
    record.tag = message.tag;
    record.group = 0;
    record.world_peer = world_peer;
  });
}

std::uint16_t FlightRecorder::explain(std::string_view text) {
  const Turn turn(*this);
  return trace_.add_text(text);
}

void FlightRecorder::end(Ticket ticket, bool failed, SpanKind kind, std::uint16_t how) {
  if (ticket == 0) return;
  const TimePoint now = steady_now();
  const Turn turn(*this);
  if (kind == SpanKind::call) spans_.unblock(now);
  FlightRecord& record = file_->records[ticket % kFlightRecords];
  if (record.number.load(std::memory_order_relaxed) != ticket) return;  // long overwritten
  record.ended_ns = now.time_since_epoch().count();
  record.state = failed ? FlightState::failed : FlightState::done;
  spans_.add(record, kind, 0);
  trace_.add(record, kind, how);
  if (failed || record.what >= kTallyKinds) return;
  add_to_tally(file_->tallies[record.what], record.count * kDtypeBytes[record.dtype],
               static_cast<std::uint64_t>(record.ended_ns - record.started_ns));
}

void FlightRecorder::received(int peer, std::uint64_t bytes, Duration time) {
  if (!file_ || peer < 0 || peer >= kFlightLinks) return;
  FlightLink& link = file_->links[peer];
  const auto add = [](auto& sum, auto value) {
    const auto now = sum.load(std::memory_order_relaxed) + value;
    sum.store(now, std::memory_order_release);
    return now;
  };
  const std::uint64_t all_bytes = add(link.bytes, bytes);
  const std::int64_t all_ns = add(link.ns, time.count());
  link.check.store(check_of(all_bytes, all_ns), std::memory_order_release);
}

}  // namespace dlaunch
