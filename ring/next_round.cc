#include "ring/next_round.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

namespace dlaunch {
namespace {

JobView in_round(JobView job, const RoundNotice& notice) {
  job.rank = notice.rank;
  job.size = notice.size;
  job.round = static_cast<std::uint64_t>(notice.round);
  job.store_url = notice.store_url;
  job.round_dir = notice.round_dir;
  job.local_cores = notice.local_cores;
  return job;
}

// This program's own mistake: another round would not help.
bool is_final(Errc code) {
  return code == Errc::usage || code == Errc::unsupported || code == Errc::auth ||
         code == Errc::mismatch;
}

// This process lacks descriptors, memory, threads or a port. Another round would not bring them,
// but after a few attempts the cause may be gone.
bool lacks_means(const Error& error) {
  constexpr int kMeans[] = {EMFILE, ENFILE, ENOMEM, ENOBUFS, EAGAIN, ENOSPC, EADDRINUSE};
  return std::find(std::begin(kMeans), std::end(kMeans), error.os_errno) != std::end(kMeans);
}
constexpr int kAttempts = 3;

// The round can have no results before all have met: whatever ends it ends the meeting at once.
Result<std::unique_ptr<Communicator>> meet(Membership& membership, const JobView& job) {
  AbortFlag over;
  struct Told {
    ~Told() { membership.on_over({}); }  // after an exception, too: `over` ends here
    Membership& membership;
  } const told{membership};
  membership.on_over([&over](const Error& why) { over.raise(why); }, Membership::Ends::all);
  const ParentEnd end(over);
  return Communicator::make(job, &end);
}

}  // namespace

Result<void> join_next_round(Membership& membership, const JobView& job, std::uint64_t version,
                             std::unique_ptr<Communicator>& impl) {
  const auto corrupt = impl ? impl->corrupt_here() : std::nullopt;
  if (impl && !corrupt) impl->settle();  // the end of the round ends this
  membership.on_over({});                // before `impl` ends
  if (corrupt) {
    impl = Communicator::ended(
        {.code = Errc::aborted, .what = "this process is in no further round: " + corrupt->what});
    return *impl->over();
  }
  std::string cause = impl ? impl->broken_by_nobody() : std::string();
  // The others see this end first. An exception leaves the new one.
  impl = Communicator::ended({.code = Errc::io, .what = "rejoin: out of memory"});
  const auto failed = [&](const Error& error) {
    impl = Communicator::ended(error);
    return error;
  };
  for (int vain = 0;;) {
    auto notice = membership.next_round(version, std::exchange(cause, {}));
    if (!notice) return failed(notice.error());
    auto joined = meet(membership, in_round(job, *notice));
    if (joined) {
      impl = std::move(*joined);
      membership.on_over([round = impl.get()](const Error& why) { round->end_round(why); });
      return {};
    }
    vain = lacks_means(joined.error()) ? vain + 1 : 0;
    if (is_final(joined.error().code) || vain == kAttempts) return failed(joined.error());
  }
}

}  // namespace dlaunch
