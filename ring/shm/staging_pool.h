// StagingPool: memory in which this process stages large calls, for all communicators that share
// memory on its host. A call borrows a piece that no other communicator uses, tells its number to
// the others with its arrival, and gives it back. Another piece is made only while all are in use,
// and its descriptor passed once to each rank that is to have it. So groups that do not run at the
// same time share the same memory, and cost none of their own.
//
// What a call has staged is read by others also after this rank is done: the memory is free for
// another communicator once all of that one's ranks have said that they need it no more. After a
// failed call they never say so, and that memory is not used again.
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

// Of a communicator: whether all its ranks are done with what was staged up to there, in its own
// count. May be asked by any thread, also when the communicator is no more.
class StagingReaders {
 public:
  virtual ~StagingReaders() = default;
  virtual bool have_read(std::uint64_t count) const = 0;
};

class StagingPool {
 public:
  // Passes the descriptor of piece `number` to a rank.
  using Pass = std::function<void(int rank, std::uint64_t number, int descriptor)>;

  // Pieces that this process writes and the others read. Number 0 is there from the start: the data
  // segment of the process's own communicator, which all ranks have mapped. own, data: as in
  // ShmMemory; bytes: of each that may be staged there; keep: what unmaps them.
  StagingPool(char* own, std::vector<const char*> data, std::size_t bytes,
              std::vector<std::shared_ptr<void>> keep);
  // Pieces that this process and the one rank that each is passed to both write.
  StagingPool(int ranks, std::size_t bytes);
  // Before anything is borrowed that has yet to be made.
  void pass_by(Pass pass);

  std::size_t bytes() const { return bytes_; }

  struct Borrowed {
    std::uint64_t number = 0;
    char* memory = nullptr;
  };
  // user: readers of the communicator that borrows. ranks: who needs the descriptor, others than
  // this one. Waits a moment for what others have yet to read, at most to the deadline.
  Result<Borrowed> borrow(const std::shared_ptr<const StagingReaders>& user,
                          const std::vector<int>& ranks, TimePoint deadline,
                          const AbortFlag& abort);
  // count: what the user's ranks have to have read; kNeverRead after a call that failed.
  static constexpr std::uint64_t kNeverRead = ~std::uint64_t{0};
  void give_back(std::uint64_t number, std::uint64_t count);

  // Rank r's piece `number`, writable here where both write it. Waits for its descriptor to come;
  // null: not by the deadline, or the flag was raised.
  char* memory_of(int r, std::uint64_t number, TimePoint deadline, const AbortFlag& abort);
  // It has come. An empty one, or one that cannot be mapped, is remembered as that.
  void take(int r, std::uint64_t number, const UniqueFd& descriptor);
  // Why memory_of() was null; "": it has not come.
  std::string why_not(int r, std::uint64_t number) const;

  std::size_t made() const;  // number 0 included

 private:
  struct Own {
    std::uint64_t number = 0;
    std::shared_ptr<void> keep;  // null: number 0's
    UniqueFd descriptor;         // likewise empty
    char* memory = nullptr;
    std::shared_ptr<const StagingReaders> user;  // the last one
    std::uint64_t count = 0;                     // that the last one's ranks have to have read
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
