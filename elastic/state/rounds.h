// Rounds: what a State needs from the communicator and the launcher. An interface, so that tests
// can form rounds of threads, and break them at any byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace dlaunch {

// A message under way. The destructor waits for its end, so that its memory is free afterwards.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual Result<void> wait() = 0;
};

class Rounds {
 public:
  virtual ~Rounds() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::uint64_t round() const = 0;
  // The launcher wants the next round.
  virtual bool over() const = 0;
  // Reports this rank's newest commit to the launcher, which watches progress.
  virtual void progress(std::uint64_t version) = 0;
  // Leaves the round and joins the next; blocks. version: as of progress().
  virtual Result<void> rejoin(std::uint64_t version) = 0;

  // Collectives. `all` is size() times `mine`, in rank order; gather_v: the sum of `sizes`.
  virtual Result<void> gather(std::span<const std::uint64_t> mine,
                              std::span<std::uint64_t> all) = 0;
  virtual Result<void> gather_v(std::string_view mine, std::span<char> all,
                                std::span<const std::size_t> sizes) = 0;
  virtual Result<void> maximum(std::span<std::uint64_t> values) = 0;
  virtual Result<void> barrier() = 0;
  // Broadcasts rank `root`'s content of these places to all ranks: all of it on GPUs, or none.
  using Places = std::span<const std::span<std::byte>>;
  virtual Result<void> broadcast(Places places, int root) = 0;
  // After a broadcast on GPUs: the ranks' GPUs reach each other without going through the host.
  virtual bool gpu_to_gpu() const = 0;
  virtual bool on_gpu(const std::byte* memory) const = 0;

  // Not collective: no operation that this rank has put in a GPU's stream so far has failed, or
  // will.
  virtual Result<void> settle() = 0;
  // Collective, if the job verifies its calls: all results so far are equal on all ranks.
  virtual Result<void> verify() = 0;

  // Not collective, in any round and between rounds: either place may be GPU memory.
  virtual Result<void> copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;

  // Messages of one sender to one receiver arrive in the order in which they were started.
  using Started = Result<std::unique_ptr<Transfer>>;
  virtual Started send(std::span<const std::byte> bytes, int peer) = 0;
  virtual Started receive(std::span<std::byte> bytes, int peer) = 0;
};

// Collective: the texts of all, by rank.
Result<std::vector<std::string>> gather_texts(Rounds& rounds, std::string_view mine);

// Collective: the result of a local part of a common task. A failure on one rank is the failure of
// all, with that rank's words.
Result<void> agree(Rounds& rounds, const Result<void>& mine);

}  // namespace dlaunch
