// JobControl: answers the questions and carries out the orders that come to the job's control
// socket; control_request.h decides on them. One thread, the loop's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>

#include "elastic/job_core.h"
#include "launcher/lead/control/control_request.h"
#include "launcher/lead/control/control_server.h"
#include "launcher/lead/job_monitor.h"
#include "launcher/lead/job_telemetry.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

class JobControl {
 public:
  // The job's hosts, while they are awaited and later.
  struct Hosts {
    std::function<std::string()> who_is_here;
    std::function<int()> here;                           // their number
    std::function<std::vector<std::string>()> in_words;  // the hosts' problems
    std::function<void()> end;                           // like SIGTERM
    // For a job that has begun: all hosts, without their ranks; and drains or undrains one.
    std::function<std::vector<HostStatus>()> all;
    std::function<void(const HostStatus&)> drain;
  };
  // A job that has begun: its parts, which must outlive this object, and how an order reaches it.
  struct Job {
    const JobCore& core;
    JobMonitor& monitor;
    std::function<std::string(Slot)> host_of;
    std::function<void(JobCore::Event)> feed;
  };
  static Result<std::unique_ptr<JobControl>> open(asio::io_context& loop, const std::string& folder,
                                                  const Plan& plan, JobTelemetry& telemetry,
                                                  Hosts hosts);
  void begin(Job job) { job_.emplace(std::move(job)); }
  // Answers a request that did not come to the control socket.
  void answer(const std::string& request, const ControlServer::Reply& reply);
  // Drains a host at once, without an order of the user, if dlaunchctl would be allowed to. The job
  // runs.
  void drain(const std::string& host);
  // Passes on the job's status, once all hosts have answered. gpus: with the GPUs of the workers.
  void look(bool gpus, const std::function<void(const JobStatus&)>& done);

 private:
  JobControl(const Plan& plan, JobTelemetry& telemetry, Hosts hosts);
  using Workers = std::map<Slot, NodeWorker>;
  void tail(const ControlRequest& request, const ControlServer::Reply& reply);
  void decide_on(const ControlRequest& request, const JobStatus& now,
                 const ControlServer::Reply& reply);
  void carry_out(const ControlDecision& decision);
  JobStatus status_before() const;
  JobStatus status(const Workers& workers) const;
  Goodput goodput_with(const std::vector<LateRanks>& late) const;
  WorkerStatus status_of(Slot slot, const Workers& workers, TimePoint now) const;

  const Plan& plan_;
  JobTelemetry& telemetry_;
  const Hosts hosts_;
  std::optional<Job> job_;  // once begun
  const TimePoint started_ = steady_now();
  std::unique_ptr<ControlServer> server_;
};

}  // namespace dlaunch
