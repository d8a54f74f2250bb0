// JobTrace: collects the timeline of a job for --trace, and writes it to the file at the job's end.
// It keeps the last operations only: at most 2,000,000 of all ranks together.
#pragma once

#include <map>
#include <string>

#include "elastic/job_core.h"
#include "launcher/lead/report/trace_text.h"
#include "launcher/wire/node_message.h"

namespace dlaunch {

class JobTrace {
 public:
  // path "": it collects nothing.
  JobTrace(std::string path, std::string job_id, TimePoint begun);

  void begin_round(TimePoint now, int round, int size);
  // Before the job's core takes it.
  void see(TimePoint now, const JobCore::Event& event, const JobCore& job);
  void ended(const WorkerEnd& end);
  // Slow links cost these shares of each step from now on, by the rank whose links are slow.
  void slow_links(TimePoint now, const std::map<int, double>& shares);
  // clock_error: of that host's clock here.
  void take(int node, const std::string& host, Duration clock_error, const NodeMessage& message);
  // The job has ended.
  void finish(TimePoint now) { trace_.ended = now; }
  // Writes the file; warns if it cannot. Idempotent.
  void write();

 private:
  std::size_t most_of_a_rank() const;

  std::string path_;
  Trace trace_;
};

}  // namespace dlaunch
