#include "launcher/node/mpi/pmix_fences.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/quiet_thread.h"

namespace dlaunch {
namespace {

// Empty: all ranks.
std::vector<int> ranks_among(const pmix::Proc procs[], std::size_t count) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < count; ++i) {
    if (procs[i].rank == pmix::kAllRanks) return {};
    ranks.push_back(static_cast<int>(procs[i].rank));
  }
  std::ranges::sort(ranks);
  return ranks;
}

}  // namespace

PmixFences::PmixFences(const PmixOrder& order, std::vector<PmixNode> nodes, StoreOptions options,
                       std::function<bool()> over)
    : order_(order),
      nodes_(std::move(nodes)),
      options_(std::move(options)),
      over_(std::move(over)) {}

// Runs in the library's thread, which must not wait. Barriers of the same ranks come in the same
// order on all nodes, but their threads may run in any order.
pmix::Status PmixFences::come(const pmix::Proc procs[], std::size_t count, char* data,
                              std::size_t size, pmix::Exchanged done, void* caller) {
  const std::unique_ptr<char, decltype(&std::free)> ours(data, &std::free);
  Fence fence{.ranks = ranks_among(procs, count),
              .turn = 0,
              .text = size > 0 ? std::string(data, size) : std::string(),
              .done = done,
              .caller = caller};
  {
    const std::lock_guard lock(mutex_);
    fence.turn = ++turns_[fence.ranks];
  }
  auto thread = start_quiet_thread([this, fence = std::move(fence)] { meet(fence); });
  if (!thread) return pmix::kError;
  thread->detach();
  return pmix::kSuccess;
}

void PmixFences::meet(const Fence& fence) {
  auto all = exchange(fence);
  if (!all && over_()) return;  // the ranks have ended, too
  if (!all) {
    log_warn("the ranks of an MPI program cannot find each other: {}", all.error().what);
    return fence.done(pmix::kError, nullptr, 0, fence.caller, nullptr, nullptr);
  }
  auto* const kept = new std::string(std::move(*all));
  const auto release = [](void* text) { delete static_cast<std::string*>(text); };
  fence.done(pmix::kSuccess, kept->data(), kept->size(), fence.caller, release, kept);
}

// The data of all nodes, one after the other.
Result<std::string> PmixFences::exchange(const Fence& fence) {
  NodeExchange::Request request{.store_url = order_.store_url,
                                .key = {},
                                .node = order_.node_rank,
                                .others = nodes_with(nodes_, fence.ranks),
                                .text = fence.text};
  std::erase(request.others, order_.node_rank);
  if (request.others.empty()) return fence.text;
  request.key = key_of(fence.ranks, fence.turn);
  NodeExchange nodes(options_);
  auto others = nodes.run(request, [this](int) { return over_(); });
  if (!others) return others.error();
  // All are here, so the data of two turns ago is no longer read; the last turn may be under way.
  if (fence.turn > 2) nodes.forget(key_of(fence.ranks, fence.turn - 2), order_.node_rank);
  std::string all = fence.text;
  for (const auto& text : *others) all += text;
  return all;
}

std::string PmixFences::key_of(const std::vector<int>& ranks, int turn) const {
  const std::string who = ranks.empty() ? "all" : sha256_hex(joined(ranks)).substr(0, 16);
  return fmt::format("{}{}/{}/", pmix_keys(order_.round), who, turn);
}

}  // namespace dlaunch
