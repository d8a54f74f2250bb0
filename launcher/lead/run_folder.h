// RunFolder: the folder of --run-dir, for `dlaunch report`: writes what no other option writes,
// job.json once the job begins, waiting.jsonl and bandwidth.jsonl while it runs, and limits.json at
// its end, for which it measures for 40 ms. One thread, the loop's, which never waits for the file
// system.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <asio/io_context.hpp>

#include "base/result.h"
#include "elastic/goodput_ledger.h"
#include "launcher/lead/metrics/bandwidth_samples.h"
#include "launcher/lead/report/wait_samples.h"
#include "launcher/output/file_writer.h"
#include "launcher/plan/plan.h"
#include "launcher/wire/deadline_timer.h"

namespace dlaunch {

class RunFolder {
 public:
  // Makes the folder, unless it is there. plan must outlive this object.
  static Result<std::unique_ptr<RunFolder>> open(asio::io_context& loop, const Plan& plan);

  // What it samples while the job runs.
  struct Sources {
    std::function<Goodput()> goodput;  // the accounts up to now
    // Passes on the number of ranks, and the tallies of their collectives, now or a little later.
    using Tallies = BandwidthSamples::Tallies;
    std::function<void(std::function<void(int ranks, const Tallies&)>)> tallies;
  };
  // The job begins on these hosts.
  void begin(const std::vector<std::string>& hosts, Sources sources);
  // The job has ended: the last sample. on_written: called once the files have it.
  void end(std::function<void()> on_written);
  // Whether the files have all that this object gave to them; false while the file system takes its
  // time.
  bool written() const { return writer_.empty(); }

 private:
  RunFolder(asio::io_context& loop, const Plan& plan);
  // A file of lines, up to a size.
  struct Lines {
    FileWriter::FilePtr file;
    std::size_t room = 0;  // bytes that it may still get
  };
  Result<Lines> open_lines(const char* name) const;
  void sample();
  void sample_waits();
  void write(Lines& to, const std::string& line);

  const Plan& plan_;
  FileWriter writer_;
  FileWriter::FilePtr job_, limits_;
  Lines waiting_, bandwidth_;
  Sources sources_;
  std::function<void()> on_written_;
  WaitSamples waits_;
  BandwidthSamples bandwidths_;
  DeadlineTimer timer_;
  int hosts_ = 1;
  int ranks_ = 0;  // the most that had collectives
};

}  // namespace dlaunch
