#include "elastic/state/registry.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

#include "base/text.h"

namespace dlaunch {
namespace {

constexpr std::size_t kNameBytesMax = 200;
constexpr std::size_t kAlignment = 16;
// The limit of an object, less the last buffer's alignment and its size in the header.
constexpr std::size_t kObjectBytesMax = PTRDIFF_MAX - 4 * kAlignment;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// As many shards, and all but this rank's are empty.
std::vector<ConstBytes> only(std::span<const ConstBytes> shards, int rank) {
  std::vector<ConstBytes> one(shards.size());
  const auto at = static_cast<std::size_t>(rank);
  one[at] = shards[at];
  return one;
}

}  // namespace

// Copies to or from `buffer`.
Result<void> Registry::copy(const Buffer& buffer, ConstBytes from, Bytes to) const {
  if (from.empty()) return {};  // may be null
  if (!copy_) {
    std::memcpy(to.data(), from.data(), from.size());
    return {};
  }
  auto copied = copy_(to.data(), from.data(), from.size());
  if (copied) return {};
  Error error = copied.error();
  error.what = fmt::format("state '{}': {}", escaped(buffer.name), error.what);
  return error;
}

Result<void> Registry::check_name(const std::string& name) const {
  if (name.empty() || name.size() > kNameBytesMax) {
    return usage_error(
        fmt::format("a buffer of the state needs a name of 1 to {} bytes", kNameBytesMax));
  }
  for (const auto* buffers : {&replicated_, &sharded_}) {
    if (std::ranges::any_of(*buffers, [&](const Buffer& b) { return b.name == name; })) {
      return usage_error("the state has a buffer '" + escaped(name) + "' already");
    }
  }
  return {};
}

// object_bytes: the size of the rest of the object. Sums of sizes that pass need no further check.
Result<void> Registry::check_memory(const std::string& name, Bytes memory,
                                    std::size_t object_bytes) {
  if (memory.data() == nullptr && !memory.empty())
    return usage_error("'" + escaped(name) + "' is null");
  if (object_bytes > kObjectBytesMax || memory.size() > kObjectBytesMax - object_bytes) {
    return usage_error(fmt::format(
        "'{}' has {} bytes; with the rest of the state this is more memory than a machine can have",
        escaped(name), memory.size()));
  }
  return {};
}

Result<void> Registry::add_replicated(std::string name, Bytes memory) {
  if (auto r = check_name(name); !r) return r;
  if (auto r = check_memory(name, memory, replicated_bytes()); !r) return r;
  replicated_.push_back({.name = std::move(name), .memory = memory});
  return {};
}

Result<void> Registry::add_sharded(std::string name, Bytes memory, std::size_t element_bytes,
                                   Reshard reshard) {
  if (auto r = check_name(name); !r) return r;
  if (auto r = check_memory(name, memory, shard_bytes()); !r) return r;
  if (element_bytes == 0 || memory.size() % element_bytes != 0) {
    return usage_error(fmt::format("'{}' has {} bytes, which are not elements of {} bytes",
                                   escaped(name), memory.size(), element_bytes));
  }
  sharded_.push_back({.name = std::move(name),
                      .memory = memory,
                      .element_bytes = element_bytes,
                      .reshard = std::move(reshard)});
  return {};
}

// Whether a buffer can have this memory instead of its own.
Result<void> Registry::check_shard(const Buffer& buffer, Bytes memory) const {
  if (memory.size() % buffer.element_bytes != 0) {
    return usage_error(fmt::format("'{}' has {} bytes, which are not elements of {} bytes",
                                   escaped(buffer.name), memory.size(), buffer.element_bytes));
  }
  return check_memory(buffer.name, memory, shard_bytes() - aligned(buffer.memory.size()));
}

Result<void> Registry::place_shard(const std::string& name, Bytes memory) {
  const auto it = std::ranges::find(sharded_, name, &Buffer::name);
  if (it == sharded_.end()) {
    return usage_error("the state has no sharded '" + escaped(name) + "'");
  }
  if (auto r = check_shard(*it, memory); !r) return r;
  it->memory = memory;
  return {};
}

std::string Registry::describe() const {
  std::string text;
  for (const auto& b : replicated_) {
    text += fmt::format("replicated '{}' ({} bytes)\n", escaped(b.name), b.memory.size());
  }
  for (const auto& b : sharded_) {
    text += fmt::format("sharded '{}' (elements of {} bytes)\n", escaped(b.name), b.element_bytes);
  }
  return text;
}

std::optional<Registry::TwoLines> Registry::difference(const std::string& first,
                                                       const std::string& other) {
  const auto line_at = [](const std::string& text, std::size_t at) {
    return at >= text.size() ? std::string("nothing") : text.substr(at, text.find('\n', at) - at);
  };
  std::size_t at = 0;
  while (at < first.size() || at < other.size()) {
    const std::string a = line_at(first, at), b = line_at(other, at);
    if (a != b) return TwoLines(escaped(a), escaped(b));
    at += a.size() + 1;
  }
  return std::nullopt;
}

std::optional<std::string> Registry::difference(std::span<const std::string> descriptions) {
  for (std::size_t rank = 1; rank < descriptions.size(); ++rank) {
    const auto lines = difference(descriptions[0], descriptions[rank]);
    if (!lines) continue;
    return fmt::format("rank {} has registered {}, rank 0 {}", rank, lines->second, lines->first);
  }
  return std::nullopt;
}

std::vector<Bytes> Registry::replicated() const {
  std::vector<Bytes> all;
  for (const auto& b : replicated_) all.push_back(b.memory);
  return all;
}

std::size_t Registry::replicated_bytes() const {
  std::size_t bytes = 0;
  for (const auto& b : replicated_) bytes += aligned(b.memory.size());
  return bytes;
}

std::size_t Registry::header_bytes() const {
  return aligned(sharded_.size() * sizeof(std::uint64_t));
}

std::size_t Registry::shard_bytes() const {
  std::size_t bytes = header_bytes();
  for (const auto& b : sharded_) bytes += aligned(b.memory.size());
  return bytes;
}

Result<void> Registry::capture_replicated(Bytes object) const {
  DL_ASSERT(object.size() == replicated_bytes());
  std::size_t at = 0;
  for (const auto& b : replicated_) {
    if (auto r = copy(b, b.memory, object.subspan(at)); !r) return r;
    at += aligned(b.memory.size());
  }
  return {};
}

Result<void> Registry::restore_replicated(ConstBytes object) const {
  DL_ASSERT(object.size() == replicated_bytes());
  std::size_t at = 0;
  for (const auto& b : replicated_) {
    if (auto r = copy(b, object.subspan(at, b.memory.size()), b.memory); !r) return r;
    at += aligned(b.memory.size());
  }
  return {};
}

Result<void> Registry::capture_shard(Bytes object) const {
  DL_ASSERT(object.size() == shard_bytes());
  std::size_t at = header_bytes();
  for (std::size_t i = 0; i < sharded_.size(); ++i) {
    const ConstBytes memory = sharded_[i].memory;
    const std::uint64_t size = memory.size();
    std::memcpy(object.data() + i * sizeof size, &size, sizeof size);
    if (auto r = copy(sharded_[i], memory, object.subspan(at)); !r) return r;
    at += aligned(memory.size());
  }
  return {};
}

// By buffer.
Result<std::vector<OldShards>> Registry::parse(std::span<const ConstBytes> shards) const {
  std::vector<OldShards> all(sharded_.size());
  for (const ConstBytes shard : shards) {
    std::size_t at = header_bytes();
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::uint64_t size = 0;
      if (!shard.empty()) {
        if (shard.size() >= header_bytes()) {
          std::memcpy(&size, shard.data() + i * sizeof size, sizeof size);
        }
        if (at > shard.size() || size > shard.size() - at) {
          return Error{.code = Errc::protocol, .what = "a shard of the state is malformed"};
        }
      }
      all[i].push_back(shard.empty() ? ConstBytes() : shard.subspan(at, size));
      at += aligned(size);
    }
  }
  return all;
}

