#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/rank_set.h"
#include "base/units.h"
#include "launcher/report.h"

namespace dlaunch {
namespace {

constexpr std::size_t kShownTail = 10;
constexpr std::size_t kShownTraceback = 14;
constexpr std::size_t kMaxColumns = 400;

using Lines = std::vector<std::string>;

std::string how_it_ended(const WorkerEnd& worker) {
  if (worker.signal == 0) return fmt::format("exit code {}", worker.exit_code);
  return fmt::format("killed by {}{}", describe_signal(worker.signal),
                     worker.core_dumped ? ", core dumped" : "");
}

std::string who(const JobFacts& facts, const WorkerEnd& worker) {
  return fmt::format("rank {} (pid {} on {})", worker.rank, worker.pid, facts.host);
}

Lines split(const std::string& text) {
  Lines lines;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// The last lines, indented; what stands before them is counted.
void quote(Lines& out, const Lines& quoted, std::size_t most) {
  const std::size_t from = quoted.size() > most ? quoted.size() - most : 0;
  if (from > 0) out.push_back(fmt::format("    … {} earlier lines", from));
  for (std::size_t i = from; i < quoted.size(); ++i) {
    out.push_back("    " + quoted[i].substr(0, kMaxColumns));
  }
}

// What a TORCHELASTIC_ERROR_FILE says: {"message": {"message": …, "extraInfo": {"py_callstack":
// …}}} or {"message": "…"}. Empty where it is neither.
Lines python_traceback(const std::string& file) {
  const auto json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object() || !json.contains("message")) return {};
  const auto& message = json["message"];
  if (message.is_string()) return split(message.get<std::string>());
  if (!message.is_object()) return {};
  const auto extra = message.value("extraInfo", nlohmann::json::object());
  Lines lines;
  if (extra.is_object() && extra.contains("py_callstack") && extra["py_callstack"].is_string()) {
    lines = split(extra["py_callstack"].get<std::string>());
  }
  const auto text = message.contains("message") && message["message"].is_string()
                        ? message["message"].get<std::string>()
                        : "";
  if (lines.empty()) lines = split(text);
  return lines;
}

RankSet ranks_of(const JobFacts& facts, const std::vector<std::size_t>& indices) {
  RankSet ranks;
  for (const auto i : indices) ranks.insert(facts.workers[i].rank);
  return ranks;
}

std::string rank_words(const RankSet& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + format_rank_set(ranks);
}

void add_evidence(Lines& out, const WorkerEnd& root) {
  if (root.oom_evidence) {
    out.push_back("  out of memory: " + root.oom_text +
                  "; give the job more memory or start fewer workers");
  } else if (root.signal == SIGKILL) {
    out.push_back(
        "  nothing here sent this SIGKILL: a person, a supervisor, or the kernel for lack "
        "of memory (see dmesg)");
  }
  const Lines traceback = python_traceback(root.error_file);
  if (!traceback.empty()) {
    out.push_back("  its error:");
    quote(out, traceback, kShownTraceback);
  } else if (!root.stderr_tail.empty()) {
    out.push_back("  last lines of its stderr:");
    quote(out, root.stderr_tail, kShownTail);
  }
}

// What became of the others because of the first.
void add_others(Lines& out, const JobFacts& facts, const Verdict& verdict, const WorkerEnd* root) {
  constexpr std::size_t kNamed = 5;
  std::size_t named = 0;
  for (const auto i : verdict.own_failures) {
    const auto& worker = facts.workers[i];
    if (++named > kNamed) {
      out.push_back(
          fmt::format("  and {} more failed later", verdict.own_failures.size() - kNamed));
      break;
    }
    const auto later = root == nullptr ? Duration(0) : worker.ended - root->ended;
    out.push_back(fmt::format("  {} later: rank {} (pid {}): {}", format_duration(later),
                              worker.rank, worker.pid, how_it_ended(worker)));
  }
  if (!verdict.consequences.empty()) {
    const RankSet ranks = ranks_of(facts, verdict.consequences);
    out.push_back(
        fmt::format("  in consequence: {} lost the connection to a peer", rank_words(ranks)));
  }
  if (verdict.stopped.empty()) return;
  std::size_t killed = 0;
  int sent = SIGTERM;
  for (const auto i : verdict.stopped) {
    killed += facts.workers[i].signal == SIGKILL;
    if (facts.workers[i].signal_we_sent != SIGKILL) sent = facts.workers[i].signal_we_sent;
  }
  std::string line = fmt::format(
      "  stopped: {} got {}", rank_words(ranks_of(facts, verdict.stopped)), describe_signal(sent));
  if (killed > 0) {
    line += fmt::format("; {} had to be killed after the grace of {}", killed,
                        format_duration(facts.grace));
  }
  out.push_back(line);
}

std::string since_start(const JobFacts& facts, TimePoint at) {
  return format_duration(at - facts.started);
}

std::string headline(const JobFacts& facts, const WorkerEnd* root) {
  switch (facts.end) {
    case JobEnd::worker_failed:
      if (root == nullptr) return "a worker failed";
      if (root->peer_lost >= 0 && root->signal == 0) {
        return fmt::format("rank {} left early, before the others were done; {} noticed first: {}",
                           root->peer_lost, who(facts, *root), how_it_ended(*root));
      }
      return fmt::format("{} failed first: {} after {}", who(facts, *root), how_it_ended(*root),
                         format_duration(root->ended - root->started));
    case JobEnd::spawn_failed:
      return fmt::format("local rank {} could not be started: {}", facts.failed_local_rank,
                         facts.failed_what);
    case JobEnd::setup_failed:
      return facts.failed_what;
    case JobEnd::interrupted:
      return fmt::format("ended by {} after {}", describe_signal(facts.signal_received),
                         since_start(facts, facts.ended));
    case JobEnd::timed_out:
      return fmt::format("the job's --timeout passed: stopped after {}",
                         since_start(facts, facts.ended));
    case JobEnd::succeeded:
      break;
  }
  return "";
}

}  // namespace

std::string describe_signal(int signal) {
  const char* name = ::sigabbrev_np(signal);
  const char* text = ::sigdescr_np(signal);
  if (name == nullptr) return fmt::format("signal {}", signal);
  std::string meaning = text != nullptr ? text : "";
  if (!meaning.empty())
    meaning[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(meaning[0])));
  return fmt::format("SIG{} ({})", name, meaning);
}

std::vector<std::string> render_text(const JobFacts& facts, const Verdict& verdict, bool color) {
  if (facts.end == JobEnd::succeeded) return {};
  const WorkerEnd* root = verdict.root ? &facts.workers[*verdict.root] : nullptr;
  Lines out = {headline(facts, root)};
  if (color) out[0] = "\x1b[1;31m" + out[0] + "\x1b[0m";
  if (root != nullptr) add_evidence(out, *root);
  add_others(out, facts, verdict, root);
  if (!facts.still_running.empty()) {
    const RankSet ranks(facts.still_running.begin(), facts.still_running.end());
    out.push_back(fmt::format("  {} did not die of SIGKILL (an uninterruptible sleep); left behind",
                              rank_words(ranks)));
  }
  if (facts.end == JobEnd::worker_failed && facts.max_restarts > 0) {
    out.push_back(
        fmt::format("  restarts used: {} of {}", facts.restarts_used, facts.max_restarts));
  }
  return out;
}

}  // namespace dlaunch
