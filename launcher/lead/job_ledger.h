// JobLedger: feeds the job's ledger of goodput with what happens to its workers, and with what
// their hosts report. Pure.
#pragma once

#include <map>

#include "elastic/goodput_ledger.h"
#include "elastic/job_core.h"
#include "launcher/wire/node_message.h"

namespace dlaunch {

class JobLedger {
 public:
  explicit JobLedger(TimePoint begun) : ledger_(begun) {}

  // Before the job's core takes it.
  void see(TimePoint now, const JobCore::Event& event, const JobCore& job);
  // Likewise: a worker has ended.
  void ended(const WorkerEnd& end, const JobCore& job);
  void begin_round(TimePoint now, int round, int size) { ledger_.begin_round(now, round, size); }
  void take(TimePoint now, int node, const NodeMessage& message);
  void slow_link(int rank, double share) { ledger_.slow_link(rank, share); }
  // The job has ended.
  void finish(TimePoint now) { ledger_.finish(now); }

  Goodput at(TimePoint now) const { return ledger_.at(now); }

 private:
  void look(TimePoint now, const NodeRank& rank);

  GoodputLedger ledger_;
  std::map<int, TimePoint> stopped_;  // since when, by rank
  std::uint64_t version_ = 0;         // the newest state that some member holds
};

}  // namespace dlaunch
