#include "ring/profiler/recorder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/flight_tally.h"

namespace dlaunch {

// change(record) changes a communicator's record.
template <class Change>
void NcclRecorder::change(int comm, Change change) {
  NcclCommRecord& record = file_.comms[comm];
  const std::uint64_t version = record.version.load(std::memory_order_relaxed) + 1;
  record.next_version.store(version, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  change(record);
  record.version.store(version, std::memory_order_release);
}

int NcclRecorder::add(std::uint64_t id, int ranks, int rank, std::string_view name) {
  const auto place = std::min_element(comms_.begin(), comms_.end(), [](auto& a, auto& b) {
    return std::pair(a.used, a.destroyed) < std::pair(b.used, b.destroyed);
  });
  if (place->used) return -1;
  const int comm = static_cast<int>(place - comms_.begin());
  *place = {.used = true, .destroyed = 0, .open = {}};
  for (Known& known : known_) {
    if (known.comm == comm) known = {};  // of the communicator that was in this place
  }
  change(comm, [&](NcclCommRecord& record) {
    record.id = 0;
    record.ranks = ranks;
    record.enqueued = record.begun = record.open = record.last = 0;
    record.message = record.destroyed = 0;
    record.kernels = kernels_ ? 1 : 0;
  });
  if (id != 0) identify(comm, id, rank, name);
  return comm;
}

void NcclRecorder::identify(int comm, std::uint64_t id, int rank, std::string_view name) {
  if (file_.comms[comm].id == id) return;
  change(comm, [&](NcclCommRecord& record) {
    record.id = id;
    record.rank = rank;
    std::memset(record.name, 0, sizeof record.name);
    std::memcpy(record.name, name.data(), std::min(name.size(), sizeof record.name));
  });
}

void NcclRecorder::remove(int comm) {
  Comm& gone = comms_[static_cast<std::size_t>(comm)];
  gone.used = false;
  gone.destroyed = last_ + 1;
  change(comm, [](NcclCommRecord& record) { record.destroyed = 1; });
}

NcclRecorder::Ticket NcclRecorder::enqueue(TimePoint now, int comm, const Operation& operation) {
  const Ticket ticket = ++last_;
  NcclCommRecord& record = file_.comms[comm];
  const bool collective = operation.what < kTallyKinds;
  const std::uint64_t number = collective ? record.enqueued + 1 : 0;
  change(comm, [&](NcclCommRecord& changed) {
    changed.last = ticket;
    changed.message = collective ? 0 : 1;
    if (!collective) return;
    changed.enqueued = number;
    changed.calls[number % kNcclCalls] = {.count = operation.count,
                                          .root = operation.peer,
                                          .what = operation.what,
                                          .dtype = operation.dtype};
  });
  Known& known = known_[ticket % kKnown];
  close(known);  // no event will end it there
  known = {.ticket = ticket,
           .comm = comm,
           .number = number,
           .channels = operation.channels,
           .began = 0,
           .ended = 0,
           .tallied = false};
  write(now, ticket, operation, static_cast<std::uint32_t>(record.id), number);
  return ticket;
}

void NcclRecorder::write(TimePoint now, Ticket ticket, const Operation& operation,
                         std::uint32_t group, std::uint64_t seq) {
  FlightRecord& record = file_.flight.records[ticket % kFlightRecords];
  record.number.store(0, std::memory_order_release);
  record.seq = seq;
  record.count = operation.count;
  record.started_ns = now.time_since_epoch().count();
  record.ended_ns = 0;
  record.peer = seq == 0 || has_root(operation.what) ? operation.peer : -1;
  record.tag = 0;
  record.what = operation.what;
  record.dtype = operation.dtype;
  record.op = kFlightNoOp;
  record.state = FlightState::enqueued;
  record.group = group;
  record.world_peer = -1;
  record.number.store(ticket, std::memory_order_release);
}

NcclRecorder::Known* NcclRecorder::find(Ticket ticket) {
  Known& known = known_[ticket % kKnown];
  return ticket != 0 && known.ticket == ticket ? &known : nullptr;
}

FlightRecord* NcclRecorder::record_of(Ticket ticket) {
  FlightRecord& record = file_.flight.records[ticket % kFlightRecords];
  return record.number.load(std::memory_order_relaxed) == ticket ? &record : nullptr;
}

void NcclRecorder::channel_began(TimePoint now, Ticket ticket) {
  Known* const known = find(ticket);
  if (known == nullptr) return;
  const bool ran = known->began > known->ended;
  ++known->began;
  if (!ran) runs(now, *known);
}

void NcclRecorder::channel_ended(TimePoint now, Ticket ticket) {
  Known* const known = find(ticket);
  if (known == nullptr || known->ended >= known->began) return;
  ++known->ended;
  if (known->ended == known->began && known->ended >= known->channels) is_done(now, *known);
}

void NcclRecorder::runs(TimePoint now, Known& known) {
  if (FlightRecord* const record = record_of(known.ticket)) {
    if (record->state == FlightState::enqueued) record->started_ns = now.time_since_epoch().count();
    record->state = FlightState::running;
  }
  tell_message(known, true);
  if (known.number == 0) return;
  auto& open = comms_[static_cast<std::size_t>(known.comm)].open;
  if (std::find(open.begin(), open.end(), known.number) != open.end()) return;
  open.push_back(known.number);
  change(known.comm, [&](NcclCommRecord& record) {
    record.begun = std::max(record.begun, known.number);
    record.open = *std::min_element(open.begin(), open.end());
  });
}

void NcclRecorder::is_done(TimePoint now, Known& known) {
  const std::int64_t ns = now.time_since_epoch().count();
  if (FlightRecord* const record = record_of(known.ticket)) {
    record->ended_ns = ns;
    record->state = FlightState::done;
    if (known.number > 0 && !std::exchange(known.tallied, true)) {
      add_to_tally(file_.flight.tallies[record->what], record->count * kDtypeBytes[record->dtype],
                   static_cast<std::uint64_t>(ns - record->started_ns));
    }
  }
  tell_message(known, false);
  close(known);
}

void NcclRecorder::tell_message(const Known& known, bool open) {
  if (known.number > 0 || file_.comms[known.comm].last != known.ticket) return;
  change(known.comm, [open](NcclCommRecord& record) { record.message = open ? 1 : 0; });
}

void NcclRecorder::close(const Known& known) {
  if (known.number == 0) return;
  auto& open = comms_[static_cast<std::size_t>(known.comm)].open;
  if (std::erase(open, known.number) == 0) return;
  change(known.comm, [&](NcclCommRecord& record) {
    record.open = open.empty() ? 0 : *std::min_element(open.begin(), open.end());
  });
}

}  // namespace dlaunch
