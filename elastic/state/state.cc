#include "elastic/state/state.h"

#include <utility>

#include <fmt/format.h>

namespace dlaunch {
namespace {

// A round ends with corrupt data as with a lost rank: its members go on from the newest commit.
bool lost(const Result<void>& result) {
  if (result) return false;
  return result.error().code == Errc::peer_lost || result.error().code == Errc::corrupt;
}

}  // namespace

Contribution State::contribution() {
  return {.rounds = *rounds_,
          .registry = registry_,
          .copies = copies_,
          .replicas = config_.shard_replicas,
          .folder = folder_};
}

Result<void> State::may_register(const char* what) const {
  if (!registered_) return {};
  return usage_error(fmt::format("{} must come before the first sync", what));
}

Result<void> State::ready(const char* call) const {
  if (current_ != nullptr) return {};
  return usage_error(fmt::format("{} needs a sync before it", call));
}

Result<void> State::add_replicated(std::string name, Bytes memory) {
  if (auto r = may_register("registering memory"); !r) return r;
  return registry_.add_replicated(std::move(name), memory);
}

Result<void> State::add_sharded(std::string name, Bytes memory, std::size_t element_bytes,
                                Reshard reshard) {
  if (auto r = may_register("registering memory"); !r) return r;
  if (config_.in_place) return usage_error("sharded memory cannot be committed in place");
  return registry_.add_sharded(std::move(name), memory, element_bytes, std::move(reshard));
}

Result<void> State::place_shard(const std::string& name, Bytes memory) {
  if (auto r = ready("placing a shard"); !r) return r;
  return registry_.place_shard(name, memory);
}

Result<void> State::snapshots(std::string folder, int every, int keep) {
  if (auto r = may_register("asking for snapshots"); !r) return r;
  if (folder.empty()) return usage_error("snapshots need a folder");
  if (every < 1 || keep < 1) return usage_error("snapshots: every and keep must be at least 1");
  folder_ = std::move(folder);
  snapshot_every_ = every;
  to_keep_.number = static_cast<std::size_t>(keep);
  return {};
}

Result<void> State::sync() {
  // All ranks must share these terms, or they would wait for each other.
  const auto terms =
      fmt::format("commits every {} steps\nsnapshots every {} commits\n{} replicas\n",
                  config_.commit_every, snapshot_every_, config_.shard_replicas);
  if (auto r = check_registered(contribution(), terms + terms_); !r) return r;
  registered_ = true;
  if (snapshot_every_ > 0 && !writer_) {
    copies_.make_place_for_snapshots();
    writer_ = std::make_unique<SnapshotWriter>(folder_, registry_.describe());
  }
  if (writer_) writer_->wait_idle();
  if (auto r = copy_memory(); !r) return r;
  current_ = nullptr;
  auto synced = sync_state(contribution());
  if (!synced) return synced.error();
  if (registry_.sharded()) {
    auto sizes = gather_shard_sizes(contribution());
    if (!sizes) return sizes.error();
    shard_sizes_ = std::move(*sizes);
  }
  current_ = synced->copy;
  for (const auto& it : stand_ins_) it.take();
  if (!synced->saved.empty()) to_keep_.take(std::move(synced->saved));
  saved_ = to_keep_.judged_from = {};  // as on new ranks
  uncommitted_ = 0;
  over_ = false;
  return {};
}

Version State::committed() const {
  if (in_memory_) return *in_memory_;
  return current_ != nullptr ? current_->id.version : Version();
}

Version State::next_version() const {
  return {current_->base + rounds_->round(), committed().number + 1};
}

// Collective: all agree on the next commit, on whether it becomes a snapshot, on whether the last
// snapshot is complete, and on whether the round is over; if a shard has a new size since the last
// commit, also on the sizes of all.
Result<void> State::agree_on_commit() {
  const auto number = next_version().number;
  const std::uint64_t busy = save_it_ && !writer_->idle();
  const auto me = static_cast<std::size_t>(rank());
  const std::uint64_t resized = registry_.sharded() && shard_sizes_[me] != registry_.shard_bytes();
  const std::uint64_t lacks = writer_ && !wrote_last();
  std::uint64_t words[] = {over_, busy, number, ~number, resized, lacks};
  if (auto r = rounds_->maximum(words); !r) return r;
  over_ = words[0] != 0;
  save_it_ = save_it_ && words[1] == 0;
  if (words[2] != ~words[3]) {
    return Error{.code = Errc::mismatch,
                 .what = fmt::format("rank {} makes commit {}, but another rank commit {}", rank(),
                                     number, words[2] != number ? words[2] : ~words[3])};
  }
  if (writer_ && words[5] == 0) note_saved();
  if (words[4] == 0) return {};
  auto sizes = gather_shard_sizes(contribution());
  if (!sizes) return sizes.error();
  shard_sizes_ = std::move(*sizes);
  return {};
}

// Without shards rank 0 writes all of a snapshot.
bool State::writes() const { return rank() == 0 || registry_.sharded(); }

bool State::wrote_last() const { return !writes() || writer_->written() == saved_; }

// All ranks that write have written the last snapshot.
void State::note_saved() {
  if (writes() && saved_ != Version()) to_keep_.add(saved_);
}

// Collective, once this rank has ended its last snapshot.
Result<void> State::agree_on_saved() {
  std::uint64_t lacks = !wrote_last();
  if (auto r = rounds_->maximum({&lacks, 1}); !r) return r;
  if (lacks == 0) note_saved();
  return {};
}

// Before a commit: what it will contain comes from calls that have succeeded, and that are verified
// if the job verifies its calls.
Result<void> State::settle() {
  if (auto r = rounds_->settle(); !r) return r;
  return rounds_->verify();
}

Result<void> State::update() {
  if (auto r = ready("an update"); !r) return r;
  if (!config_.in_place || changing_) return {};
  if (auto r = rounds_->settle(); !r) return r;
  save_it_ = snapshot_is_due();
  over_ = rounds_->over();
  if (auto r = agree_on_commit(); !r) return r;
  // The last call: so the commit waits for no rank that dies meanwhile.
  if (auto r = rounds_->verify(); !r) return r;
  changing_ = true;
  for (const auto& it : stand_ins_) it.keep();
  return {};
}

Result<void> State::commit(bool spanned) {
  if (auto r = ready("a commit"); !r) return r;
  if (!config_.in_place && ++uncommitted_ < config_.commit_every) return rounds_->settle();
  if (auto r = settle(); !r) return r;
  return config_.in_place ? commit_in_place() : commit_now(spanned);
}

// update() has asked all ranks, before any change.
Result<void> State::commit_in_place() {
  if (!changing_) return usage_error("a commit in place needs an update before it");
  in_memory_ = next_version();
  changing_ = false;
  rounds_->progress(in_memory_->number);
  if (!save_it_) return {};
  if (auto r = copy_memory(); !r) return r;
  return save();
}

bool State::snapshot_is_due() const {
  return writer_ && next_version().number % static_cast<std::uint64_t>(snapshot_every_) == 0;
}

Result<void> State::commit_now(bool spanned) {
  save_it_ = snapshot_is_due();
  over_ = rounds_->over();
  // Ranks with shards hand them over when they leave a round, so they have to leave it together.
  if (!spanned || registry_.sharded()) {
    if (auto r = agree_on_commit(); !r) return r;
  } else {
    save_it_ = save_it_ && writer_->idle();
    if (writer_ && wrote_last()) note_saved();
  }
  if (auto r = make_copy(next_version()); !r) return r;
  uncommitted_ = 0;
  rounds_->progress(committed().number);
  if (over_ && registry_.sharded()) {
    if (auto r = hand_over(contribution(), *current_); !r) return r;
  }
  return save_it_ ? save() : Result<void>();
}

// Makes the registered memory the copy after the current one. A failure leaves the current one as
// it is.
Result<void> State::make_copy(Version version) {
  Copy& copy = copies_.take_other_than(current_);
  copy.base = current_->base;
  copy.world = size();
  copy.id = {.version = version, .layout = current_->id.layout};
  if (!config_.in_place) {
    for (const auto& it : stand_ins_) it.keep();
  }
  const Contribution here = contribution();
  if (auto r = capture(here, copy); !r) return r;
  if (auto r = share_shards(here, copy, shard_sizes_); !r) return r;
  copy.committed = true;
  current_ = &copy;
  return {};
}

// Makes a commit in place a copy, which can be given to others and lasts. Memory that is being
// changed is not a commit; then the last copy remains.
Result<void> State::copy_memory() {
  const auto version = std::exchange(in_memory_, std::nullopt);
  if (std::exchange(changing_, false) || !version) return {};
  return make_copy(*version);
}

Result<void> State::save() {
  saved_ = current_->id.version;
  if (to_keep_.judged_from == Version()) to_keep_.judged_from = saved_;
  std::vector<ObjectId> objects;
  if (rank() == 0) objects.push_back(kReplicated);
  if (registry_.sharded()) objects.push_back(shard_of(rank()));
  return writer_->write(*current_, std::move(objects), to_keep_);
}

Result<void> State::restore() {
  if (auto r = ready("a restore"); !r) return r;
  uncommitted_ = 0;
  if (changing_)
    return usage_error("memory that an update in place is changing cannot be restored");
  if (!in_memory_) {
    if (auto r = dlaunch::restore(contribution(), *current_); !r) return r;
  }
  for (const auto& it : stand_ins_) it.take();
  return {};
}

Result<void> State::recover() {
  dl_change change{};
  change.old_rank = rank();
  change.old_size = size();
  if (auto r = copy_memory(); !r) return r;
  for (;;) {
    if (auto r = rounds_->rejoin(copies_.newest().number); !r) return r;
    auto synced = sync();
    if (lost(synced)) continue;
    if (!synced) return synced;
    break;
  }
  change.round = rounds_->round();
  change.rank = rank();
  change.size = size();
  for (const auto& tell : tells_) tell(change);
  return {};
}

Result<void> State::finish() {
  if (auto r = ready("the end"); !r) return r;
  if (auto r = settle(); !r) return r;
  if (changing_ || uncommitted_ > 0) {
    if (auto r = config_.in_place ? commit_in_place() : commit_now(false); !r) return r;
  }
  if (writer_) {
    writer_->wait_idle();
    // All ranks must have ended their snapshots before the next one begins.
    if (auto r = agree_on_saved(); !r) return r;
    // A commit that came from the folder is still there, cut for the ranks of the job that made it.
    // Files of the same commit in another cut would mix with those.
    const bool is_there = committed().round < current_->base;
    if (saved_ != committed() && !is_there) {
      if (auto r = copy_memory(); !r) return r;
      if (auto r = save(); !r) return r;
    }
    writer_->wait_idle();
  }
  return rounds_->barrier();
}

namespace {

// Runs until the last step (true) or until the round is over.
Result<bool> run_round(State& state, const std::function<Result<bool>()>& step) {
  for (;;) {
    const auto more = step();
    if (!more) return more.error();
    if (!*more) {
      if (auto r = state.finish(); !r) return r.error();
      return true;
    }
    if (auto r = state.commit(false); !r) return r.error();
    if (state.round_over()) return false;
  }
}

}  // namespace

Result<void> run_elastic(State& state, const std::function<Result<bool>()>& step) {
  Result<void> result = state.sync();
  for (;;) {
    if (!result && !lost(result)) return result;
    if (!result || state.round_over()) result = state.recover();
    if (!result) return result;
    const auto done = run_round(state, step);
    if (done && *done) return {};
    result = done ? Result<void>() : Result<void>(done.error());
  }
}

}  // namespace dlaunch
