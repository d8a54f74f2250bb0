// StagingPool: memory in which this process stages large calls, for all communicators that share
// memory on its host. A call borrows a piece that no other communicator uses, sends its number to
// the others with its arrival, and gives it back. The pool makes another piece only while all are
// in use, and passes its descriptor once to each rank that needs it. So groups that do not run at
// the same time share the same memory, and need none of their own.
//
// Others may still read what a call has staged after this rank has finished. The memory is free for
// another communicator once all ranks of the last user have said that they need it no more. After a
// failed call they never say so, and the pool does not use that memory again.
//
// Thread-safe. Ranks are those of the host, in the order of the communicator that made the pool.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "ring/call/abort_flag.h"

namespace dlaunch {

// For one communicator: whether all its ranks have read what was staged up to a count of its own.
// Any thread may ask, even after the communicator's end.
class StagingReaders {
 public:
  virtual ~StagingReaders() = default;
  virtual bool have_read(std::uint64_t count) const = 0;
};

class StagingPool {
 public:
  // Passes the descriptor of piece `number` to a rank.
  using Pass = std::function<void(int rank, std::uint64_t number, int descriptor)>;

  // Pieces that this process writes and the others read. Number 0 always exists: the data segment
  // of the process's own communicator, which all ranks have mapped. own, data: as in ShmMemory;
  // bytes: the staging room in each; keep: unmaps them.
  StagingPool(char* own, std::vector<const char*> data, std::size_t bytes,
              std::vector<std::shared_ptr<void>> keep);
  // Pieces that this process and one other rank both write.
  StagingPool(int ranks, std::size_t bytes);
  // Call it before the first borrow() that makes a piece.
  void pass_by(Pass pass);

  std::size_t bytes() const { return bytes_; }

  struct Borrowed {
    std::uint64_t number = 0;
    char* memory = nullptr;
  };
  // user: readers of the borrowing communicator. ranks: the other ranks that need the descriptor.
  // Waits a moment for others to finish reading, at most until the deadline.
  Result<Borrowed> borrow(const std::shared_ptr<const StagingReaders>& user,
                          const std::vector<int>& ranks, TimePoint deadline,
                          const AbortFlag& abort);
  // count: what the user's ranks must have read; kNeverRead after a failed call.
  static constexpr std::uint64_t kNeverRead = ~std::uint64_t{0};
  void give_back(std::uint64_t number, std::uint64_t count);

  // Rank r's piece `number`, writable here if both write it. Waits for its descriptor; null: it has
  // not come by the deadline, or the flag was raised.
  char* memory_of(int r, std::uint64_t number, TimePoint deadline, const AbortFlag& abort);
  // The descriptor has come. Remembers it if it is empty or cannot be mapped.
  void take(int r, std::uint64_t number, const UniqueFd& descriptor);
  // Why memory_of() was null; "": the descriptor has not come.
  std::string why_not(int r, std::uint64_t number) const;

  std::size_t made() const;  // number 0 included

 private:
  struct Own {
    std::uint64_t number = 0;
    std::shared_ptr<void> keep;  // null: number 0's
    UniqueFd descriptor;         // likewise empty
    char* memory = nullptr;
    std::shared_ptr<const StagingReaders> user;  // the last one
    std::uint64_t count = 0;                     // what that user's ranks must have read
    bool busy = false;
    std::vector<bool> passed;  // by rank
  };
  struct Theirs {
    std::shared_ptr<void> keep;
    char* memory = nullptr;
    std::string why_not;
  };
  Own* free_for(const StagingReaders* user, bool& soon) const;
  Duration patience() const;
  Result<void> make();
  void pass(Own& own, const std::vector<int>& ranks);

  const std::size_t ranks_;
  const std::size_t bytes_;
  const bool both_write_;
  const std::vector<std::shared_ptr<void>> keep_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Own>> own_;
  std::map<std::pair<int, std::uint64_t>, Theirs> theirs_;
  Pass pass_;
};

}  // namespace dlaunch
