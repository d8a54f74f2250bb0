// State: commit, restore, sync and recover over Rounds. dlaunch/elastic.h is the manual.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <dlaunch/elastic.h>

#include "elastic/state/copies.h"
#include "elastic/state/registry.h"
#include "elastic/state/rounds.h"
#include "elastic/state/snapshot_writer.h"
#include "elastic/state/sync.h"

namespace dlaunch {

struct StateConfig {
  int commit_every = 1;
  int shard_replicas = 1;
  bool in_place = false;
};

class State {
 public:
  State(std::unique_ptr<Rounds> rounds, const StateConfig& config)
      : rounds_(std::move(rounds)), config_(config) {
    registry_.copy_by([this](std::byte* to, const std::byte* from, std::size_t bytes) {
      return rounds_->copy(to, from, bytes);
    });
  }

  Result<void> add_replicated(std::string name, Bytes memory);
  Result<void> add_sharded(std::string name, Bytes memory, std::size_t element_bytes,
                           Reshard reshard);
  Result<void> place_shard(const std::string& name, Bytes memory);
  Result<void> snapshots(std::string folder, int every, int keep);
  void on_change(std::function<void(const dl_change&)> tell) { tells_.push_back(std::move(tell)); }
  // Registered memory that represents another object: keep() writes it before it is committed,
  // take() reads it after it has been restored.
  void stands_for(std::function<void()> keep, std::function<void()> take) {
    stand_ins_.push_back({std::move(keep), std::move(take)});
  }
  // A line that must be the same on all ranks, besides the memory.
  void add_term(const std::string& term) { terms_ += term + "\n"; }

  Result<void> sync();
  Result<void> update();
  Result<void> commit(bool spanned);
  Result<void> restore();
  Result<void> recover();
  Result<void> finish();

  bool round_over() const { return over_; }
  Version committed() const;
  int rank() const { return rounds_->rank(); }
  int size() const { return rounds_->size(); }

  // Errc::usage after the first sync.
  Result<void> may_register(const char* what) const;

 private:
  Contribution contribution();
  Result<void> ready(const char* call) const;
  bool snapshot_is_due() const;
  Result<void> settle();
  Result<void> agree_on_commit();
  bool writes() const;
  bool wrote_last() const;
  void note_saved();
  Result<void> agree_on_saved();
  Result<void> commit_now(bool spanned);
  Result<void> commit_in_place();
  Version next_version() const;
  Result<void> make_copy(Version version);
  Result<void> copy_memory();
  Result<void> save();

  struct StandIn {
    std::function<void()> keep, take;
  };

  std::unique_ptr<Rounds> rounds_;
  const StateConfig config_;
  Registry registry_;
  Copies copies_;
  std::unique_ptr<SnapshotWriter> writer_;  // after copies_: it reads them until it ends
  int snapshot_every_ = 0;                  // 0: none
  std::string folder_;

  bool registered_ = false;           // all ranks have compared their registrations
  Copy* current_ = nullptr;           // the last commit that was copied
  std::optional<Version> in_memory_;  // a later one, which exists only in the registered memory
  bool changing_ = false;             // between update() and the commit
  bool save_it_ = false;              // write the agreed commit as a snapshot
  std::vector<std::uint64_t> shard_sizes_;  // by rank
  int uncommitted_ = 0;                     // calls of commit() since the last that committed
  Version saved_;                           // the last version with a snapshot begun, in this round
  SnapshotsToKeep to_keep_;
  bool over_ = false;
  std::vector<std::function<void(const dl_change&)>> tells_;
  std::vector<StandIn> stand_ins_;
  std::string terms_;
};

// See dl_run_elastic. step: whether to go on.
Result<void> run_elastic(State& state, const std::function<Result<bool>()>& step);

}  // namespace dlaunch
