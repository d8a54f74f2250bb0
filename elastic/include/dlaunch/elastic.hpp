// libdlelastic for C++20, over the C API of <dlaunch/elastic.h>, which is the manual. Header only.
//
//   dl::Options options;
//   options.elastic = 1;
//   auto comm = dl::Communicator::init(nullptr, options);
//   std::vector<float> w(n);
//   dl::State state(comm);
//   state.replicated("w", w);
//   dl::ElasticSampler sampler(state, "samples", images, 256, seed);
//   dl::run_elastic(state, [&] {
//     if (sampler.epoch() == epochs) return false;
//     const auto batch = sampler.next();
//     gradient(w, g, batch.mine, batch.global);
//     comm.all_reduce(std::span(g));
//     apply(w, g);
//     return true;                       // run_elastic commits the step
//   });
//
// Errors are exceptions: dl::Error and its subclasses. Exceptions of callbacks pass through. The
// communicator must outlive the state. Only one thread at a time may use either.
#pragma once

#if __cplusplus <= 201703L
#error "<dlaunch/elastic.hpp> needs C++20: compile with -std=c++20"
#else

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dlaunch/elastic.h"
#include "dlaunch/ring.hpp"

namespace dl {

using Version = dl_state_version;
using Change = dl_change;

struct StateOptions : dl_state_options {
  StateOptions() { dl_state_options_init(this); }
};

// Makes this rank's part from the earlier ranks' parts; see dl_reshard.
template <class T>
using Reshard =
    std::function<std::vector<T>(std::span<const std::span<const T>> old, int rank, int size)>;

// The reshard function of memory that is one array, divided evenly as dl_even_share() does.
template <class T>
std::vector<T> reshard_evenly(std::span<const std::span<const T>> old, int rank, int size) {
  if (static_cast<int>(old.size()) == size) {
    const auto own = old[static_cast<std::size_t>(rank)];
    return {own.begin(), own.end()};
  }
  std::uint64_t total = 0, first = 0, last = 0, at = 0;
  for (const auto shard : old) total += shard.size();
  dl_even_share(total, rank, size, &first, &last);
  std::vector<T> mine;
  mine.reserve(last - first);
  for (const auto shard : old) {
    const auto from = std::max(first, at), to = std::min(last, at + shard.size());
    if (from < to) {
      const auto part = shard.subspan(from - at, to - from);
      mine.insert(mine.end(), part.begin(), part.end());
    }
    at += shard.size();
  }
  return mine;
}

class State {
 public:
  explicit State(Communicator& comm, const StateOptions& options = {}) : comm_(comm.get()) {
    dl_state* state = nullptr;
    const dl_result code = dl_state_new(comm.get(), &options, &state);
    if (code != DL_OK) throw Error(code, dl_state_last_error(nullptr));
    state_.reset(state);
  }
  // Takes ownership of a state made by the C API.
  static State adopt(dl_state* state) { return State(state); }
  dl_state* get() const { return state_.get(); }

  // The memory must stay where it is: a vector must not be resized or assigned to.
  template <class T>
  void replicated(const std::string& name, std::span<T> memory) {
    plain<T>();
    check(dl_state_replicated(get(), name.c_str(), memory.data(), memory.size_bytes()));
  }
  template <class T>
  void replicated(const std::string& name, std::vector<T>& memory) {
    replicated(name, std::span<T>(memory));
  }
  template <class T>
  void value(const std::string& name, T& value) {
    replicated(name, std::span<T>(&value, 1));
  }

