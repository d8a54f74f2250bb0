#include <limits>
#include <new>

#include <dlaunch/elastic.h>
#include <fmt/format.h>

#include "base/text.h"
#include "elastic/state/handle.h"
#include "elastic/state/result_code.h"
#include "elastic/state/ring_rounds.h"

using namespace dlaunch;

namespace {

dl_result keep(dl_state* state, const Result<void>& result) {
  if (result) return DL_OK;
  state->error = result.error().what;
  return result_code(result.error().code);
}

// For calls without a state to keep it in.
thread_local const char* t_error = "";

dl_result refused(const char* why) {
  t_error = why;
  return DL_ERR_INVALID;
}
dl_result no_state() { return refused("the state is null"); }

// body() returns a Result<void>; it is not called if the state is null. Only out-of-memory
// exceptions are ours; a callback's exceptions pass.
template <class Body>
dl_result guarded(dl_state* state, Body body) {
  if (state == nullptr) return no_state();
  try {
    return keep(state, body());
  } catch (const std::bad_alloc&) {
    state->error = "out of memory";  // short enough to need no memory
    return DL_ERR_IO;
  }
}

dl_result invalid(dl_state* state, const char* what) {
  return guarded(state, [&]() -> Result<void> { return Error{.code = Errc::usage, .what = what}; });
}

Error of_callback(const char* which, dl_result code) {
  return {.code = error_code(code),
          .what = std::string(which) + " returned " + dl_result_name(code)};
}

const char* or_empty(const char* name) { return name != nullptr ? name : ""; }

Bytes bytes_at(void* at, std::size_t bytes) { return {static_cast<std::byte*>(at), bytes}; }

Reshard reshard_of(dl_reshard reshard, void* user) {
  if (reshard == nullptr) return {};
  return [=](const OldShards& old, int rank, int size) -> Result<Bytes> {
    std::vector<const void*> at;
    std::vector<std::size_t> sizes;
    for (const ConstBytes shard : old) {
      at.push_back(shard.data());
      sizes.push_back(shard.size());
    }
    const dl_shards shards{static_cast<int>(old.size()), at.data(), sizes.data()};
    void* memory = nullptr;
    std::size_t bytes = 0;
    const dl_result code = reshard(user, &shards, rank, size, &memory, &bytes);
    if (code != DL_OK) return of_callback("the reshard function", code);
    if (memory == nullptr && bytes > 0) {
      return Error{.code = Errc::usage, .what = "the reshard function gave no memory"};
    }
    return bytes_at(memory, bytes);
  };
}

}  // namespace

void dl_state_options_init(dl_state_options* options) {
  if (options == nullptr) return;
  *options = {
      .struct_size = sizeof *options, .commit_every = 1, .shard_replicas = 1, .in_place = 0};
}

dl_result dl_state_new(dl_comm* comm, const dl_state_options* options, dl_state** state) {
  if (state == nullptr) return no_state();
  *state = nullptr;
  if (comm == nullptr) return refused("the communicator is null");
  dl_state_options all;
  dl_state_options_init(&all);
  if (options != nullptr) {
    if (options->struct_size != sizeof all) {
      return refused("dl_state_options was not set up by dl_state_options_init()");
    }
    all = *options;
  }
  if (all.commit_every < 1) return refused("commit_every is less than 1");
  if (all.shard_replicas < 0) return refused("shard_replicas is negative");
  if (all.in_place != 0 && all.commit_every != 1) {
    return refused("commit_every and in_place cannot be combined");
  }
  try {
    *state = new dl_state(std::make_unique<RingRounds>(comm), {.commit_every = all.commit_every,
                                                               .shard_replicas = all.shard_replicas,
                                                               .in_place = all.in_place != 0});
  } catch (const std::bad_alloc&) {
    t_error = "out of memory";
    return DL_ERR_IO;
  }
  return DL_OK;
}

void dl_state_free(dl_state* state) {
  // In a forked child the state is the parent's, whose snapshot writer does not run here.
  if (state != nullptr && state->process == ::getpid()) delete state;
}

dl_result dl_state_replicated(dl_state* state, const char* name, void* at, size_t bytes) {
  return guarded(state,
                 [&] { return state->core.add_replicated(or_empty(name), bytes_at(at, bytes)); });
}

dl_result dl_state_sharded(dl_state* state, const char* name, void* at, size_t bytes,
                           size_t element_bytes, dl_reshard reshard, void* user) {
  return guarded(state, [&] {
    return state->core.add_sharded(or_empty(name), bytes_at(at, bytes), element_bytes,
                                   reshard_of(reshard, user));
  });
}

dl_result dl_state_place_shard(dl_state* state, const char* name, void* at, size_t bytes) {
  return guarded(state,
                 [&] { return state->core.place_shard(or_empty(name), bytes_at(at, bytes)); });
}

dl_result dl_state_snapshots(dl_state* state, const char* folder, int every, int keep_older) {
  return guarded(state, [&] { return state->core.snapshots(or_empty(folder), every, keep_older); });
}

dl_result dl_state_on_change(dl_state* state, dl_on_change on_change, void* user) {
  if (on_change == nullptr) return invalid(state, "on_change is null");
  return guarded(state, [&]() -> Result<void> {
    state->core.on_change([=](const dl_change& change) { on_change(user, &change); });
    return {};
  });
}

dl_result dl_state_sync(dl_state* state) {
  return guarded(state, [&] { return state->core.sync(); });
}

