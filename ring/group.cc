// Groups: some ranks of a communicator meet as a communicator of their own. For a split the ranks
// first exchange their colors; otherwise each member knows the others.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "base/fnv1a.h"
#include "base/log.h"
#include "ring/bootstrap.h"
#include "ring/communicator.h"
#include "ring/plan/rank_groups.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMostBranched = 256;

struct Choice {
  std::int32_t color = -1;
  std::int32_t key = 0;
  std::int32_t rank = 0;  // in the communicator that is split
};

// The members of rank `own`'s group, in its order.
std::vector<Choice> members_of(const std::vector<Choice>& choices, int own) {
  const int color = choices[static_cast<std::size_t>(own)].color;
  std::vector<Choice> members;
  std::copy_if(choices.begin(), choices.end(), std::back_inserter(members),
               [color](const Choice& choice) { return choice.color == color; });
  std::stable_sort(members.begin(), members.end(),
                   [](const Choice& a, const Choice& b) { return a.key < b.key; });
  return members;
}

// Members whose lists differ do not meet.
std::uint64_t fingerprint(const std::vector<int>& ranks) {
  Fnv1a hash;
  for (const int rank : ranks) {
    for (int bits = 0; bits < 32; bits += 8) hash.add(static_cast<unsigned>(rank) >> bits & 255u);
  }
  return hash.value();
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::split(int color, int key) {
  std::vector<Choice> choices(static_cast<std::size_t>(job_.size));
  const Choice own{.color = std::max(color, -1), .key = key, .rank = job_.rank};
  auto told = collective({.collective = Collective::all_gather,
                          .in = &own,
                          .out = choices.data(),
                          .count = sizeof own,
                          .dtype = DL_UINT8,
                          .within = Within::split});
  if (!told) return told.error();
  ++splits_;
  failpoint("group.colors_told");
  if (color < 0) return std::unique_ptr<Communicator>();

  const auto members = members_of(choices, job_.rank);
  std::vector<int> ranks;
  ranks.reserve(members.size());
  for (const auto& member : members) ranks.push_back(member.rank);
  const JobView group = group_view(ranks, fmt::format("{}.{}", splits_, color));
  auto joined = make_group(group, ranks);
  failpoint("group.met");
  return joined ? std::move(joined) : failed_split(joined.error(), group);
}

// Whether they all share memory on one host; all members get the same answer. Each pair of a group
// that meets on the links of its parent has a link; a large group has few, so it meets by itself.
bool Communicator::can_branch(const std::vector<int>& ranks) const {
  if (ranks.size() < 2 || !host_memory_) return false;
  if (ranks.size() > kMostBranched && links_->trunk()->connects_later()) return false;
  return std::all_of(ranks.begin(), ranks.end(),
                     [this](int rank) { return host_ranks_[static_cast<std::size_t>(rank)] >= 0; });
}

Result<std::unique_ptr<Communicator>> Communicator::make_group(const JobView& view,
                                                               const std::vector<int>& ranks) {
  auto group = meet_group(view, ranks);
  if (group) (*group)->corrupt_ = corrupt_;
  return group;
}

Result<std::unique_ptr<Communicator>> Communicator::meet_group(const JobView& group,
                                                               const std::vector<int>& ranks) {
  const ParentEnd end(abort_, ranks);
  if (!can_branch(ranks)) return make(group, &end);
  auto branched = branch(group, *this, ranks);
  if (branched || branched.error().code != Errc::unsupported) return branched;
  if (group.rank == 0) log_warn("{}", branched.error().what);
  return make(group, &end);
}

// `ranks` of this communicator, in the group's order.
JobView Communicator::group_view(const std::vector<int>& ranks, const std::string& name) const {
  JobView group = job_;
  group.size = static_cast<int>(ranks.size());
  group.group += "/" + name;
  group.world_ranks.clear();
  for (int r = 0; r < group.size; ++r) {
    const int rank = ranks[static_cast<std::size_t>(r)];
    if (rank == job_.rank) group.rank = r;
    group.world_ranks.push_back(job_.world_rank(rank));
  }
  group.local_cores = cores_of_group(job_.local_cores, locals_, ranks);
  if (job_.size > 1) group.hosts_store = false;  // the store's server already exists
  // They all exist: the bootstrap is an operation, too, and has the limit of one.
  group.op_timeout = op_timeout();
  if (group.op_timeout >= Duration::zero()) {
    group.init_timeout = std::min(job_.init_timeout, group.op_timeout);
  }
  return group;
}

Error Communicator::has_left_job(int rank) const {
  return {
      .code = Errc::peer_lost,
      .what = fmt::format("dl_group: {} has left the job", who_[static_cast<std::size_t>(rank)]),
      .rank = rank};
}

Result<std::unique_ptr<Communicator>> Communicator::group(const std::vector<int>& ranks, int tag,
                                                          double op_timeout_s) {
  if (abort_.raised()) return finish(abort_.error()).error();
  const auto wrong = [](std::string_view what) {
    return Error{.code = Errc::usage, .what = fmt::format("dl_group: {}", what)};
  };
  if (forked_) return wrong("this process was forked from the one that joined");
  if (tag < 0) return wrong("the tag is negative");
  const std::set<int> members(ranks.begin(), ranks.end());
  if (members.size() != ranks.size()) return wrong("a rank is listed twice");
  if (!members.contains(job_.rank)) {
    return wrong(fmt::format("rank {}, which calls it, is not a member", job_.rank));
  }
  if (*members.begin() < 0 || *members.rbegin() >= job_.size) {
    return wrong(fmt::format("there are ranks 0 to {}", job_.size - 1));
  }
  const auto limit = operation_limit(op_timeout_s, op_timeout());
  if (!limit) return limit.error();
  for (const int rank : ranks) {
    if (links_ && links_->has_left(rank)) return has_left_job(rank);
  }
  // An earlier group of the same ranks may have left keys in the store: use others.
  const std::string name = fmt::format("g{}.{:x}", tag, fingerprint(ranks));
  JobView view = group_view(ranks, fmt::format("{}.{}", name, ++groups_[name]));
  view.op_timeout = *limit;
  auto joined = make_group(view, ranks);
  if (joined) return joined;
  Error error = joined.error();
  const bool member = error.rank >= 0 && error.rank < static_cast<int>(ranks.size());
  if (member) error.rank = ranks[static_cast<std::size_t>(error.rank)];
  return named_in_job(blame_silent(std::move(error)));
}

// As after any failed collective, this communicator is over: some of its ranks may have a group and
// some not. Ranks that left the bootstrap did so because of a lost rank, and have reported it.
Error Communicator::failed_split(Error error, const JobView& group) {
  if (error.code == Errc::usage || error.code == Errc::unsupported) return error;
  const bool lost = error.code == Errc::peer_lost;
  (void)abort_.told(lost ? AbortFlag::kCauseOfLoss : AbortFlag::kBetterReason);
  const int world_rank = group.world_rank(error.rank);
  for (int r = 0; error.rank >= 0 && r < job_.size; ++r) {
    if (job_.world_rank(r) == world_rank) {
      error.rank = r;
      break;
    }
  }
  return finish(blame_silent(std::move(error))).error();
}

}  // namespace dlaunch
