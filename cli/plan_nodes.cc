#include <algorithm>

#include "base/endpoint.h"
#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

constexpr int kMaxNodes = 4096;
// torchrun's ports where none is named.
constexpr std::uint16_t kRdzvPort = 29400, kMasterPort = 29500;

// What --rdzv says, or as torchrun's static rendezvous has it, the master's address.
Result<Endpoint> leader_of(const Options& options) {
  if (options.rdzv) return rdzv_endpoint(options.rdzv);
  if (!options.master_addr) {
    return refuse(
        "{} {} needs --rdzv tcp://HOST:PORT: where one of the hosts listens for the others",
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

const Text& leader_option(const Options& options) {
  return options.rdzv ? options.rdzv : options.master_addr;
}

// Whether this host leads, and where it listens then.
Result<void> plan_lead(PlanDraft& draft, const Endpoint& endpoint) {
  Plan& plan = draft.plan();
  NodesPlan& nodes = plan.nodes;
  nodes.lead = NodesPlan::Lead::no;
  if (nodes.rank > 0) return {};  // and its name may not be known yet
  auto address = draft.machine.local_address(endpoint.host);
  if (draft.slurm && nodes.rank == 0 && (!address || is_loopback(*address))) {
    // Its own name is 127.0.1.1 to a host that the others know by a better one.
    address = draft.machine.address_towards(draft.slurm->nodes.back());
  }
  if (!address && nodes.rank < 0) return {};
  if (!address) {
    return refuse("{}: node rank 0 leads the job, but '{}' is not an address of this machine",
                  leader_option(draft.options).source, endpoint.host);
  }
  nodes.lead = nodes.rank == 0 ? NodesPlan::Lead::yes : NodesPlan::Lead::if_free;
  plan.store_listen = to_string(Endpoint{*address, endpoint.port});
  plan.master_addr = *address;
  return {};
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
  if (options.node_rank) {
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
      return refuse("{}: '{}' is not tcp://HOST:PORT, the only rendezvous of this version",
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
  if (!draft.hosts.empty()) return plan_ssh(draft);
  if (auto done = plan_counts(draft); !done) return done.error();
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  NodesPlan& nodes = plan.nodes;
  nodes.in_step = draft.slurm && draft.slurm->step;
  nodes.leader_returns = draft.in_pod;
  if (nodes.max == 1) return {};
  if (options.standalone) {
    return refuse("{} and {} {} contradict each other", options.standalone.source,
                  options.nnodes.source, *options.nnodes);
  }
  auto endpoint = leader_of(options);
  if (!endpoint) return endpoint.error();
  if (endpoint->port == 0) {
    return refuse("{}: all hosts have to know the port", leader_option(options).source);
  }
  nodes.endpoint = to_string(*endpoint);
  if (auto done = plan_lead(draft, *endpoint); !done) return done.error();
  const auto home = draft.machine.environment("HOME");
  if (!options.secret_file && draft.slurm && draft.slurm->step && home) {
    plan.key_file = *home + "/.dlaunch/key";
  } else if (!options.secret_file) {
    draft.built.warnings.push_back(
        fmt::format("no --secret-file: whoever reaches {} and knows the job's name can join it",
                    nodes.endpoint));
  }
  return {};
}

}  // namespace dlaunch
