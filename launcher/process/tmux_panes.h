// TmuxPanes: a pane of tmux for each rank (--tmux). Inside tmux they are in new windows of its
// session, else in a new session. A pane is there until this process and its children have ended;
// then it waits for Enter if somebody sees it. Blocks for some milliseconds for each rank.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

class TmuxPanes {
 public:
  static constexpr int kInWindow = 16;  // panes

  // folder: the job's. Errc::not_found: there is no tmux.
  static Result<TmuxPanes> open(const std::string& folder, const std::string& job_id, int ranks);

  // By rank: the path of the pane's terminal.
  const std::vector<std::string>& terminals() const { return terminals_; }
  // The TERM of programs in it.
  const std::string& term() const { return term_; }
  // How the user gets to them, in words.
  const std::string& where() const { return where_; }

 private:
  UniqueFd held_;  // children inherit it, and the programs in the panes wait for its end
  std::vector<std::string> terminals_;
  std::string term_, where_;
};

}  // namespace dlaunch
