// State: commit, restore, sync and recover over Rounds. dlaunch/elastic.h is the manual.
#pragma once

#include <functional>
#include <memory>
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
};

class State {
 public:
  State(std::unique_ptr<Rounds> rounds, const StateConfig& config)
      : rounds_(std::move(rounds)), config_(config) {}

  Result<void> add_replicated(std::string name, Bytes memory);
  Result<void> add_sharded(std::string name, Bytes memory, std::size_t element_bytes,
                           Reshard reshard);
  Result<void> snapshots(std::string folder, int every, int keep);
  void on_change(std::function<void(const dl_change&)> tell) { tells_.push_back(std::move(tell)); }

  Result<void> sync();
  Result<void> commit(bool spanned);
  Result<void> restore();
  Result<void> recover();
  Result<void> finish();

  bool round_over() const { return over_; }
  Version committed() const { return current_ != nullptr ? current_->id.version : Version(); }
  int rank() const { return rounds_->rank(); }
  int size() const { return rounds_->size(); }

 private:
  Store store();
  Result<void> may_register(const char* what) const;
  Result<void> ready(const char* call) const;
  Result<void> commit_now(bool spanned);
  Result<Copy*> make_copy();
  Result<void> save(Copy& copy);

  std::unique_ptr<Rounds> rounds_;
  const StateConfig config_;
  Registry registry_;
  Copies copies_;
  std::unique_ptr<SnapshotWriter> writer_;  // after copies_: it reads them to the end
  int snapshot_every_ = 0;                  // 0: none
  int snapshot_keep_ = 0;
  std::string folder_;

  bool registered_ = false;                 // all ranks have checked it
  Copy* current_ = nullptr;                 // the last commit
  std::vector<std::uint64_t> shard_sizes_;  // by rank
  int uncommitted_ = 0;                     // calls of commit() since the last that made one
  Version saved_;                           // the last that a snapshot was begun of
  bool over_ = false;
  std::vector<std::function<void(const dl_change&)>> tells_;
};

// See dl_run_elastic. step: whether to go on.
Result<void> run_elastic(State& state, const std::function<Result<bool>()>& step);

}  // namespace dlaunch
