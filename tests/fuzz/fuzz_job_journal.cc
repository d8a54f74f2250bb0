#include "fuzz.h"
#include "launcher/wire/job_journal.h"

static int fuzz_job_journal(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const auto journal = decode_job_journal(fuzz_text(data, size));
  if (!journal) return -1;
  // What is accepted means the same once it was written again.
  const std::string written = encode(*journal);
  const auto again = decode_job_journal(written);
  if (!again || encode(*again) != written) __builtin_trap();
  return 0;
}

static std::vector<std::string> job_journal_examples() {
  using namespace dlaunch;
  JobJournal journal{
      .run = "4f", .size = 2, .hosts = {}, .nodes = {0, 1, 1}, .drained = {}, .job = {}};
  journal.hosts = {{"a", 1}, {"b", 2, "s0.s1"}};
  journal.led = 1;
  journal.job.round = 7;
  journal.job.live = 5;
  journal.job.wished_size = 2;
  journal.job.roster = {2, 0};
  JobJournal of_slurm = journal;
  of_slurm.slurm_job = "12";
  of_slurm.requeued = 2;
  of_slurm.drained = {{"b", 1, true}};
  of_slurm.job.leaving = {{1, 1}};
  of_slurm.job.members = {1};
  of_slurm.job.done = {2};
  return {encode(journal), encode(of_slurm)};
}

static const FuzzTarget job_journal_target("job_journal", fuzz_job_journal, job_journal_examples);