  // The reshard function's result is assigned to the vector. nullptr: no function.
  template <class T>
  void sharded(const std::string& name, std::vector<T>& memory,
               std::type_identity_t<Reshard<T>> reshard = reshard_evenly<T>) {
    plain<T>();
    static_assert(alignof(T) <= 16, "shards are aligned to 16 bytes");
    const dl_reshard cut = reshard ? &call_reshard : nullptr;
    callbacks_.push_back(std::make_unique<Callback>(
        [this_error = error_.get(), &memory, reshard = std::move(reshard)](
            const dl_shards* old, int rank, int size, void** at, std::size_t* bytes) {
          return guarded(*this_error, [&] {
            std::vector<std::span<const T>> shards;
            for (int r = 0; r < old->size; ++r) {
              shards.emplace_back(static_cast<const T*>(old->at[r]), old->bytes[r] / sizeof(T));
            }
            memory = reshard(shards, rank, size);
            *at = memory.data();
            *bytes = memory.size() * sizeof(T);
          });
        }));
    check(dl_state_sharded(get(), name.c_str(), memory.data(), memory.size() * sizeof(T), sizeof(T),
                           cut, callbacks_.back().get()));
  }

  // Memory that differs between ranks and stays where it is, such as parameters in local training.
  // In a round with another number of ranks each rank continues with the memory of the rank that
  // had the same number, and a rank with a new number begins with a copy of another's.
  template <class T>
  void own(const std::string& name, std::span<T> memory) {
    plain<T>();
    static_assert(alignof(T) <= 16, "shards are aligned to 16 bytes");
    callbacks_.push_back(std::make_unique<Callback>(
        [this_error = error_.get(), memory](const dl_shards* old, int rank, int, void** at,
                                            std::size_t* bytes) {
          return guarded(*this_error, [&] {
            const auto from = static_cast<std::size_t>(rank % old->size);
            if (old->bytes[from] != memory.size_bytes()) {
              throw Error(DL_ERR_MISMATCH, "a rank's own memory has another size");
            }
            const auto* const first = static_cast<const T*>(old->at[from]);
            std::copy_n(first, memory.size(), memory.data());
            *at = memory.data();
            *bytes = memory.size_bytes();
          });
        }));
    check(dl_state_sharded(get(), name.c_str(), memory.data(), memory.size_bytes(), sizeof(T),
                           &call_reshard, callbacks_.back().get()));
  }

  // After the first sync: the vector has a new size or place.
  template <class T>
  void place_shard(const std::string& name, std::vector<T>& memory) {
    check(dl_state_place_shard(get(), name.c_str(), memory.data(), memory.size() * sizeof(T)));
  }

  void snapshots(const std::string& folder, int every, int keep) {
    check(dl_state_snapshots(get(), folder.c_str(), every, keep));
  }
  void on_change(std::function<void(const Change&)> tell) {
    tells_.push_back(std::make_unique<Tell>(Tell{error_.get(), std::move(tell)}));
    check(dl_state_on_change(get(), &call_on_change, tells_.back().get()));
  }

  void sync() { check(dl_state_sync(get())); }
  void update() { check(dl_state_update(get())); }
  void commit(int flags = 0) { check(dl_state_commit(get(), flags)); }
  void restore() { check(dl_state_restore(get())); }
  void recover() { check(dl_state_recover(get())); }
  void finish() { check(dl_state_finish(get())); }
  bool round_over() const { return dl_state_round_over(get()) != 0; }
  Version committed() const { return dl_state_committed(get()); }

 private:
  template <class Step>
  friend void run_elastic(State& state, Step step);

  struct Free {
    void operator()(dl_state* state) const { dl_state_free(state); }
  };
  using Callback = std::function<dl_result(const dl_shards*, int, int, void**, std::size_t*)>;
  struct Tell {
    std::exception_ptr* error;
    std::function<void(const Change&)> tell;
  };

  explicit State(dl_state* state) : state_(state) {}

