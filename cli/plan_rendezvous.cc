#include <algorithm>
#include <cctype>

#include "base/endpoint.h"
#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

// torchrun's port where an endpoint names none.
constexpr std::uint16_t kDefaultPort = 29400;

Result<std::string> our_address(const PlanDraft& draft, const Text& option,
                                const std::string& host) {
  auto address = draft.machine.local_address(host);
  if (address) return address;
  return refuse("{}: '{}' is not an address of this machine; this version runs on one machine",
                option.source, host);
}

Result<void> plan_store(PlanDraft& draft) {
  const Text& rdzv = draft.options.rdzv;
  std::string_view place = *rdzv;
  if (const auto scheme = place.find("://"); scheme != place.npos) {
    if (place.substr(0, scheme) != "tcp") {
      return refuse("{}: '{}' is not tcp://HOST:PORT, the only rendezvous of this version",
                    rdzv.source, *rdzv);
    }
    place.remove_prefix(scheme + 3);
  }
  auto endpoint = parse_endpoint(place, kDefaultPort);
  if (!endpoint) return refuse("{}: {}", rdzv.source, endpoint.error().what);
  auto address = our_address(draft, rdzv, endpoint->host);
  if (!address) return address.error();
  draft.plan().store_listen = to_string(Endpoint{*address, endpoint->port});
  return {};
}

Result<void> plan_nodes(const PlanDraft& draft) {
  const Options& options = draft.options;
  if (options.nnodes && *options.nnodes != "1" && *options.nnodes != "1:1") {
    return refuse("{} {}: this version runs on one machine (1 or 1:1)", options.nnodes.source,
                  *options.nnodes);
  }
  if (options.node_rank && *options.node_rank != "0") {
    return refuse("{} {}: this version runs on one machine, whose rank is 0",
                  options.node_rank.source, *options.node_rank);
  }
  if (options.rdzv_backend && *options.rdzv_backend != "c10d" &&
      *options.rdzv_backend != "static") {
    return refuse("{}: '{}' is not one of c10d, static", options.rdzv_backend.source,
                  *options.rdzv_backend);
  }
  return {};
}

bool is_job_id(const std::string& id) {
  constexpr std::string_view kAlso = "._:@+=-";
  return !id.empty() && id.size() <= 128 && id[0] != '.' &&
         std::all_of(id.begin(), id.end(), [&](unsigned char c) {
           return std::isalnum(c) != 0 || kAlso.find(static_cast<char>(c)) != kAlso.npos;
         });
}

}  // namespace

Result<void> plan_rendezvous(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  if (auto done = plan_nodes(draft); !done) return done.error();
  if (options.rdzv_backend) {
    draft.built.notes.push_back(fmt::format("{} {}: workers meet at dlaunch's own store",
                                            options.rdzv_backend.source, *options.rdzv_backend));
  }
  if (options.rdzv) {
    if (auto done = plan_store(draft); !done) return done.error();
  }
  if (options.master_addr) {
    auto address = our_address(draft, options.master_addr, *options.master_addr);
    if (!address) return address.error();
    plan.master_addr = *address;
  }
  if (options.master_port) {
    auto port = parse_int(*options.master_port, 0, 65535, options.master_port.source);
    if (!port) return port.error();
    plan.master_port = *port;
  }
  const auto store = parse_endpoint(plan.store_listen);
  if (store && plan.master_port != 0 && store->port == plan.master_port) {
    return refuse("{} and {} name the same port {}: the first is dlaunch's, the other the workers'",
                  options.rdzv.source, options.master_port.source, plan.master_port);
  }
  if (options.job_id && !is_job_id(*options.job_id)) {
    return refuse("{}: '{}' is not a name of 1 to 128 letters, digits and . _ : @ + = -",
                  options.job_id.source, *options.job_id);
  }
  plan.job_id = options.job_id ? *options.job_id : draft.machine.new_job_id();
  if (options.secret_file) {
    if (auto good = draft.machine.check_secret(*options.secret_file); !good) {
      Error error = good.error();
      error.what = options.secret_file.source + ": " + error.what;
      return error;
    }
    plan.secret_file = *options.secret_file;
  }
  return {};
}

}  // namespace dlaunch
