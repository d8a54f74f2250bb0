// From a URL, options and the environment to a plain value: who this rank is and where the others
// can be met. Pure: the environment is handed in.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/endpoint.h"
#include "base/environment.h"
#include "base/result.h"
#include "dlaunch/ring.h"
#include "ring/kernels/wire_codec.h"
#include "ring/plan/plan_rules.h"

namespace dlaunch {

struct JobView {
  int rank = 0;
  int size = 1;
  std::uint64_t round = 1;
  std::string job_id = "default";
  std::string secret_file;   // "": no secret
  bool tls = false;          // connections by TCP are encrypted
  std::string store_url;     // "": a world of one needs none
  bool hosts_store = false;  // rank 0 of a job started by hand serves tcp:// itself
  std::string meeting;       // what follows tcp://host:port/; "": nothing
  Duration init_timeout = std::chrono::seconds(600);
  Duration op_timeout = std::chrono::seconds(1800);  // negative: for ever
  Duration link_timeout = std::chrono::seconds(5);   // until a silent host is lost; 0: never
  std::string transport = "auto";
  WireCodec codec = WireCodec::none;
  bool use_nccl = true;  // for device memory
  std::string plan;      // DLAUNCH_PLAN, the same on all ranks, and what it says
  PlanRules plan_rules;
  int sockets = 0;        // to each rank that TCP leads to; 0: found out, and one on this host
  bool explains = false;  // rank 0 says how it does what
  std::string interface;  // what to listen on, as choose_address() takes it; "": towards the store
  PortRange ports;        // of the ranks' own listeners
  std::string round_dir;  // where the launcher wants to be told of lost peers; "": nowhere
  std::string agent;      // the agent's socket, for a process that takes part in rounds; "": none
  int worker = 0;         // what the agent calls this process
  int local_cores = 0;    // cores that the ranks of this host share; 0: not told
  std::string warning;    // what is hardly as it was meant; "": nothing
  // Of a group that a communicator was split into; rank and size are the group's.
  std::string group;             // keeps groups apart: "/1.0", then "/1.0/2.1" for a group of that
  std::vector<int> world_ranks;  // of its ranks; empty: this is the world
  int world_rank(int r) const {
    const bool known = r >= 0 && static_cast<std::size_t>(r) < world_ranks.size();
    return known ? world_ranks[static_cast<std::size_t>(r)] : r;
  }
  // What its keys in the store begin with, so that no other communicator there has the same.
  std::string key_space() const {
    return "r" + std::to_string(round) + (meeting.empty() ? "" : "@" + meeting) + group;
  }
  // What both ends of a connection have in common beside the round.
  std::string link_id() const { return job_id + (meeting.empty() ? "" : "@" + meeting) + group; }
};

// url and options as of dl_init; both may be null. Errc::usage with the name of what is wrong.
Result<JobView> resolve_job(const char* url, const dl_options* options, const Environment& env);

// How long an operation may take: the option if >= 0 (0: for ever, which is negative), else
// DLAUNCH_OP_TIMEOUT, else `otherwise`.
Result<Duration> operation_limit(double option_s, const Environment& env, Duration otherwise);
// The same without an environment.
Result<Duration> operation_limit(double option_s, Duration otherwise);

// The process's own environment, in which an empty variable counts as not set.
Environment process_environment();

}  // namespace dlaunch
