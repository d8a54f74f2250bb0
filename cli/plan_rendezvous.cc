#include <algorithm>
#include <cctype>

#include "base/endpoint.h"
#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

Result<std::string> our_address(const PlanDraft& draft, const Text& option,
                                const std::string& host) {
  auto address = draft.machine.local_address(host);
  if (address) return address;
  return refuse("{}: '{}' is not an address of this machine; for a job on several say --nnodes",
                option.source, host);
}

// The listen address of the store of a job on one host.
Result<void> plan_store(PlanDraft& draft) {
  const Text& rdzv = draft.options.rdzv;
  auto endpoint = rdzv_endpoint(rdzv);
  if (!endpoint) return endpoint.error();
  auto address = our_address(draft, rdzv, endpoint->host);
  if (!address) return address.error();
  draft.plan().store_listen = to_string(Endpoint{*address, endpoint->port});
  return {};
}

Result<void> plan_backend(PlanDraft& draft) {
  const Text& backend = draft.options.rdzv_backend;
  if (!backend) return {};
  if (*backend != "c10d" && *backend != "static") {
    return refuse("{}: '{}' is not one of c10d, static", backend.source, *backend);
  }
  draft.built.notes.push_back(
      fmt::format("{} {}: workers meet at dlaunch's own store", backend.source, *backend));
  return {};
}

Result<void> plan_master(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
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
  return {};
}

bool is_job_id(const std::string& id) {
  constexpr std::string_view kAlso = "._:@+=-";
  return !id.empty() && id.size() <= 128 && id[0] != '.' &&
         std::all_of(id.begin(), id.end(), [&](unsigned char c) {
           return std::isalnum(c) != 0 || kAlso.find(static_cast<char>(c)) != kAlso.npos;
         });
}

// The address on which the workers here listen: a host without such an address reports that before
// any worker starts. Not needed on a host without workers.
Result<void> plan_interface(PlanDraft& draft) {
  const Text& interface = draft.options.interface;
  if (!interface) return {};
  draft.plan().interface = *interface;
  const auto& hosts = draft.plan().nodes.hosts;
  const auto is_ours = [](const HostPlan& host) { return host.leads; };
  if (!hosts.empty() && std::none_of(hosts.begin(), hosts.end(), is_ours)) return {};
  auto address = chosen_address(draft);
  return address ? Result<void>() : address.error();
}

}  // namespace

Result<std::string> chosen_address(const PlanDraft& draft) {
  const Text& interface = draft.options.interface;
  auto address = draft.machine.interface_address(*interface);
  if (address) return address;
  const Plan& plan = draft.plan();
  // A dlaunch that starts others names the host itself in their errors.
  const bool by_hand = plan.nodes.several() && !draft.joins;
  return refuse("{}{}: {}", by_hand ? "host " + plan.host + ": " : "", interface.source,
                address.error().what);
}

Result<void> plan_rendezvous(PlanDraft& draft) {
  const Options& options = draft.options;
  Plan& plan = draft.plan();
  const bool one_host = !plan.nodes.several();
  const bool by_ssh = !plan.nodes.hosts.empty();
  for (const auto part : {plan_backend, plan_interface}) {
    if (auto done = part(draft); !done) return done.error();
  }
  if (options.rdzv && one_host) {
    if (auto done = plan_store(draft); !done) return done.error();
  }
  // If hosts meet by the master's address, the leader chooses the workers' port.
  if (one_host || by_ssh || draft.joins ||
      (options.rdzv && plan.nodes.lead != NodesPlan::Lead::no)) {
    if (auto done = plan_master(draft); !done) return done.error();
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
  // Hosts that are started by hand all have the same default.
  const std::string job_id = one_host || by_ssh ? draft.machine.new_job_id() : "default";
  plan.job_id = options.job_id ? *options.job_id : job_id;
  if (options.secret_file) {
    if (auto good = draft.machine.check_secret(*options.secret_file); !good) {
      Error error = good.error();
      error.what = options.secret_file.source + ": " + error.what;
      return error;
    }
    plan.secret_file = *options.secret_file;
  }
  const bool by_hand = !one_host && !by_ssh && !draft.joins;
  if (plan.tls && by_hand && plan.secret_file.empty() && plan.key_file.empty()) {
    return refuse(
        "{}: hosts that are started by hand need a secret for it, the same on all: --secret-file",
        options.tls.source);
  }
  return {};
}

}  // namespace dlaunch
