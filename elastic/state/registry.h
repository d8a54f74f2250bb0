// Registry: the memory that a program has named as its state. It turns this memory into the objects
// of a committed copy and back. Pure but for the memory itself, which may be a GPU's: the objects
// are in host memory, and copy_by() supplies the way to copy.
//
// The replicated object is the buffers one after the other, in the order of their registration. A
// shard begins with the sizes of its buffers, which may differ from rank to rank. Each buffer
// starts at a multiple of 16 bytes.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace dlaunch {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

// See dl_reshard; by rank, empty if a shard is not here.
using OldShards = std::vector<ConstBytes>;
using Reshard = std::function<Result<Bytes>(const OldShards& old, int rank, int size)>;

class Registry {
 public:
  // Reads and writes registered memory; memcpy by default.
  using CopyBy = std::function<Result<void>(std::byte* to, const std::byte* from, std::size_t)>;
  void copy_by(CopyBy copy) { copy_ = std::move(copy); }

  Result<void> add_replicated(std::string name, Bytes memory);
  Result<void> add_sharded(std::string name, Bytes memory, std::size_t element_bytes,
                           Reshard reshard);
  Result<void> place_shard(const std::string& name, Bytes memory);

  bool sharded() const { return !sharded_.empty(); }
  // The facts that must be the same on all ranks; a line for each buffer.
  std::string describe() const;
  // The first line that differs between two texts of describe(); "nothing" if one text ends.
  using TwoLines = std::pair<std::string, std::string>;
  static std::optional<TwoLines> difference(const std::string& first, const std::string& other);
  // "rank 2 has registered replicated 'w' (800 bytes), rank 0 replicated 'w' (400 bytes)", if
  // two of them differ.
  static std::optional<std::string> difference(std::span<const std::string> descriptions);

  std::vector<Bytes> replicated() const;
  std::size_t replicated_bytes() const;
  std::size_t shard_bytes() const;

  // Copies the memory into an object of exactly that size, and back.
  Result<void> capture_replicated(Bytes object) const;
  Result<void> capture_shard(Bytes object) const;
  Result<void> restore_replicated(ConstBytes object) const;
  // shards: of a copy made for shards.size() ranks, empty if one is not here. The reshard functions
  // remake buffers that do not fit.
  Result<void> restore_shard(std::span<const ConstBytes> shards, int rank, int size);

 private:
  struct Buffer {
    std::string name;
    Bytes memory;
    std::size_t element_bytes = 1;
    Reshard reshard = {};
  };
  Result<void> check_name(const std::string& name) const;
  static Result<void> check_memory(const std::string& name, Bytes memory, std::size_t object_bytes);
  Result<void> check_shard(const Buffer& buffer, Bytes memory) const;
  Result<void> copy(const Buffer& buffer, ConstBytes from, Bytes to) const;
  std::size_t header_bytes() const;
  Result<std::vector<OldShards>> parse(std::span<const ConstBytes> shards) const;

  CopyBy copy_;
  std::vector<Buffer> replicated_, sharded_;
};

}  // namespace dlaunch
