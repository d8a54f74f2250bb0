// --include and --exclude: selects the hosts and GPUs of a job.
#include <string>

#include "base/text.h"
#include "cli/host_filter.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

// The selecting option, if there is one.
Result<const Text*> picking(const Options& options) {
  if (options.include && options.exclude) {
    return refuse("give {} or {}, not both", options.include.source, options.exclude.source);
  }
  const Text& one = options.include ? options.include : options.exclude;
  return one ? &one : nullptr;
}

// The numbers index the user's own CUDA_VISIBLE_DEVICES.
Result<std::string> through_visible(const std::string& gpus, const std::string& visible,
                                    const std::string& option) {
  if (visible.empty() || gpus.empty()) return gpus;
  const auto names = split_words(visible, ',');
  std::string text;
  for (const auto number : split_words(gpus, ',')) {
    const auto at = static_cast<std::size_t>(std::stoi(std::string(number)));
    if (at >= names.size()) {
      return refuse("{}: GPU {} is not among those of CUDA_VISIBLE_DEVICES={}, which are 0 to {}",
                    option, at, visible, names.size() - 1);
    }
    text += (text.empty() ? "" : ",") + std::string(names[at]);
  }
  return text;
}

}  // namespace

Result<void> filter_hosts(PlanDraft& draft, std::vector<HostEntry>& hosts) {
  auto option = picking(draft.options);
  if (!option) return option.error();
  if (*option == nullptr) return {};
  auto picks = parse_host_picks(***option);
  if (!picks) return refuse("{}: {}", (*option)->source, picks.error().what);
  auto picked = pick_hosts(hosts, *picks, *option == &draft.options.include);
  if (!picked) return refuse("{}: {}", (*option)->source, picked.error().what);
  hosts = std::move(picked->hosts);
  draft.gpu_list = picked->gpus;
  return {};
}

// Without a list of hosts this machine is the list, and its GPUs are its slots.
Result<void> filter_here(PlanDraft& draft) {
  auto option = picking(draft.options);
  if (!option) return option.error();
  if (*option == nullptr) return {};
  const Text& text = **option;
  auto picks = parse_host_picks(*text);
  if (!picks) return refuse("{}: {}", text.source, picks.error().what);
  const HostPick& pick = picks->front();
  if (picks->size() > 1 || !draft.is_own(pick.host)) {
    return refuse("{}: without --hosts or --hostfile there is this machine only: localhost:0,1",
                  text.source);
  }
  const bool keep = &text == &draft.options.include;
  HostEntry here{.host = pick.host};
  if (keep && !pick.gpus.empty()) {
    here.slots = pick.gpus.back() + 1;
  } else {
    if (auto done = draft.need_gpus(text.source); !done) return done;
    here.slots = static_cast<int>(draft.gpus.size());
  }
  auto picked = pick_hosts({here}, *picks, keep);
  if (!picked) return refuse("{}: {}", text.source, picked.error().what);
  draft.slots = picked->hosts.front().slots;
  auto gpus = through_visible(
      picked->gpus, draft.machine.environment("CUDA_VISIBLE_DEVICES").value_or(""), text.source);
  if (!gpus) return gpus.error();
  draft.gpu_list = std::move(*gpus);
  return {};
}

}  // namespace dlaunch
