// NcclRecorder: writes the operations of one process on NCCL's communicators to its record
// (base/nccl_record.h). One thread at a time. An event takes some tens of nanoseconds.
//
// With kernel events an operation runs from the first event of a channel of its kernel to the last
// one. It counts as done when as many channels have ended as it uses; where NCCL does not say how
// many that are, when all that have begun have ended, and it runs again if one more begins.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/nccl_record.h"

namespace dlaunch {

class NcclRecorder {
 public:
  struct Operation {
    std::uint8_t what = 0;  // as FlightRecord's, and so are the next two
    std::uint8_t dtype = 0;
    std::uint64_t count = 0;
    int peer = 0;      // root of a collective, peer of a message; in the communicator
    int channels = 0;  // of its kernel; 0: not known, or its kernel gives no events
  };
  // What names an operation afterwards. An old one, which is no longer known, has no effect.
  using Ticket = std::uint64_t;

  NcclRecorder(NcclFile& file, bool kernels) : file_(file), kernels_(kernels) {}

  // A communicator's number here; -1: the record has no room for it. id 0: not known before its
  // first operation.
  int add(std::uint64_t id, int ranks, int rank, std::string_view name);
  void identify(int comm, std::uint64_t id, int rank, std::string_view name);
  void remove(int comm);

  // NCCL has enqueued the operation on a stream.
  Ticket enqueue(TimePoint now, int comm, const Operation& operation);
  // The GPU has begun or ended the operation on one more channel.
  void channel_began(TimePoint now, Ticket ticket);
  void channel_ended(TimePoint now, Ticket ticket);

 private:
  static constexpr std::size_t kKnown = 4096;

  // An operation that its kernel's events may still concern.
  struct Known {
    Ticket ticket = 0;
    int comm = -1;
    std::uint64_t number = 0;  // of a collective on its communicator; 0: a message
    int channels = 0, began = 0, ended = 0;
    bool tallied = false;
  };
  struct Comm {
    bool used = false;
    Ticket destroyed = 0;             // the last operation then
    std::vector<std::uint64_t> open;  // the collectives that run
  };

  template <class Change>
  void change(int comm, Change change);
  Known* find(Ticket ticket);
  FlightRecord* record_of(Ticket ticket);
  void write(TimePoint now, Ticket ticket, const Operation& operation, std::uint32_t group,
             std::uint64_t seq);
  void runs(TimePoint now, Known& known);
  void is_done(TimePoint now, Known& known);
  void close(const Known& known);
  void tell_message(const Known& known, bool open);

  NcclFile& file_;
  const bool kernels_;
  Ticket last_ = 0;
  std::array<Comm, kNcclComms> comms_;
  std::array<Known, kKnown> known_{};
};

}  // namespace dlaunch