  template <class T>
  static void plain() {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>);
  }
  // Exceptions must not pass through the C API; check() throws them again.
  template <class Body>
  static dl_result guarded(std::exception_ptr& error, Body body) {
    try {
      body();
      return DL_OK;
    } catch (...) {
      if (!error) error = std::current_exception();
      return DL_ERR_ABORTED;
    }
  }
  static dl_result call_reshard(void* user, const dl_shards* old, int rank, int size, void** at,
                                std::size_t* bytes) {
    return (*static_cast<Callback*>(user))(old, rank, size, at, bytes);
  }
  static void call_on_change(void* user, const dl_change* change) {
    auto& tell = *static_cast<Tell*>(user);
    guarded(*tell.error, [&] { tell.tell(*change); });
  }
  void check(dl_result code) {
    if (*error_) std::rethrow_exception(std::exchange(*error_, nullptr));
    if (code == DL_OK) return;
    const std::string what = dl_state_last_error(get());
    if (code == DL_ERR_PEER_LOST) throw PeerLost(what, comm_ != nullptr ? dl_peer_lost(comm_) : -1);
    if (code == DL_ERR_CORRUPT) throw Corrupt(what, comm_ != nullptr ? dl_peer_lost(comm_) : -1);
    if (code == DL_ERR_MISMATCH) throw Mismatch(what);
    if (code == DL_ERR_TIMEOUT) throw Timeout(what);
    throw Error(code, what);
  }

  dl_comm* comm_ = nullptr;
  std::unique_ptr<std::exception_ptr> error_ = std::make_unique<std::exception_ptr>();
  std::vector<std::unique_ptr<Callback>> callbacks_;
  std::vector<std::unique_ptr<Tell>> tells_;
  std::unique_ptr<dl_state, Free> state_;
};

// See dl_run_elastic. step() does one step and returns true, or returns false at the end, on all
// ranks. run_elastic() commits each step, recovers from a dl::PeerLost that step() throws, and
// passes on any other exception.
template <class Step>
void run_elastic(State& state, Step step) {
  auto body = [&](int* more) {
    if (*state.error_) return DL_ERR_ABORTED;  // an on_change function threw
    bool lost = false;
    const auto code = State::guarded(*state.error_, [&] {
      try {
        *more = step() ? 1 : 0;
      } catch (const PeerLost&) {
        lost = true;
      }
    });
    return lost ? DL_ERR_PEER_LOST : code;
  };
  using Body = decltype(body);
  state.check(dl_run_elastic(
      state.get(), [](void* user, int* more) { return (*static_cast<Body*>(user))(more); }, &body));
}

// See dl_sampler_new. Must outlive the last use of the state.
class ElasticSampler {
 public:
  struct Batch {
    std::span<const std::uint32_t> mine;  // this rank's samples, until the next call
    std::size_t global;                   // those of all ranks together
  };

  ElasticSampler(State& state, const std::string& name, std::uint64_t samples, std::uint64_t batch,
                 std::uint64_t seed = 0)
      : state_(state.get()) {
    dl_sampler* sampler = nullptr;
    check(dl_sampler_new(state.get(), name.c_str(), samples, batch, seed, &sampler));
    sampler_.reset(sampler);
  }
  Batch next() {
    const std::uint32_t* indices = nullptr;
    std::size_t count = 0, global = 0;
    check(dl_sampler_next(sampler_.get(), &indices, &count, &global));
    return {{indices, count}, global};
  }
  // See dl_sampler_set_shards.
  void set_shards(int shards) { check(dl_sampler_set_shards(sampler_.get(), shards)); }
  // A virtual shard's part of the last batch, until the next call of next().
  std::span<const std::uint32_t> shard(int number) const {
    const std::uint32_t* indices = nullptr;
    std::size_t count = 0;
    check(dl_sampler_shard(sampler_.get(), number, &indices, &count));
    return {indices, count};
  }
  std::uint64_t epoch() const { return dl_sampler_epoch(sampler_.get()); }
  std::uint64_t position() const { return dl_sampler_position(sampler_.get()); }

 private:
  void check(dl_result code) const {
    if (code != DL_OK) throw Error(code, dl_state_last_error(state_));
  }

  struct Free {
    void operator()(dl_sampler* sampler) const { dl_sampler_free(sampler); }
  };
  dl_state* state_;
  std::unique_ptr<dl_sampler, Free> sampler_;
};

}  // namespace dl

#endif  // C++20
