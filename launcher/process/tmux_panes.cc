#include "launcher/process/tmux_panes.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "base/exit_code.h"
#include "base/text.h"
#include "launcher/process/command.h"

namespace dlaunch {
namespace {

using Words = std::vector<std::string>;

constexpr Duration kLimit = std::chrono::seconds(10);

// What runs in a pane. Its keys are for the rank, so it ignores their signals.
constexpr const char* kHolder = R"sh(trap "" INT QUIT TSTP
cat -- "$1" >/dev/null 2>&1
[ "$(tmux display-message -p -t "$TMUX_PANE" "#{session_attached}" 2>/dev/null)" != 0 ] || exit 0
printf '\n[%s: dlaunch has ended; Enter closes this pane] ' "$2"
read -r line)sh";

Result<std::string> tmux(const Words& words) {
  Command::Request request{.argv = {"/usr/bin/env", "tmux"},
                           .env = own_environment(),
                           .keep_errors = true,
                           .limit = kLimit};
  request.argv.insert(request.argv.end(), words.begin(), words.end());
  auto end = run_command(request);
  if (!end) return end.error();
  while (end->text.ends_with('\n')) end->text.pop_back();
  if (end->status == kExitNotFound) {
    return Error{.code = Errc::not_found, .what = "--tmux: there is no tmux in PATH"};
  }
  const std::string failed = describe(*end, kLimit);
  if (!failed.empty()) {
    return Error{.what =
                     fmt::format("--tmux: 'tmux {}' {}: {}", words[0], failed, escaped(end->text))};
  }
  return std::move(end->text);
}

// tmux gives "." and ":" a meaning.
std::string session_name(const std::string& job_id) {
  std::string name = "dlaunch-" + job_id;
  for (char& c : name) {
    if (c == '.' || c == ':') c = '_';
  }
  return name;
}

struct Pane {
  std::string id, terminal;
};

// Makes a pane by the command's words, and gives it its title.
Result<Pane> make_pane(Words words, const std::string& fifo, int rank) {
  const std::string title = fmt::format("rank {}", rank);
  words.insert(words.end(),
               {"-P", "-F", "#{pane_id} #{pane_tty}", "sh", "-c", kHolder, "sh", fifo, title});
  auto made = tmux(words);
  if (!made) return made.error();
  const auto parts = split_words(*made, ' ');
  if (parts.size() != 2 || !parts[1].starts_with('/')) {
    return Error{.what = "--tmux: tmux names a pane as '" + escaped(*made) + "'"};
  }
  Pane pane{std::string(parts[0]), std::string(parts[1])};
  // Titles are a decoration, which an old tmux lacks.
  (void)tmux({"select-pane", "-t", pane.id, "-T", title, ";", "set-option", "-w", "-t", pane.id,
              "pane-border-status", "top", ";", "set-option", "-w", "-t", pane.id,
              "pane-border-format", " #{pane_title} "});
  return pane;
}

}  // namespace

Result<TmuxPanes> TmuxPanes::open(const std::string& folder, const std::string& job_id, int ranks) {
  TmuxPanes panes;
  const std::string fifo = folder + "/panes";
  if (::mkfifo(fifo.c_str(), 0600) != 0) return errno_error("make " + fifo, errno);
  panes.held_.reset(::open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  if (!panes.held_) return errno_error("open " + fifo, errno);
  const char* const outer = ::getenv("TMUX");
  const bool inside = outer != nullptr && *outer != '\0';
  const std::string session = session_name(job_id);
  std::string last;  // pane
  for (int rank = 0; rank < ranks; ++rank) {
    Words words = {"split-window", "-d", "-t", last};
    if (rank == 0 && !inside) {
      words = {"new-session", "-d", "-s", session, "-x", "200", "-y", "50"};
    } else if (rank % kInWindow == 0) {
      words = {"new-window", "-d"};
      if (!inside) words.insert(words.end(), {"-t", session + ":"});
    }
    if (rank % kInWindow == 0) {
      const int end = std::min(rank + kInWindow, ranks) - 1;
      words.insert(words.end(), {"-n", fmt::format("ranks {}-{}", rank, end)});
    }
    auto pane = make_pane(std::move(words), fifo, rank);
    if (!pane) return pane.error();
    last = pane->id;
    (void)tmux({"select-layout", "-t", last, "tiled"});  // makes room for the next one
    panes.terminals_.push_back(std::move(pane->terminal));
  }
  const auto term = tmux({"show-options", "-gv", "default-terminal"});
  panes.term_ = term && !term->empty() ? *term : "screen";
  panes.where_ = inside ? "each rank has a pane in a new window of tmux"
                        : fmt::format("each rank has a pane: 'tmux attach -t {}' shows them",
                                      shell_quoted(session));
  return panes;
}

}  // namespace dlaunch
