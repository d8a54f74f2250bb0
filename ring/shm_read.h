// Reading another process's memory (Linux: process_vm_readv), for ranks of one host that move data:
// one copy, from the giver's buffer into the taker's, where shared memory takes two. It needs what
// a debugger needs: the same user, and no security module against it (Yama, seccomp). So ranks find
// out at the start whether it works; that it does not is no error.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace dlaunch {

// Lies in a rank's data segment, for the others to try their luck on.
struct ReadProbe {
  std::int64_t pid = 0;
  std::uint64_t address = 0;  // of `word` in that process
  std::uint64_t word = 0;     // some number
};
ReadProbe make_read_probe(const std::uint64_t* word);
// Whether this process may read that one. A pid that means another process here says no, too.
bool can_read(const ReadProbe& probe);

// Fills `to`, pieces of `bytes` together, from `from` on. Errc::io with os_errno:
// ESRCH if the process has ended, EFAULT if its memory is not all there or of a kind that only
// devices read.
Result<void> read_process(pid_t pid, std::uint64_t from, std::span<iovec> to, std::size_t bytes);

// Whether others can read all this: no, for example, of memory that belongs to a device. Looks at
// the first and the last byte.
bool can_be_read(const void* begin, std::size_t bytes);

}  // namespace dlaunch