dl_result dl_state_update(dl_state* state) {
  return guarded(state, [&] { return state->core.update(); });
}

dl_result dl_state_commit(dl_state* state, int flags) {
  if ((flags & ~DL_STATE_SPANNED) != 0) return invalid(state, "a commit has no such flag");
  return guarded(state, [&] { return state->core.commit((flags & DL_STATE_SPANNED) != 0); });
}

dl_result dl_state_restore(dl_state* state) {
  return guarded(state, [&] { return state->core.restore(); });
}

dl_result dl_state_recover(dl_state* state) {
  return guarded(state, [&] { return state->core.recover(); });
}

dl_result dl_state_finish(dl_state* state) {
  return guarded(state, [&] { return state->core.finish(); });
}

int dl_state_round_over(const dl_state* state) {
  return state != nullptr && state->core.round_over();
}

dl_state_version dl_state_committed(const dl_state* state) {
  if (state == nullptr) return {0, 0};
  const Version version = state->core.committed();
  return {version.round, version.number};
}

const char* dl_state_last_error(const dl_state* state) {
  return state == nullptr ? t_error : state->error.c_str();
}

dl_result dl_run_elastic(dl_state* state, dl_step step, void* user) {
  if (step == nullptr) return invalid(state, "step is null");
  return guarded(state, [&] {
    return run_elastic(state->core, [=]() -> Result<bool> {
      int more = 1;
      const dl_result code = step(user, &more);
      if (code != DL_OK) return of_callback("the step", code);
      return more != 0;
    });
  });
}

dl_result dl_sampler_new(dl_state* state, const char* name, uint64_t samples, uint64_t batch,
                         uint64_t seed, dl_sampler** sampler) {
  if (state == nullptr) return no_state();
  if (sampler == nullptr) return invalid(state, "the place for the sampler is null");
  *sampler = nullptr;
  if (samples < 1 || samples > std::numeric_limits<std::uint32_t>::max()) {
    return invalid(state, "a sampler takes 1 to 4294967295 samples");
  }
  if (batch < 1) return invalid(state, "a batch has at least 1 sample");
  return guarded(state, [&]() -> Result<void> {
    const auto kept = std::make_shared<dl_sampler::Kept>(dl_sampler::Kept{
        Sampler(static_cast<std::uint32_t>(samples), batch, seed), {}, or_empty(name)});
    auto made = std::make_unique<dl_sampler>(dl_sampler{state, kept});
    // First the step that is harmless alone: the next may fail, or find no memory.
    state->core.stands_for([kept] { kept->committed = kept->core.position(); },
                           [kept] { kept->core.go_on_from(kept->committed); });
    auto added = state->core.add_replicated(or_empty(name),
                                            bytes_at(&kept->committed, sizeof kept->committed));
    if (!added) return added;
    state->core.add_term(fmt::format("sampler '{}': {} samples, batches of {}, seed {}",
                                     escaped(name), samples, batch, seed));
    *sampler = made.release();
    return {};
  });
}

dl_result dl_sampler_set_shards(dl_sampler* sampler, int shards) {
  if (sampler == nullptr) return DL_ERR_INVALID;
  return guarded(sampler->state, [&]() -> Result<void> {
    auto& state = sampler->state->core;
    auto& kept = *sampler->kept;
    if (auto ok = state.may_register("cutting batches into virtual shards"); !ok) return ok;
    if (shards < 1 || shards > DL_MOST_SHARDS) {
      return usage_error(fmt::format("there are 1 to {} virtual shards", DL_MOST_SHARDS));
    }
    if (kept.core.shards() != 0) return usage_error("this sampler has virtual shards already");
    state.add_term(fmt::format("sampler '{}': {} virtual shards", escaped(kept.name), shards));
    kept.core.set_shards(shards);
    return {};
  });
}

dl_result dl_sampler_shard(const dl_sampler* sampler, int shard, const uint32_t** indices,
                           size_t* count) {
  if (sampler == nullptr || indices == nullptr || count == nullptr) return DL_ERR_INVALID;
  return guarded(sampler->state, [&]() -> Result<void> {
    const auto& core = sampler->kept->core;
    if (shard < 0 || shard >= core.shards()) {
      return usage_error(fmt::format("the sampler has no virtual shard {}", shard));
    }
    const auto part = core.of_shard(shard);
    *indices = part.data();
    *count = part.size();
    return {};
  });
}

void dl_sampler_free(dl_sampler* sampler) { delete sampler; }

dl_result dl_sampler_next(dl_sampler* sampler, const uint32_t** indices, size_t* count,
                          size_t* global) {
  if (sampler == nullptr || indices == nullptr || count == nullptr) return DL_ERR_INVALID;
  const State& state = sampler->state->core;
  return guarded(sampler->state, [&]() -> Result<void> {
    const auto batch = sampler->kept->core.next(state.rank(), state.size());
    *indices = batch.mine.data();
    *count = batch.mine.size();
    if (global != nullptr) *global = batch.global;
    return {};
  });
}

uint64_t dl_sampler_epoch(const dl_sampler* sampler) {
  return sampler == nullptr ? 0 : sampler->kept->core.position().epoch;
}
uint64_t dl_sampler_position(const dl_sampler* sampler) {
  return sampler == nullptr ? 0 : sampler->kept->core.position().samples;
}

void dl_even_share(uint64_t count, int rank, int size, uint64_t* first, uint64_t* last) {
  const Share share = even_share(count, rank, size);
  *first = share.first;
  *last = share.last;
}
