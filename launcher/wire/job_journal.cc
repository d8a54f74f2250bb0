#include "launcher/wire/job_journal.h"

#include <algorithm>

#include "base/record.h"

namespace dlaunch {
namespace {

constexpr std::uint32_t kFormat = 7;
constexpr RecordLimits kJournalLimits{.text = 1024, .items = 65536};

// Numbers from 0 on, less than `end`.
bool within(const std::vector<int>& numbers, std::size_t end) {
  return std::ranges::all_of(
      numbers, [=](int number) { return number >= 0 && static_cast<std::size_t>(number) < end; });
}

bool holds_together(const JobRecord& job, std::size_t slots) {
  const auto numbers = {job.round,         job.live,          job.wished_size,
                        job.restarts_used, job.restarts_left, job.used_for_sigterm};
  std::vector<int> leaving;
  for (const auto& [slot, rank] : job.leaving) leaving.insert(leaving.end(), {slot, rank});
  std::vector<int> accused;
  for (const auto& [slot, by] : job.accused) {
    accused.push_back(slot);
    accused.insert(accused.end(), by.begin(), by.end());
  }
  return std::min(numbers) >= 0 && !job.roster.empty() && within(job.roster, slots) &&
         within(job.members, slots) && within(job.done, slots) && within(leaving, slots) &&
         within(accused, slots);
}

bool holds_together(const JobJournal& journal) {
  std::vector<int> drained;
  for (const auto& host : journal.drained) drained.push_back(host.node);
  const std::size_t hosts = journal.hosts.size();
  return !journal.run.empty() && journal.size > 0 &&
         static_cast<std::size_t>(journal.size) <= journal.nodes.size() &&
         journal.led < static_cast<int>(hosts) && within(journal.nodes, hosts) &&
         within(drained, hosts) && holds_together(journal.job, journal.nodes.size());
}

}  // namespace

std::string encode(const JobJournal& journal) {
  RecordWriter out(kJournalLimits);
  out(kFormat);
  out(journal);
  return out.take();
}

Result<JobJournal> decode_job_journal(std::string_view bytes) {
  RecordReader in(bytes, kJournalLimits);
  std::uint32_t format = 0;
  JobJournal journal;
  in(format);
  if (format == kFormat) in(journal);
  if (format == kFormat && in.done() && holds_together(journal)) return journal;
  return Error{.code = Errc::protocol,
               .what =
                   "the job's journal was not written by this version of dlaunch: remove it, or "
                   "choose another --job-id"};
}

}  // namespace dlaunch
