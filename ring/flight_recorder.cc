#include "ring/flight_recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <new>

#include "base/unique_fd.h"

namespace dlaunch {

std::shared_ptr<FlightRecorder> FlightRecorder::of_process(const std::string& path) {
  static std::mutex mutex;
  static auto* const known = new std::pair<std::string, std::shared_ptr<FlightRecorder>>;
  const std::lock_guard lock(mutex);
  if (!known->second || known->first != path) {
    *known = {path, std::make_shared<FlightRecorder>(path)};
  }
  return known->second;
}

FlightRecorder::FlightRecorder(const std::string& path) {
  if (path.empty()) return;
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  // posix_fallocate, so that a full disk is noticed here and not by a SIGBUS.
  if (!fd || ::posix_fallocate(fd.get(), 0, kFlightBytes) != 0) return;
  void* const memory =
      ::mmap(nullptr, kFlightBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return;
  records_ = std::shared_ptr<FlightRecord[]>(
      new (memory) FlightRecord[kFlightRecords],
      [](FlightRecord* records) { ::munmap(records, kFlightBytes); });
}

FlightRecorder::Ticket FlightRecorder::begin(const Call& call) {
  if (!records_) return 0;
  FlightRecord plan;
  plan.seq = call.seq;
  plan.count = call.count;
  plan.peer = call.root;
  plan.what = static_cast<std::uint8_t>(call.collective);
  plan.dtype = static_cast<std::uint8_t>(call.dtype);
  plan.op = static_cast<std::uint8_t>(call.op);
  return write(plan);
}

FlightRecorder::Ticket FlightRecorder::begin(const Message& message) {
  if (!records_) return 0;
  FlightRecord plan;
  plan.count = message.count;
  plan.peer = message.peer;
  plan.tag = message.tag;
  plan.what = message.is_send ? kFlightSend : kFlightRecv;
  plan.dtype = static_cast<std::uint8_t>(message.dtype);
  return write(plan);
}

FlightRecorder::Ticket FlightRecorder::write(FlightRecord& plan) {
  const Ticket ticket = ++last_;
  FlightRecord& record = records_[ticket % kFlightRecords];
  record.number.store(0, std::memory_order_release);
  record.seq = plan.seq;
  record.count = plan.count;
  record.started_ns = steady_now().time_since_epoch().count();
  record.ended_ns = 0;
  record.peer = plan.peer;
  record.tag = plan.tag;
  record.what = plan.what;
  record.dtype = plan.dtype;
  record.op = plan.op;
  record.state = FlightState::running;
  record.number.store(ticket, std::memory_order_release);
  return ticket;
}

void FlightRecorder::end(Ticket ticket, bool failed) {
  if (ticket == 0) return;
  FlightRecord& record = records_[ticket % kFlightRecords];
  if (record.number.load(std::memory_order_relaxed) != ticket) return;  // long overwritten
  record.ended_ns = steady_now().time_since_epoch().count();
  record.state = failed ? FlightState::failed : FlightState::done;
}

}  // namespace dlaunch
