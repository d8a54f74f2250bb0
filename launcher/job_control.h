// JobControl: answers the questions and does the orders that come to the job's control socket, as
// control_request.h decides. One thread, the loop's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <asio/io_context.hpp>

#include "elastic/job_core.h"
#include "launcher/control_request.h"
#include "launcher/control_server.h"
#include "launcher/job_care.h"
#include "launcher/plan.h"

namespace dlaunch {

class JobControl {
 public:
  // What it looks at, all of which must outlive it, and how an order reaches the job.
  struct Job {
    const Plan& plan;
    const JobCore& core;
    JobCare& care;
    std::function<std::string(Slot)> host_of;
    std::function<std::vector<std::string>()> hosts;  // what is not as it should be with them
    std::function<void(JobCore::Event)> feed;
  };
  static Result<std::unique_ptr<JobControl>> open(asio::io_context& loop, const std::string& folder,
                                                  Job job);

 private:
  explicit JobControl(Job job);
  void answer(const std::string& request, const ControlServer::Reply& reply);
  using Workers = std::map<Slot, NodeWorker>;
  void decide_on(const ControlRequest& request, const JobStatus& now,
                 const ControlServer::Reply& reply);
  JobStatus status(const Workers& workers) const;
  WorkerStatus status_of(Slot slot, const Workers& workers, TimePoint now) const;

  const Job job_;
  const TimePoint started_ = steady_now();
  std::unique_ptr<ControlServer> server_;
};

}  // namespace dlaunch
