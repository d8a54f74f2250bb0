#include "launcher/agent/campaign.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "base/exit_code.h"
#include "launcher/agent/agent.h"
#include "launcher/lead/election/leader_lease.h"
#include "launcher/process/job_dir.h"
#include "rendezvous/etcd_election.h"
#include "rendezvous/file_election.h"
#include "rendezvous/tls_tunnel.h"

namespace dlaunch {
namespace {

constexpr Duration kQuestion = std::chrono::seconds(2);  // for one answer
constexpr Duration kTellEvery = std::chrono::seconds(1);

Result<std::unique_ptr<LeaderElection>> open_election(const Plan& plan) {
  const NodesPlan& nodes = plan.nodes;
  return nodes.etcd ? open_etcd_election(*nodes.etcd, plan.job_id)
                    : open_file_election(nodes.folder, plan.job_id);
}

// The plan of the leading process; its host's agent has the workers.
Plan leading(const Plan& plan) {
  Plan led = plan;
  led.nodes.lead = NodesPlan::Lead::yes;
  led.nodes.rank = -1;
  led.nodes.leads_only = true;
  led.stdin_to = StdinPlan::none;
  led.master_port = 0;
  led.framework = Framework::none;  // there are no ranks here to need ports
  return led;
}

class Standby {
 public:
  Standby(int agent, int to_agent) : agent_(agent), to_agent_(to_agent) {}

  // A signal may be in the pipe: the first reader gets it.
  bool agent_lives() const {
    pollfd p{agent_, 0, 0};
    return ::poll(&p, 1, 0) == 0;
  }

  // The folder or etcd has answered at least once.
  bool has_met() const { return has_met_; }

  // Until we are elected. False: the agent has gone, or an election is pointless.
  bool wait_for_election(LeaderElection& election) {
    last_ = {};
    while (agent_lives()) {
      auto found = election.find(steady_now() + kQuestion);
      if (!found) {
        if (!trouble(found.error())) return false;
        continue;
      }
      has_met_ = true;
      if (*found) {
        told_.reset();
        if (!(*found)->endpoint.empty() && **found != last_) {
          last_ = **found;
          tell_agent(to_agent_, fmt::format("leader {} {}", last_.term, last_.endpoint));
        }
        election.wait_change(steady_now() + kTellEvery);
        continue;
      }
      auto won = election.campaign(steady_now() + kQuestion);
      if (won && *won) return true;
      if (!won && !trouble(won.error())) return false;
    }
    return false;
  }

  // False: the trouble will not pass. Where hosts have met once, all trouble may pass, and must not
  // end their workers.
  bool trouble(const Error& error) {
    const bool passes = has_met_ || error.code == Errc::timeout || error.code == Errc::peer_lost ||
                        error.code == Errc::io;
    const auto now = steady_now();
    if (!passes || !told_ || now >= *told_ + kTellEvery) {
      tell_agent(to_agent_, (passes ? "nobody " : "never ") + error.what);
      told_ = now;
    }
    if (passes) ::poll(nullptr, 0, 100);
    return passes;
  }

 private:
  const int agent_, to_agent_;
  bool has_met_ = false;
  Leader last_;
  std::optional<TimePoint> told_;
};

int be_candidate(const Plan& plan, UniqueFd agent, UniqueFd to_agent,
                 const OriginalSignals& original) {
  const auto never = [&](const Error& error) {
    tell_agent(to_agent.get(), "never " + error.what);
    return kExitRendezvous;
  };
  Standby standby(agent.get(), to_agent.get());
  while (standby.agent_lives()) {
    auto election = open_election(plan);
    if (!election) {
      if (!standby.has_met()) return never(election.error());
      standby.trouble(election.error());
      continue;
    }
    if (!standby.wait_for_election(**election)) break;
    LeaderLease lease(std::move(*election), to_agent.get());
    auto left = lease.read_journal();
    if (!left) continue;  // without renewing the lease
    std::optional<JobJournal> was;
    if (!left->empty()) {
      auto journal = decode_job_journal(*left);
      if (!journal) return never(journal.error());
      was = std::move(*journal);
    }
    auto dir = JobDir::make(folder_for_jobs());
    if (!dir) return never(dir.error());
    const Plan led = leading(plan);
    UniqueFd signals(::fcntl(agent.get(), F_DUPFD_CLOEXEC, 0));
    const auto exit_code =
        lead_job(led, std::move(was), *dir, std::move(signals), original, &lease);
    dir->remove();
    if (exit_code) return *exit_code;
  }
  return kExitRendezvous;
}

}  // namespace

Result<CampaignProcess> start_campaign(const Plan& plan, const OriginalSignals& original) {
  int to[2], from[2];
  if (::pipe2(to, O_CLOEXEC) != 0) return errno_error("pipe", errno);
  UniqueFd to_read(to[0]), to_write(to[1]);
  if (::pipe2(from, O_CLOEXEC) != 0) return errno_error("pipe", errno);
  UniqueFd from_read(from[0]), from_write(from[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error("fork", errno);
  if (pid == 0) {
    to_write.reset();
    from_read.reset();
    const int code = be_candidate(plan, std::move(to_read), std::move(from_write), original);
    finish_tunnels();
    ::_exit(code);
  }
  return CampaignProcess{pid, std::move(to_write), std::move(from_read)};
}

CampaignLink::CampaignLink(asio::io_context& loop, CampaignProcess process, Handlers handlers)
    : pid_(process.pid),
      to_(std::move(process.to)),
      from_(loop, process.from.release()),
      handlers_(std::move(handlers)) {
  read();
}

void CampaignLink::read() {
  from_.async_read_some(asio::buffer(input_), [this](asio::error_code error, std::size_t size) {
    if (error == asio::error::operation_aborted) return;
    if (error) return handlers_.ended();
    partial_.append(input_.data(), size);
    for (auto end = partial_.find('\n'); end != partial_.npos; end = partial_.find('\n')) {
      const std::string line = partial_.substr(0, end);
      partial_.erase(0, end + 1);
      heard(line);
    }
    read();
  });
}

void CampaignLink::heard(std::string_view line) {
  const auto space = std::min(line.find(' '), line.size());
  const auto word = line.substr(0, space);
  const auto rest = line.substr(std::min(space + 1, line.size()));
  const bool ours = word == "leading";
  if (word != "leader" && !ours) return handlers_.nobody(std::string(rest), word == "never");
  Leader leader;
  const auto [end, err] = std::from_chars(rest.data(), rest.data() + rest.size(), leader.term);
  if (err != std::errc() || end == rest.data() + rest.size()) return;
  leader.endpoint = std::string(end + 1, rest.data() + rest.size());
  handlers_.leader(leader, ours);
}

}  // namespace dlaunch
