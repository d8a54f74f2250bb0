// JobLedger: feeds the job's ledger of goodput with what happens to its workers, and with what
// their hosts report. Pure.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "elastic/goodput_ledger.h"
#include "elastic/job_core.h"
#include "elastic/slow_links.h"
#include "launcher/wire/node_message.h"

namespace dlaunch {

class JobLedger {
 public:
  // line_kind: as StragglerConfig.
  JobLedger(TimePoint begun, int line_kind) : ledger_(begun), links_(line_kind) {}

  // Before the job's core takes it. A rank that is to be replaced, because it hangs for instance,
  // has failed from then on.
  void see(TimePoint now, const JobCore::Event& event, const JobCore& job);
  // Some ranks have hung for so long, and will be replaced next.
  void hung(TimePoint now, Duration time);
  // As see(): a worker has ended.
  void ended(Slot slot, const WorkerEnd& end, const JobCore& job);
  void begin_round(TimePoint now, int round, int size);
  // host: that node's name.
  void take(TimePoint now, int node, const std::string& host, const NodeMessage& message);
  // What the collectives measured. Returns what slow links cost from now on: the share of each
  // step, by the rank whose links are slow.
  std::map<int, double> measured(const StepTimes& step);
  // The job has ended.
  void finish(TimePoint now) { ledger_.finish(now); }

  // As GoodputLedger::at(), with the names of hosts.
  Goodput at(TimePoint now, const std::vector<OpenWait>& open = {}) const;

 private:
  void look(TimePoint now, const NodeRank& rank);

  GoodputLedger ledger_;
  LinkCosts links_;
  std::map<int, std::string> hosts_;  // by rank
  std::map<int, TimePoint> stopped_;  // since when, by rank
  std::optional<TimePoint> hung_since_;
  std::set<Slot> replaced_;    // their processes have failed, and not ended yet
  std::uint64_t version_ = 0;  // the newest state that some member holds
};

}  // namespace dlaunch
