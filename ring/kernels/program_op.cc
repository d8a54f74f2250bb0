#include "ring/kernels/program_op.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include <fmt/format.h>

#include "base/result.h"
#include "ring/kernels/reduce.h"

namespace dlaunch {
namespace {

struct Table {
  struct Entry {
    std::shared_ptr<const ProgramOp> owned;  // null once the program has freed it
    std::weak_ptr<const ProgramOp> known;
  };
  std::mutex mutex;
  std::map<int, Entry> entries;
  OpNumbers numbers;
};
// Threads may still reduce while the process ends.
Table& table() {
  static auto& all = *new Table;
  return all;
}

std::shared_ptr<const ProgramOp> held(dl_op op) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().entries.find(op);
  auto held = found == table().entries.end() ? nullptr : found->second.known.lock();
  if (held == nullptr) {
    throw Thrown(Error{.code = Errc::usage, .what = "dl_op_free() was called during the call"});
  }
  return held;
}

// The left operand of the function, and its right one, which it overwrites: two blocks that take
// turns.
class Fold {
 public:
  Fold(const ProgramOp& op, dl_dtype dtype, std::size_t element, std::size_t block)
      : op_(op),
        dtype_(dtype),
        element_(element),
        spare_bytes_(block * element),
        memory_(std::make_unique_for_overwrite<char[]>(2 * spare_bytes_)) {}

  // Writes the result for `count` elements to `out`, which may be one of the operands.
  void run(std::span<const char*> in, char* out, std::size_t count) {
    const std::size_t bytes = count * element_, last = in.size() - 1;
    const char* left = in[0];
    char *spare = memory_.get(), *other = spare + spare_bytes_;
    for (std::size_t k = 1; k <= last; ++k) {
      char* const right = k == last && out != left ? out : spare;
      if (right != in[k]) std::memcpy(right, in[k], bytes);
      combine(left, right, count);
      left = right;
      std::swap(spare, other);
    }
    if (left != out) std::memcpy(out, left, bytes);
  }

 private:
  void combine(const char* left, char* right, std::size_t count) {
    const int code = op_.function(left, right, count, dtype_, op_.context);
    if (code == 0) return;
    throw Thrown(
        Error{.code = Errc::aborted,
              .what = fmt::format("the function of its operation returned {} on this rank", code)});
  }

  const ProgramOp& op_;
  const dl_dtype dtype_;
  const std::size_t element_;
  const std::size_t spare_bytes_;
  const std::unique_ptr<char[]> memory_;
};

}  // namespace

std::optional<dl_op> OpNumbers::take(bool commutes) {
  if (next_ < kFirstFunction) return std::nullopt;
  const int number = next_ + (commutes ? 0 : 1);
  // The last pair ends with the largest int.
  next_ = next_ < std::numeric_limits<int>::max() - 1 ? next_ + 2 : 0;
  return static_cast<dl_op>(number);
}

Result<dl_op> add_program_op(const ProgramOp& op, bool commutes) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.entries, [](const auto& entry) { return entry.second.known.expired(); });
  auto owned = std::make_shared<const ProgramOp>(op);
  const auto number = all.numbers.take(commutes);
  if (!number) {
    return Error{.code = Errc::unsupported,
                 .what =
                     "this process has made 2^30 operations, and no number is left: make an "
                     "operation once and use it in every call"};
  }
  all.entries[*number] = {owned, owned};
  return *number;
}

bool remove_program_op(dl_op op) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().entries.find(op);
  if (found == table().entries.end() || found->second.owned == nullptr) return false;
  found->second.owned.reset();
  return true;
}

std::shared_ptr<const ProgramOp> program_op(dl_op op) {
  if (!is_function(op)) return nullptr;
  const std::lock_guard lock(table().mutex);
  const auto found = table().entries.find(op);
  return found == table().entries.end() ? nullptr : found->second.owned;
}

void reduce_by_function(std::span<const void* const> in, void* out, std::size_t count,
                        dl_dtype dtype, dl_op op) {
  constexpr std::size_t kBlockBytes = 1 << 15;
  const auto held_op = held(op);
  const std::size_t element = element_bytes(dtype);
  const std::size_t block = std::min(count, kBlockBytes / element);
  Fold fold(*held_op, dtype, element, block);
  std::vector<const char*> at(in.size());
  for (std::size_t done = 0; done < count; done += block) {
    const std::size_t offset = done * element;
    std::transform(in.begin(), in.end(), at.begin(), [offset](const void* operand) {
      return static_cast<const char*>(operand) + offset;
    });
    fold.run(at, static_cast<char*>(out) + offset, std::min(block, count - done));
  }
}

}  // namespace dlaunch
