// What can be said about how a worker ended: its wait status, and what it left behind.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>

#include "launcher/process/oom.h"
#include "launcher/process/worker_env.h"
#include "launcher/report/report.h"

namespace dlaunch {

// The facts of its wait status: waitid's siginfo_t.
void note_wait_status(WorkerEnd& end, const siginfo_t& info);

// The files that a failed worker may have left: TORCHELASTIC_ERROR_FILE, and in its round's folder
// libdlring's note on a lost peer and its flight record.
void note_left_files(WorkerEnd& end, const WorkerPlace& place);

// That the kernel killed it for lack of memory, if our memory cgroup counted such a kill since
// `before` and nobody here had sent the SIGKILL. It then counts in `before`, and is not put down to
// the next one that dies.
void note_out_of_memory(WorkerEnd& end, OomCounter& before);

// Its flight record, for base/flight.h to read; "" if there is none.
std::string flight_record_of(const WorkerPlace& place);

// The first 1 MiB of a regular file; "" if there is none. Never waits, whatever the worker has put
// in the file's place.
std::string read_left_file(const std::string& path);

}  // namespace dlaunch
