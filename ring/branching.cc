// Making a group whose ranks share memory on one host: it meets on the links of its parent
// communicator. The first member makes the group's segment and passes it to the others; each tells
// all that it has come. The bootstrap needs no store and no new connections.
#include <chrono>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "base/fnv1a.h"
#include "base/log.h"
#include "base/units.h"
#include "ring/communicator.h"
#include "ring/links/arrivals.h"
#include "ring/links/descriptor_limit.h"
#include "ring/shm/shm_memory.h"

namespace dlaunch {
namespace {

std::uint64_t channel_of(std::string_view group) {
  Fnv1a hash;
  hash.add(group);
  return hash.value() == kFirstChannel ? 1 : hash.value();
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::branch(const JobView& job, Communicator& parent,
                                                           const std::vector<int>& ranks) {
  if (job.explains) set_log_level(LogLevel::info);
  std::unique_ptr<Communicator> comm(new Communicator(job));
  if (auto ok = comm->bootstrap_on_links(parent, ranks); !ok) return ok.error();
  add_process_events(*comm);
  failpoint("communicator.joined");
  return comm;
}

Result<void> Communicator::bootstrap_on_links(Communicator& parent, const std::vector<int>& ranks) {
  const TimePoint began = steady_now();
  const TimePoint deadline = deadline_after(began, job_.init_timeout);
  group_hash_ = hash_of_group(job_.group);
  flight_ = parent.flight_;
  locals_.resize(ranks.size());
  std::iota(locals_.begin(), locals_.end(), 0);
  std::vector<int> members;
  for (const int rank : ranks) {
    members.push_back(parent.links_->member(rank));
    who_.push_back(parent.links_->who(rank));
    host_ranks_.push_back(parent.host_ranks_[static_cast<std::size_t>(rank)]);
  }
  host_memory_ = parent.host_memory_;
  links_ =
      Links::open(parent.links_->trunk(), channel_of(job_.group), job_.rank, std::move(members),
                  abort_, [this](Error error) { return named_in_job(std::move(error)); });
  failpoint("branching.opened");
  if (abort_.raised()) return abort_.error();  // an earlier rank has given up

  const ShmShape shape = shape_for_group(job_.size, host_memory_->staging().bytes());
  RankSet missing;
  const ParentEnd end(parent.abort_, ranks);
  auto memory = share_segment(shape, deadline, end);
  auto met = memory ? Result<void>() : Result<void>(memory.error());
  if (met || met.error().code == Errc::timeout) {
    auto all = links_->await_all(deadline, &end, missing);
    if (met) met = std::move(all);
  }
  if (!met) {
    if (met.error().code == Errc::unsupported && !abort_.raised()) return met;
    const Error error = bootstrap_failed(met.error(), missing, began);
    links_->abort(error);
    return error;
  }
  failpoint("branching.met");
  regions_ = std::make_shared<ShmRegions>(job_.rank);
  plane_ = make_shm_plane(job_.rank, std::move(*memory), abort_,
                          {.usable_cores = job_.local_cores,
                           .regions = regions_,
                           .plan_rules = job_.plan_rules,
                           .host_memory = host_memory_,
                           .host_ranks = host_ranks_});
  open_verifier();
  return {};
}

// The first rank makes the segment. Each rank reports that it has come, once nothing on its side
// prevents the group.
Result<ShmMemory> Communicator::share_segment(const ShmShape& shape, TimePoint deadline,
                                              const ParentEnd& parent) {
  Result<UniqueFd> segment = UniqueFd();
  if (job_.rank == 0) {
    segment = make_group_control(shape);
    if (!segment) {
      const Error lacking{.code = Errc::unsupported,
                          .what = "a group's ranks meet over sockets: " + segment.error().what};
      links_->decline(lacking.what);
      return lacking;
    }
    for (int r = 1; r < job_.size; ++r) links_->pass(r, Passed::segment, segment->get());
    links_->join();
  } else {
    links_->join();
    segment = links_->take(0, Passed::segment, deadline, &parent);
    if (!segment) return segment.error();
    if (!*segment) {
      return Error{.code = Errc::io,
                   .what = "no room for more descriptors: is 'ulimit -n' too low?"};
    }
  }
  return map_group(job_.rank, shape, *segment);
}

Error Communicator::bootstrap_failed(Error error, const RankSet& missing, TimePoint began) const {
  if (abort_.raised()) return abort_.error();
  if (error.code != Errc::timeout || missing.empty()) {
    error.what = "init: " + error.what;
    return error;
  }
  Arrivals arrivals{.ranks = job_.size, .in_group = true};
  for (const int r : missing) arrivals.missing.insert(job_.world_rank(r));
  const auto waited = std::chrono::round<std::chrono::milliseconds>(steady_now() - began);
  return {.code = Errc::timeout,
          .what = fmt::format("init: after {}: {}", format_duration(waited), describe(arrivals))};
}

// Runs at this rank's first message. Its sockets come over the links.
Result<void> Communicator::open_messenger() {
  if (messenger_) return {};
  allow_descriptors(2);  // the event by which it sleeps, and a first socket
  const StreamOptions options{.local_ranks = job_.size,
                              .usable_cores = job_.local_cores,
                              .agreed_cores = job_.local_cores,
                              .has_left = [this](int peer) { return links_->has_left(peer); },
                              .source = links_.get()};
  std::vector<UniqueFd> none(static_cast<std::size_t>(job_.size));
  auto group =
      SocketGroup::open(job_.rank, job_.size, job_.round, std::move(none), abort_, options);
  if (!group) return group.error();
  messenger_ = std::make_unique<Messenger>(std::move(*group));
  return {};
}

}  // namespace dlaunch
