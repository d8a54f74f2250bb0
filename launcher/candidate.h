// Candidate: the process beside an agent that finds out who leads the job where hosts meet by a
// shared folder or by etcd, stands for election where nobody does, and leads the job once elected.
// A process of its own, because a file server or an etcd may hold up whoever asks it for minutes,
// and the workers and their output must not wait for that.
//
// It tells its agent line by line: "leader TERM ENDPOINT" when that is somebody else than before,
// "leading TERM ENDPOINT" when it is this one; "nobody WHY" each second while nobody is known;
// "never WHY" before it gives up. The agent's end ends it, and an end of its own while it leads is
// that of the job's leader.
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

struct CandidateProcess {
  pid_t pid = -1;
  UniqueFd to;    // its signals; the end of this one ends it
  UniqueFd from;  // what it tells
};
// To be called before the agent has a loop: it forks.
Result<CandidateProcess> start_candidate(const Plan& plan, const OriginalSignals& original);

// The agent's end of it. One thread, the loop's.
class CandidateLink {
 public:
  struct Listener {
    std::function<void(const Leader&, bool ours)> leader;
    std::function<void(const std::string& why, bool never)> nobody;
    std::function<void()> ended;  // the process
  };
  CandidateLink(asio::io_context& loop, CandidateProcess process, Listener listener);

  pid_t pid() const { return pid_; }

 private:
  void read();
  void heard(std::string_view line);

  const pid_t pid_;
  const UniqueFd to_;
  asio::posix::stream_descriptor from_;
  const Listener listener_;
  std::array<char, 4096> input_{};
  std::string partial_;
};

}  // namespace dlaunch
