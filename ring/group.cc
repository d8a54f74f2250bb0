// Splitting a communicator into groups: the ranks tell each other their colors, and those of one
// color meet as a communicator of its own.
#include <poll.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/failpoint.h"
#include "ring/communicator.h"
#include "ring/meeting.h"

namespace dlaunch {
namespace {

constexpr int kRootCauseMs = 5;

struct Choice {
  std::int32_t color = -1;
  std::int32_t key = 0;
  std::int32_t rank = 0;  // in the communicator that is split
};

// The group of rank `own`, in its order.
std::vector<Choice> members_of(const std::vector<Choice>& choices, int own) {
  const int color = choices[static_cast<std::size_t>(own)].color;
  std::vector<Choice> members;
  std::copy_if(choices.begin(), choices.end(), std::back_inserter(members),
               [color](const Choice& choice) { return choice.color == color; });
  std::stable_sort(members.begin(), members.end(),
                   [](const Choice& a, const Choice& b) { return a.key < b.key; });
  return members;
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::split(int color, int key) {
  std::vector<Choice> choices(static_cast<std::size_t>(job_.size));
  const Choice own{.color = std::max(color, -1), .key = key, .rank = job_.rank};
  auto told = collective({.collective = Collective::all_gather,
                          .in = &own,
                          .out = choices.data(),
                          .count = sizeof own,
                          .dtype = DL_UINT8});
  if (!told) return told.error();
  ++splits_;
  failpoint("group.colors_told");
  if (color < 0) return std::unique_ptr<Communicator>();

  const auto members = members_of(choices, job_.rank);
  JobView group = job_;
  group.size = static_cast<int>(members.size());
  group.group += "/" + std::to_string(splits_) + "." + std::to_string(color);
  group.world_ranks.clear();
  for (int r = 0; r < group.size; ++r) {
    const int rank = members[static_cast<std::size_t>(r)].rank;
    if (rank == job_.rank) group.rank = r;
    group.world_ranks.push_back(job_.world_rank(rank));
  }
  // Other groups may be at work at the same time: each has its share of the cores.
  group.local_cores = std::max(1, usable_cores(job_) * group.size / job_.size);
  group.hosts_store = false;  // whoever serves it does so already
  // They are all there: it is an operation, too, and ends with the limit of one.
  if (job_.op_timeout >= Duration::zero()) {
    group.init_timeout = std::min(job_.init_timeout, job_.op_timeout);
  }
  auto joined = join(group, &abort_);
  failpoint("group.met");
  return joined ? std::move(joined) : failed_split(joined.error(), group);
}

// As after any collective, this communicator is over: some of its ranks may have a group and some
// not. Those that left the meeting did so because of a rank that was lost, and have said so.
Error Communicator::failed_split(Error error, const JobView& group) {
  if (error.code == Errc::usage || error.code == Errc::unsupported) return error;
  for (int ms = 0; ms < kRootCauseMs && !abort_.raised(); ++ms) ::poll(nullptr, 0, 1);
  const int world_rank = group.world_rank(error.rank);
  for (int r = 0; error.rank >= 0 && r < job_.size; ++r) {
    if (job_.world_rank(r) == world_rank) {
      error.rank = r;
      break;
    }
  }
  return finish(error).error();
}

}  // namespace dlaunch
