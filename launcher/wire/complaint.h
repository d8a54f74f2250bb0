// What a failed worker's last words say about other ranks. They are its error file, or else its
// traceback if that is about the failure, or else the end of its stderr. Pure; a guess from text.
#pragma once

#include "launcher/wire/worker_end.h"

namespace dlaunch {

enum class Complaint {
  none,
  timeout,          // something took too long, perhaps another rank
  gave_up_waiting,  // for other ranks: the time-out of a library of collectives
  lost_connection,  // perhaps to a rank that had failed
  lost_service,     // the service of rank 0 that watches the others is gone
};

// by_traceback: its last traceback is about this failure.
Complaint complaint_of(const WorkerEnd& worker, bool by_traceback);

// The exception is the time-out of a library of collectives.
bool gave_up_in(const Traceback& traceback);

// Its failure may follow from another rank: that one has failed, or it does not come.
inline bool may_follow(Complaint complaint) { return complaint != Complaint::none; }
// Its words are about another rank, and not about a time-out of any kind.
inline bool is_about_others(Complaint complaint) {
  return may_follow(complaint) && complaint != Complaint::timeout;
}

}  // namespace dlaunch
