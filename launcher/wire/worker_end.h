// What a node reports about the start and the end of a worker. Plain values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/flight.h"
#include "base/traceback.h"

namespace dlaunch {

enum class Stage { none, fork, chdir, bind_cpu, stdio, exec };  // of starting a worker

struct SpawnError {
  Stage stage = Stage::none;
  int os_errno = 0;
  std::string what;  // "exec './trian': No such file or directory"
};

// How one worker of the last round ended.
struct WorkerEnd {
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
  std::string host;  // "": the job's own
  TimePoint started{};
  TimePoint ended{};       // when its agent's pidfd reported it
  Duration clock_error{};  // possible error of `ended` on the leader's clock
  int exit_code = 0;       // valid if signal == 0
  int signal = 0;          // that killed it; 0: it exited
  bool core_dumped = false;
  std::string hung;           // why dlaunch killed it as hung, in words; "": not hung
  int signal_we_sent = 0;     // the last one from dlaunch before it began to end; 0: none
  bool by_chaos = false;      // --chaos sent the SIGKILL
  bool oom_evidence = false;  // the memory cgroup counted a kill while this job ran
  std::string oom_text;       // "memory cgroup /x: limit 2 GiB, oom_kill rose from 0 to 1"
  std::vector<std::string> stderr_tail;
  std::optional<Traceback> traceback;  // the last, if it is from before any signal of ours
  // How long it had shown nothing since that traceback, while it still ran, when we first sent it a
  // signal; 0: does not apply.
  Duration silent_since_traceback{};
  std::string stderr_log;           // the file of --log-dir with all of it; "": none
  std::string error_file;           // contents of its TORCHELASTIC_ERROR_FILE, if it wrote one
  std::vector<FlightEntry> flight;  // its last operations, oldest first
  bool flight_is_nccl = false;      // they are NCCL's, as it made none of libdlring
  int peer_lost = -1;               // the rank whose loss libdlring reported to it; -1: none
  std::string corrupt;              // --verify has found different results, in words; "": no
  int corrupt_rank = -1;            // its own rank if its data were corrupt; -1: not known whose

  bool is_corrupt() const { return !corrupt.empty() && corrupt_rank == rank; }
  // Its failure is its own, also if dlaunch ended it.
  bool is_to_blame() const { return !hung.empty() || is_corrupt(); }
  // dlaunch ended it for the sake of others.
  bool was_stopped() const { return signal_we_sent != 0 && !is_to_blame(); }
};

// A worker that exits with 0 has failed, too, if its data were corrupt or its round had different
// results: these cannot be trusted.
inline bool has_failed(const WorkerEnd& end) {
  return end.signal != 0 || end.exit_code != 0 || !end.corrupt.empty();
}

}  // namespace dlaunch
