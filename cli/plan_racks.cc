// --topology and --rack: where the hosts stand.
#include "cli/plan_parts.h"
#include "elastic/rack_order.h"

namespace dlaunch {
namespace {

constexpr const char* kAddress = "SLURM_TOPOLOGY_ADDR";

Result<void> plan_own_rack(PlanDraft& draft) {
  const Text& rack = draft.options.rack;
  NodesPlan& nodes = draft.plan().nodes;
  if (!rack) return {};
  if (!nodes.hosts.empty()) {
    if (!is_mistaken(rack)) return {};
    return refuse(
        "{} is for hosts that are started one by one: --topology names the racks of hosts that "
        "dlaunch starts",
        rack.source);
  }
  if (!is_rack(*rack)) {
    return refuse("{}: '{}' is not a name, or names with dots between them", rack.source, *rack);
  }
  nodes.rack = *rack;
  return {};
}

// The leader's file counts.
Result<void> read_topology(PlanDraft& draft) {
  const Text& file = draft.options.topology;
  NodesPlan& nodes = draft.plan().nodes;
  if (nodes.lead == NodesPlan::Lead::no) return {};
  const auto text = draft.machine.read_file(*file);
  if (!text) return refuse("{}: {}", file.source, text.error().what);
  auto racks = parse_topology(*text, *file);
  if (!racks) return racks.error();
  nodes.topology = *file;
  nodes.racks = std::move(*racks);
  return {};
}

// Each host with workers knows its own address.
Result<void> ask_slurm(PlanDraft& draft) {
  const Text& option = draft.options.topology;
  NodesPlan& nodes = draft.plan().nodes;
  const std::string said = option.source + " " + *option;
  if (!nodes.hosts.empty() && nodes.starter != Starter::srun) {
    return refuse("{}: {} starts the hosts, and Slurm gives {} only to hosts that srun starts",
                  said, name_of(nodes.starter), kAddress);
  }
  nodes.topology = *option;
  if (!nodes.rack.empty() || nodes.own_number() < 0) return {};
  const auto address = draft.machine.environment(kAddress);
  if (!address || address->empty()) {
    return refuse(
        "{}: host {} has no {}, which Slurm sets with topology/tree for batch scripts and for what "
        "srun starts",
        said, draft.machine.hostname, kAddress);
  }
  const auto pattern = draft.machine.environment(std::string(kAddress) + "_PATTERN");
  nodes.rack = rack_in_address(*address, pattern.value_or(*address));
  if (is_rack(nodes.rack)) return {};
  return refuse("{}: {} of host {} is '{}', which names no switch", said, kAddress,
                draft.machine.hostname, *address);
}

}  // namespace

Result<void> plan_racks(PlanDraft& draft) {
  const Options& options = draft.options;
  if (draft.plan().nodes.max == 1) {
    for (const Text* option : {&options.topology, &options.rack}) {
      if (option->value == kSlurmTopology) continue;  // one script may serve any number of nodes
      if (is_mistaken(*option)) return refuse("{} has no effect on one host", option->source);
    }
    return {};
  }
  if (auto done = plan_own_rack(draft); !done) return done;
  if (!options.topology) return {};
  return *options.topology == kSlurmTopology ? ask_slurm(draft) : read_topology(draft);
}

}  // namespace dlaunch