Result<void> Registry::restore_shard(std::span<const ConstBytes> shards, int rank, int size) {
  const bool same_cut = static_cast<int>(shards.size()) == size;
  auto parsed = parse(same_cut ? only(shards, rank) : std::vector(shards.begin(), shards.end()));
  if (!parsed) return parsed.error();
  for (std::size_t i = 0; i < sharded_.size(); ++i) {
    Buffer& buffer = sharded_[i];
    const OldShards& old = (*parsed)[i];
    if (same_cut) {
      const ConstBytes own = old[static_cast<std::size_t>(rank)];
      if (own.size() == buffer.memory.size()) {
        if (auto r = copy(buffer, own, buffer.memory); !r) return r;
        continue;
      }
    }
    if (!buffer.reshard) {
      return Error{.code = Errc::unsupported,
                   .what = fmt::format("'{}' was divided for {} ranks and must be divided for {}, "
                                       "but has no reshard function",
                                       escaped(buffer.name), shards.size(), size)};
    }
    auto fresh = buffer.reshard(old, rank, size);
    if (!fresh) return fresh.error();
    if (fresh->size() % buffer.element_bytes != 0) {
      return usage_error(
          fmt::format("the reshard function of '{}' gave {} bytes, which are not elements",
                      escaped(buffer.name), fresh->size()));
    }
    const std::size_t others = shard_bytes() - aligned(buffer.memory.size());
    if (auto r = check_memory(buffer.name, *fresh, others); !r) return r;
    buffer.memory = *fresh;
  }
  return {};
}

}  // namespace dlaunch
