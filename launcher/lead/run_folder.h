// RunFolder: the folder of --run-dir, for `dlaunch report`: writes what no other option writes,
// job.json once the job begins and waiting.jsonl while it runs. One thread, the loop's, which never
// waits for the file system.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <asio/io_context.hpp>

#include "base/result.h"
#include "elastic/goodput_ledger.h"
#include "launcher/lead/report/wait_samples.h"
#include "launcher/output/file_writer.h"
#include "launcher/plan/plan.h"
#include "launcher/wire/deadline_timer.h"

namespace dlaunch {

class RunFolder {
 public:
  // Makes the folder, unless it is there. plan must outlive this object.
  static Result<std::unique_ptr<RunFolder>> open(asio::io_context& loop, const Plan& plan);

  // The job begins on these hosts. goodput: the accounts up to now.
  void begin(const std::vector<std::string>& hosts, std::function<Goodput()> goodput);
  // The job has ended: the last sample.
  void end();

 private:
  RunFolder(asio::io_context& loop, const Plan& plan);
  void sample();
  void write(const std::string& line);

  const Plan& plan_;
  FileWriter writer_;
  FileWriter::FilePtr job_, waiting_;
  std::size_t room_ = 0;  // bytes that waiting.jsonl may still get
  std::function<Goodput()> goodput_;
  WaitSamples samples_;
  DeadlineTimer timer_;
};

}  // namespace dlaunch
