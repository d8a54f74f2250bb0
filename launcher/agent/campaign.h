// A campaign: where hosts meet by a shared folder or by etcd, a process beside each agent finds out
// who leads the job, stands for election while there is no leader, and leads the job once it is
// elected. It is a process of its own because a request to a file server or to etcd may block for
// minutes, and workers and their output must not wait for that.
// The process sends lines to its agent: "leader TERM ENDPOINT" when the leader has changed,
// "leading TERM ENDPOINT" when it leads itself, "nobody WHY" each second while it knows of no
// leader, and "never WHY" before it gives up. It ends when its agent ends. If it ends while it
// leads, the job has lost its leader.
#pragma once

#include <sys/types.h>

#include <array>
#include <functional>
#include <string>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/plan/plan.h"
#include "launcher/process/keeper.h"
#include "rendezvous/leader_election.h"

namespace dlaunch {

struct CampaignProcess {
  pid_t pid = -1;
  UniqueFd to;    // signals to it; closing this end ends the process
  UniqueFd from;  // its lines
};
// Call it before the agent has a loop: it forks.
Result<CampaignProcess> start_campaign(const Plan& plan, const OriginalSignals& original);

// The agent's side of the process. One thread, the loop's.
class CampaignLink {
 public:
  struct Handlers {
    std::function<void(const Leader&, bool ours)> leader;
    std::function<void(const std::string& why, bool never)> nobody;
    std::function<void()> ended;  // the process
  };
  CampaignLink(asio::io_context& loop, CampaignProcess process, Handlers handlers);

  pid_t pid() const { return pid_; }

 private:
  void read();
  void heard(std::string_view line);

  const pid_t pid_;
  const UniqueFd to_;
  asio::posix::stream_descriptor from_;
  const Handlers handlers_;
  std::array<char, 4096> input_{};
  std::string partial_;
};

}  // namespace dlaunch
