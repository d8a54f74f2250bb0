#include "launcher/job_journal.h"

#include <algorithm>

#include "base/codec.h"

namespace dlaunch {
namespace {

constexpr std::uint32_t kFormat = 5;
constexpr std::size_t kMaxJournalItems = 65536;
constexpr std::size_t kMaxName = 1024;

void put(Writer& out, const std::vector<int>& numbers) {
  out.put(static_cast<std::uint32_t>(numbers.size()));
  for (const int number : numbers) out.put(number);
}

// Of numbers from 0 on, less than `end`.
bool get(Reader& in, std::vector<int>& numbers, std::size_t end) {
  const auto size = in.get<std::uint32_t>();
  if (size > kMaxJournalItems) return false;
  for (std::uint32_t i = 0; i < size && in.ok(); ++i) numbers.push_back(in.get<int>());
  return std::all_of(numbers.begin(), numbers.end(), [=](int number) {
    return number >= 0 && static_cast<std::size_t>(number) < end;
  });
}

void put_drained(Writer& out, const std::vector<JobJournal::Drained>& drained) {
  out.put(static_cast<std::uint32_t>(drained.size()));
  for (const auto& host : drained) {
    out.put_string(host.name);
    out.put(host.node);
    out.put(static_cast<std::uint8_t>(host.left));
  }
}

bool get_drained(Reader& in, JobJournal& journal) {
  const auto size = in.get<std::uint32_t>();
  if (size > kMaxJournalItems) return false;
  for (std::uint32_t i = 0; i < size && in.ok(); ++i) {
    const std::string name(in.get_string(kMaxName));
    const int node = in.get<int>();
    journal.drained.push_back({name, node, in.get<std::uint8_t>() != 0});
    if (node < 0 || static_cast<std::size_t>(node) >= journal.hosts.size()) return false;
  }
  return true;
}

}  // namespace

std::string encode(const JobJournal& journal) {
  Writer out;
  out.put(kFormat);
  out.put_string(journal.run);
  out.put(journal.size);
  out.put(static_cast<std::uint32_t>(journal.hosts.size()));
  for (const auto& host : journal.hosts) {
    out.put_string(host.name);
    out.put(host.nproc);
  }
  put(out, journal.nodes);
  out.put(journal.led);
  out.put_string(journal.slurm_job);
  out.put(journal.requeued);
  const JobRecord& job = journal.job;
  for (const int number : {job.round, job.live, job.wished_size, job.restarts_used,
                           job.restarts_left, job.used_for_sigterm}) {
    out.put(number);
  }
  out.put(job.time_left.count());
  put(out, job.roster);
  std::vector<int> slots, ranks;
  for (const auto& [slot, rank] : job.leaving) {
    slots.push_back(slot);
    ranks.push_back(rank);
  }
  put(out, slots);
  put(out, ranks);
  put(out, job.members);
  put(out, job.done);
  put_drained(out, journal.drained);
  return out.take();
}

Result<JobJournal> decode_job_journal(std::string_view bytes) {
  const Error malformed{
      .code = Errc::protocol,
      .what =
          "the job's journal was not written by this version of dlaunch: remove it, or "
          "choose another --job-id"};
  Reader in(bytes);
  JobJournal journal;
  if (in.get<std::uint32_t>() != kFormat) return malformed;
  journal.run = in.get_string(kMaxName);
  journal.size = in.get<int>();
  const auto hosts = in.get<std::uint32_t>();
  if (hosts > kMaxJournalItems) return malformed;
  for (std::uint32_t i = 0; i < hosts && in.ok(); ++i) {
    const std::string name(in.get_string(kMaxName));
    journal.hosts.push_back({name, in.get<int>()});
  }
  if (!get(in, journal.nodes, journal.hosts.size())) return malformed;
  journal.led = in.get<int>();
  journal.slurm_job = in.get_string(kMaxName);
  journal.requeued = in.get<int>();
  JobRecord& job = journal.job;
  for (int* number : {&job.round, &job.live, &job.wished_size, &job.restarts_used,
                      &job.restarts_left, &job.used_for_sigterm}) {
    *number = in.get<int>();
    if (*number < 0) return malformed;
  }
  job.time_left = Duration(in.get<Duration::rep>());
  if (job.time_left < Duration::zero()) return malformed;
  std::vector<int> slots, ranks;
  for (auto* numbers : {&job.roster, &slots, &ranks, &job.members, &job.done}) {
    if (!get(in, *numbers, journal.nodes.size())) return malformed;
  }
  if (!get_drained(in, journal)) return malformed;
  if (slots.size() != ranks.size() || !in.done()) return malformed;
  for (std::size_t i = 0; i < slots.size(); ++i) job.leaving[slots[i]] = ranks[i];
  const bool fits = !journal.run.empty() && journal.size > 0 && !job.roster.empty() &&
                    static_cast<std::size_t>(journal.size) <= journal.nodes.size() &&
                    journal.led < static_cast<int>(hosts);
  if (!fits) return malformed;
  return journal;
}

}  // namespace dlaunch
