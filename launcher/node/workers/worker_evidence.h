// Evidence of how a worker ended: its wait status, and the files it left behind.
#pragma once

#include <signal.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/flight.h"
#include "launcher/node/workers/oom.h"
#include "launcher/node/workers/worker_env.h"
#include "launcher/wire/worker_end.h"

namespace dlaunch {

// The facts in its wait status: waitid's siginfo_t.
void note_wait_status(WorkerEnd& end, const siginfo_t& info);

// The files that a failed worker may have left: TORCHELASTIC_ERROR_FILE, and in its round's folder
// libdlring's note on a lost peer and the record of its operations.
void note_left_files(WorkerEnd& end, const WorkerPlace& place);

// What --verify has found about its data, or about those of an unknown rank, also if it has exited
// with 0.
void note_corruption(WorkerEnd& end, const WorkerPlace& place);

// What --verify has found, in a worker's words.
struct CorruptNote {
  int rank = -1;  // whose data are corrupt; -1: none is known
  std::string what;
};
// nullopt: the worker has not left a note about this in its round.
std::optional<CorruptNote> corrupt_note(const WorkerPlace& place);

// Notes that the kernel killed it for lack of memory, if our memory cgroup counted such a kill
// since `before` and we had not sent the SIGKILL. `before` then includes that kill, so that it is
// not attributed to the next worker that dies.
void note_out_of_memory(WorkerEnd& end, OomCounter& before);

// Its flight record, for base/flight.h to read; "" if there is none.
std::string flight_record_of(const WorkerPlace& place);

// Its record of NCCL's operations, likewise for base/nccl_record.h.
std::string nccl_record_of(const WorkerPlace& place);

// Its last operations of libdlring, oldest first; if it has made none, those of NCCL.
struct LastOperations {
  std::vector<FlightEntry> entries;
  bool is_nccl = false;
};
LastOperations last_operations_of(const WorkerPlace& place);

// The first bytes of a regular file; "" if there is none. Never waits, whatever kind of file the
// worker has put there.
std::string read_left_file(const std::string& path, std::size_t most = 1 << 20);

}  // namespace dlaunch
