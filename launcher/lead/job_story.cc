#include "launcher/lead/job_story.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/log.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "base/write_all.h"
#include "launcher/lead/report/flight_dump.h"
#include "launcher/wire/stack_lines.h"

namespace dlaunch {
namespace {

// Does not follow a link under the new file's name: other users of the folder may have put it
// there.
void write_report(const char* option, const std::string& path, const std::string& text) {
  struct stat st {};
  const bool special = ::stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode);
  const std::string fresh = special ? path : path + ".new";
  if (!special) ::unlink(fresh.c_str());
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (special ? O_TRUNC : O_EXCL);
  const UniqueFd file(::open(fresh.c_str(), flags, 0666));
  int err = file ? write_all(file.get(), text).os_errno : errno;
  if (err == 0 && !special && ::rename(fresh.c_str(), path.c_str()) != 0) err = errno;
  if (err == 0) return;
  log_warn("{}", errno_error(fmt::format("write {} {}", option, path), err).what);
  if (!special) ::unlink(fresh.c_str());
}

// Those of an earlier run, perhaps of more ranks. A user's own files there stay.
void remove_flight_dumps(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) return;
  for (int rank = 0; rank < kMostFlightDumps; ++rank) {
    std::filesystem::remove(fmt::format("{}/rank_{}", folder, rank), error);
  }
  std::filesystem::remove(folder, error);  // only if it is empty
}

}  // namespace

std::string what_follows(const JobCore& job, Slot slot, int rank, int size_before,
                         const std::string& pause) {
  if (rank < 0) return "starting another spare" + pause;
  if (job.size() < size_before) {
    return fmt::format("going on with {} of {} workers", job.size(), size_before);
  }
  if (job.rank_of(slot) == rank) return "starting it again" + pause;
  return "a spare takes its place";
}

std::string in_words(const JobCore::AwaitEnd& awaited, const std::string& host) {
  const auto& [slot, rank, pid, doing] = awaited.of;
  const std::string why = doing.empty() ? "" : ", because of " + escaped(doing);
  return fmt::format(
      "{} (pid {} on {}) has not ended {} after SIGKILL{}: dlaunch waits up to {} longer for its "
      "end, before it starts another process in its place",
      rank < 0 ? "a spare" : "rank " + std::to_string(rank), pid, host,
      format_duration(kKillPatience), why, format_duration(awaited.longer));
}

JobStory::JobStory(const Plan& plan) : plan_(plan) {
  facts_.job_id = plan.job_id;
  facts_.host = plan.host;
  facts_.program = plan.argv.at(0);
  for (const JobProgram& program : plan.programs) {
    const auto ranks = static_cast<std::size_t>(*program.ranks.rbegin()) + 1;
    facts_.programs.resize(std::max(facts_.programs.size(), ranks));
    for (const int rank : program.ranks) {
      facts_.programs[static_cast<std::size_t>(rank)] = program.argv.at(0);
    }
  }
  facts_.nproc = plan.nproc;
  facts_.max_restarts = plan.max_restarts;
  facts_.grace = plan.grace;
  facts_.shows_goodput = plan.goodput;
  facts_.tells_cost = !plan.quiet && plan.straggler != StragglerMode::off;
  facts_.started = steady_now();
}

void JobStory::begin_round(int round, int workers) {
  facts_.round = round;
  facts_.nproc = workers;
  facts_.workers.clear();
  facts_.stacks.clear();
  facts_.late_in_nccl.clear();
  facts_.nccl_says.clear();
  facts_.lost_host.clear();
  facts_.ended_before_loss = 0;
}

void JobStory::begins_again(int rank) {
  auto& ends = facts_.workers;
  for (std::size_t i = ends.size(); i-- > 0;) {
    if (ends[i].rank != rank) continue;
    ends.erase(ends.begin() + static_cast<std::ptrdiff_t>(i));
    if (i < facts_.ended_before_loss) --facts_.ended_before_loss;
  }
  std::erase(facts_.lost_ranks, rank);
  if (facts_.lost_ranks.empty()) facts_.lost_host.clear();
}

void JobStory::lost_host(const std::string& host, std::vector<int> ranks) {
  if (!facts_.lost_host.empty() || ranks.empty()) return;
  facts_.lost_host = host;
  facts_.lost_ranks = std::move(ranks);
  facts_.ended_before_loss = facts_.workers.size();
}

