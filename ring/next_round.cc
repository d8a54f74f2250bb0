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
  impl.reset();  // the others see this end first
  const auto failed = [&](const Error& error) {
    impl = Communicator::ended(error);
    return error;
  };
  for (int vain = 0;;) {
    auto notice = membership.next_round(version, std::exchange(cause, {}));
    if (!notice) return failed(notice.error());
    AbortFlag over;
    // The round can have no results before all have met: leave it at once, whatever ends it.
    membership.on_over([&over](const Error& why) { over.raise(why); }, Membership::Ends::all);
    const ParentEnd end(over);
    auto joined = Communicator::make(in_round(job, *notice), &end);
    membership.on_over({});
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
