#include <algorithm>

#include "base/address.h"
#include "base/endpoint.h"
#include "base/units.h"
#include "cli/plan_parts.h"
#include "rendezvous/leader_election.h"

namespace dlaunch {
namespace {

constexpr int kMaxNodes = 4096;
// torchrun's default ports.
constexpr std::uint16_t kRdzvPort = 29400, kMasterPort = 29500;

// The endpoint of --rdzv or, as in torchrun's static rendezvous, the master's address.
Result<Endpoint> leader_of(const Options& options) {
  if (options.rdzv) return rdzv_endpoint(options.rdzv);
  if (!options.master_addr) {
    return refuse(
        "{} {} needs --rdzv: tcp://HOST:PORT, where one of the hosts listens for the others, or "
        "file:///FOLDER or etcd://HOST:PORT",
        options.nnodes.source, *options.nnodes);
  }
  Endpoint endpoint{*options.master_addr, kMasterPort};
  if (options.master_port) {
    auto port = parse_int(*options.master_port, 1, 65535, options.master_port.source);
    if (!port) return port.error();
    endpoint.port = static_cast<std::uint16_t>(*port);
  }
  return endpoint;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

bool elects(const Text& rdzv) { return rdzv && is_election_url(*rdzv); }

// The address by which the others reach us if we are elected.
Result<std::string> own_address(const PlanDraft& draft, const NodesPlan& nodes) {
  if (draft.options.interface) return chosen_address(draft);
  if (nodes.etcd) {
    for (const auto& server : nodes.etcd->endpoints) {
      auto towards = draft.machine.address_towards(server.host);
      if (towards && !is_loopback(*towards)) return towards;
    }
  }
  return draft.machine.any_address();
}

// A shared folder or etcd decides the leader.
Result<void> plan_election(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  NodesPlan& nodes = plan.nodes;
  if ((*options.rdzv).starts_with("file://")) {
    nodes.folder = (*options.rdzv).substr(7);
    if (!nodes.folder.starts_with('/')) {
      return refuse("{}: '{}' is not file:///FOLDER", options.rdzv.source, *options.rdzv);
    }
  } else {
    auto access = etcd_access(*options.rdzv, draft.machine.environment);
    if (!access) return refuse("{}: {}", options.rdzv.source, access.error().what);
    nodes.etcd = std::move(*access);
  }
  if (options.master_addr) {
    return refuse("{} and {} contradict each other: the hosts elect their leader",
                  options.master_addr.source, options.rdzv.source);
  }
  auto address = own_address(draft, nodes);
  if (!address) return address.error();
  plan.store_listen = to_string(Endpoint{*address, 0});
  plan.master_addr = *address;
  return {};
}

// The leader's name is a loopback on this machine only: the others resolve it to a better address.
Result<void> leave_loopback(PlanDraft& draft, const Endpoint& endpoint,
                            Result<std::string>& address) {
  if (!address || !is_loopback(*address) || !is_host_name(endpoint.host)) return {};
  NodesPlan& nodes = draft.plan().nodes;
  address = own_address(draft, nodes);
  if (!address) return address.error();
  nodes.endpoint = to_string(Endpoint{*address, endpoint.port});  // for others on this machine
  return {};
}

const Text& leader_option(const Options& options) {
  return options.rdzv ? options.rdzv : options.master_addr;
}

// Whether this host leads, and its endpoint then.
Result<void> plan_lead(PlanDraft& draft, const Endpoint& endpoint) {
  Plan& plan = draft.plan();
  NodesPlan& nodes = plan.nodes;
  nodes.lead = NodesPlan::Lead::no;
  // The leader's name may not resolve yet, unless it is our own.
  if (nodes.rank > 0 && endpoint.host != draft.machine.hostname) return {};
  auto address = draft.machine.local_address(endpoint.host);
  if (!draft.slurm) {
    if (auto left = leave_loopback(draft, endpoint, address); !left) return left;
  } else if (nodes.rank == 0 && (!address || is_loopback(*address))) {
    // Its own name is 127.0.1.1 on a host that the others know by a better address.
    address = draft.machine.address_towards(draft.slurm->nodes.back());
  }
  if (nodes.rank > 0 || (!address && nodes.rank < 0)) return {};
  if (!address) {
    return refuse("{}: node rank 0 leads the job, but '{}' is not an address of this machine",
                  leader_option(draft.options).source, endpoint.host);
  }
  nodes.lead = nodes.rank == 0 ? NodesPlan::Lead::yes : NodesPlan::Lead::if_free;
  plan.store_listen = to_string(Endpoint{*address, endpoint.port});
  plan.master_addr = *address;
  return {};
}

// One host: its workers meet on its loopback, on IPv6's if only that is up or if it is requested.
void plan_loopback(PlanDraft& draft) {
  const Text& asked = draft.options.master_addr;
  const bool v6 = asked && (*asked == "::1" || *asked == "[::1]");
  const std::string address = v6 ? "::1" : draft.machine.loopback();
  draft.plan().store_listen = to_string(Endpoint{address, 0});
  draft.plan().master_addr = address;
}

}  // namespace

Result<void> plan_counts(PlanDraft& draft) {
  const Options& options = draft.options;
  NodesPlan& nodes = draft.plan().nodes;
  if (options.nnodes) {
    const std::string& text = *options.nnodes;
    const auto colon = text.find(':');
    auto low = parse_int(text.substr(0, colon), 1, kMaxNodes, options.nnodes.source);
    if (!low) return refuse("{}, or MIN:MAX", low.error().what);
    nodes.min = nodes.max = *low;
    if (colon != text.npos) {
      auto high = parse_int(text.substr(colon + 1), *low, kMaxNodes, options.nnodes.source);
      if (!high) return refuse("{}, or MIN:MAX", high.error().what);
      nodes.max = *high;
    }
  }
  if (options.node_rank && (nodes.max > 1 || is_mistaken(options.node_rank))) {
    auto rank = parse_int(*options.node_rank, 0, nodes.max - 1, options.node_rank.source);
    if (!rank) return refuse("{} (--nnodes {})", rank.error().what, nodes.max);
    nodes.rank = *rank;
  }
  return {};
}

Result<Endpoint> rdzv_endpoint(const Text& rdzv) {
  std::string_view place = *rdzv;
  if (const auto scheme = place.find("://"); scheme != place.npos) {
    if (place.substr(0, scheme) != "tcp") {
      if (elects(rdzv)) {
        return refuse("{}: '{}' is for hosts that are started one by one, with --nnodes",
                      rdzv.source, *rdzv);
      }
      return refuse(
          "{}: '{}' is not tcp://HOST:PORT, file:///FOLDER or etcd://HOST:PORT,.../PREFIX",
          rdzv.source, *rdzv);
    }
    place.remove_prefix(scheme + 3);
  }
  auto endpoint = parse_endpoint(place, kRdzvPort);
  if (!endpoint) return refuse("{}: {}", rdzv.source, endpoint.error().what);
  return endpoint;
}

Result<void> plan_nodes(PlanDraft& draft) {
  if (draft.joins) return {};
  if (!draft.hosts.empty() || draft.discovers) return plan_ssh(draft);
  if (auto done = plan_counts(draft); !done) return done.error();
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  NodesPlan& nodes = plan.nodes;
  if (draft.slurm && draft.slurm->step) nodes.step = NodesPlan::Step::slurm;
  if (draft.flux) nodes.step = NodesPlan::Step::flux;
  nodes.leader_returns = draft.in_pod;
  if (nodes.max == 1) {
    plan_loopback(draft);
    return {};
  }
  if (options.standalone) {
    return refuse("{} and {} {} contradict each other", options.standalone.source,
                  options.nnodes.source, *options.nnodes);
  }
  const auto warn_of_strangers = [&](const std::string& where) {
    if (options.secret_file) return;
    draft.built.warnings.push_back(fmt::format(
        "no --secret-file: anyone who reaches {} and knows the job's name can join it", where));
  };
  if (elects(options.rdzv)) {
    warn_of_strangers("its leader");
    return plan_election(draft);
  }
  auto endpoint = leader_of(options);
  if (!endpoint) return endpoint.error();
  if (endpoint->port == 0) {
    return refuse("{}: all hosts have to know the port", leader_option(options).source);
  }
  nodes.endpoint = to_string(*endpoint);
  if (auto done = plan_lead(draft, *endpoint); !done) return done.error();
  const auto home = draft.machine.environment("HOME");
  if (!options.secret_file && nodes.in_step() && home) {
    plan.key_file = *home + "/.dlaunch/key";
  } else if (!options.secret_file) {
    warn_of_strangers(nodes.endpoint);
  }
  return {};
}

}  // namespace dlaunch