// In the order of their ends: messages from other hosts arrive late. A newcomer may fail before it
// knows the rank that it is to have.
void JobStory::ended(WorkerEnd end, int place) {
  if (end.rank < 0) end.rank = place;
  if (end.rank < 0) return;
  auto& ends = facts_.workers;
  const auto at = std::upper_bound(ends.begin(), ends.end(), end,
                                   [](const auto& a, const auto& b) { return a.ended < b.ended; });
  const auto before = static_cast<std::size_t>(at - ends.begin());
  if (before < facts_.ended_before_loss) ++facts_.ended_before_loss;
  ends.insert(at, end);
}

void JobStory::end_begins(std::vector<std::string> waits) {
  if (!facts_.waits) facts_.waits = std::move(waits);
}

// A process that has ended meanwhile has no stack any more: the earlier one says more.
void JobStory::note_stacks(int rank, const std::vector<std::string>& lines) {
  if (!parse_stack(lines).empty() || !facts_.stacks.contains(rank)) facts_.stacks[rank] = lines;
}

void JobStory::note_late_in_nccl(const RankSet& ranks, const std::string& sentence) {
  facts_.late_in_nccl = ranks;
  facts_.nccl_says = sentence;
}

void JobStory::start_failed(int rank, const SpawnError& error) {
  if (error.stage == Stage::stdio) setup_failed();
  if (facts_.failed_stage != Stage::none) return;
  facts_.failed_rank = rank;
  facts_.failed_stage = error.stage;
  facts_.failed_errno = error.os_errno;
  facts_.failed_what = error.what;
}

void JobStory::tell_restart(const JobCore& job) const {
  tell(facts_.workers, "restarting all workers", job);
}

void JobStory::tell_loss(const WorkerEnd& end, const std::string& what_next,
                         const JobCore& job) const {
  tell({end}, what_next, job);
}

void JobStory::tell(std::vector<WorkerEnd> ends, const std::string& what_next,
                    const JobCore& job) const {
  JobFacts facts = facts_;
  facts.end = JobEnding::worker_failed;
  facts.ended = steady_now();
  facts.workers = std::move(ends);
  const auto lines = render_text(facts, judge(facts), false);
  log_warn("{}; {}: round {}, {} of {} restarts used",
           lines.empty() ? "a worker failed" : lines.front(), what_next, job.round(),
           job.restarts_used(), format_restart_limit(facts_.max_restarts));
}

JobStory::Ending JobStory::finish(const JobCore::Finish& how, const JobCore& job,
                                  std::vector<int> left, const ShownLast& shown_last) {
  if (facts_.end != JobEnding::setup_failed) facts_.end = how.end;
  facts_.signal_received = how.signal;
  facts_.restarts_used = job.restarts_used();
  if (plan_.max_restarts.restarts > 0) facts_.why_no_restart = how.why;
  facts_.given_up = how.given_up;
  facts_.corrupt = how.corrupt;
  if (how.end == JobEnding::worker_failed || how.end == JobEnding::given_up) {
    facts_.ended_by = how.ended_by;
  } else if (how.end == JobEnding::timed_out) {
    facts_.ended_by = "--timeout";
  }
  facts_.ended = steady_now();
  facts_.still_running = std::move(left);
  const Verdict verdict = judge(facts_);
  if (!plan_.error_file.empty()) {
    write_report("--error-file", plan_.error_file, render_json(facts_, verdict) + "\n");
  }
  if (!plan_.run_dir.empty()) write_flight_dumps(plan_.run_dir + "/flight_dumps");
  return {verdict.exit_code, render_text(facts_, verdict, plan_.output.color, shown_last)};
}

void JobStory::write_flight_dumps(const std::string& folder) const {
  remove_flight_dumps(folder);
  if (facts_.nproc > kMostFlightDumps) return;
  const auto dumps = flight_dumps(facts_.workers, facts_.nproc);
  if (dumps.empty()) return;
  std::error_code error;  // writing shows it
  std::filesystem::create_directory(folder, error);
  for (const auto& [rank, dump] : dumps) {
    write_report("--run-dir", fmt::format("{}/rank_{}", folder, rank), dump);
  }
}

}  // namespace dlaunch
