// Turns a URL, options and the environment into a plain value: the identity of this rank and the
// store by which it finds the others. Pure: the caller passes the environment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/contract.h"
#include "base/endpoint.h"
#include "base/environment.h"
#include "base/result.h"
#include "dlaunch/ring.h"
#include "ring/kernels/wire_codec.h"
#include "ring/links/link_graph.h"
#include "ring/plan/plan_rules.h"

namespace dlaunch {

struct JobView {
  int rank = 0;
  int size = 1;
  std::uint64_t round = 1;
  std::string job_id = "default";
  std::string secret_file;      // "": no secret
  bool tls = false;             // connections by TCP are encrypted
  std::string store_url;        // "": a world of one needs none
  bool hosts_store = false;     // rank 0 of a job started by hand serves tcp:// itself
  bool may_span_hosts = false;  // such a job: other hosts may know the store's host by its name
  std::string world_name;       // what follows tcp://host:port/; "": nothing
  Duration init_timeout = std::chrono::seconds(600);
  Duration op_timeout = std::chrono::seconds(1800);  // negative: no limit
  Duration link_timeout = std::chrono::seconds(5);   // until a silent host is lost; 0: never
  Transport transport = Transport::automatic;
  LinkChoice links = LinkChoice::automatic;  // the same on all ranks
  WireCodec codec = WireCodec::none;
  VerifyMode verify = VerifyMode::off;  // likewise
  bool use_nccl = true;                 // for device memory
  std::string plan;  // the text of DLAUNCH_PLAN, the same on all ranks, and its rules
  PlanRules plan_rules;
  int sockets = 0;        // to each rank by TCP; 0: found while it works, and one on this host
  bool explains = false;  // rank 0 prints how it does each call
  std::string interface;  // listen here, as for choose_address(); "": towards the store
  std::string rack;       // of this host, as for rack_groups(); "": unknown
  PortRange ports;        // for the ranks' own listeners
  std::string round_dir;  // the launcher reads lost peers there; "": nowhere
  bool traced = false;    // all operations are recorded there
  std::string agent;      // the agent's socket, for a process that takes part in rounds; "": none
  int worker = 0;         // the agent's name for this process
  int local_cores = 0;    // cores that the ranks of this host share; 0: unknown
  std::string warning;    // about a setting that is probably a mistake; "": none
  // For a group that a communicator was split into; rank and size are the group's.
  std::string group;             // keeps groups apart: "/1.0", then "/1.0/2.1" for a group of that
  std::vector<int> world_ranks;  // the group's ranks in the world; empty: this is the world
  int world_rank(int r) const {
    const bool known = r >= 0 && static_cast<std::size_t>(r) < world_ranks.size();
    return known ? world_ranks[static_cast<std::size_t>(r)] : r;
  }
  // The prefix of its keys in the store, which no other communicator there has.
  std::string key_space() const {
    return "r" + std::to_string(round) + (world_name.empty() ? "" : "@" + world_name) + group;
  }
  // Which of its ranks have a link from the start.
  LinkGraph link_graph() const {
    const bool few = size > LinkGraph::kAllLinked;
    return {size, links == LinkChoice::automatic ? !few : links == LinkChoice::all};
  }
  // What both ends of a connection must share beside the round.
  std::string link_id() const {
    return job_id + (world_name.empty() ? "" : "@" + world_name) + group;
  }
};

// url and options as for dl_init; both may be null. Errc::usage names the wrong value.
Result<JobView> resolve_job(const char* url, const dl_options* options, const Environment& env);

// The time limit of an operation: the option if >= 0 (0: no limit, which is a negative result),
// else DLAUNCH_OP_TIMEOUT, else `otherwise`.
Result<Duration> operation_limit(double option_s, const Environment& env, Duration otherwise);
// The same without an environment.
Result<Duration> operation_limit(double option_s, Duration otherwise);

// The process's own environment, in which an empty variable counts as not set.
Environment process_environment();

}  // namespace dlaunch
