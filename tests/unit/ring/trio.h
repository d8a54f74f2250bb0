// Control links of three ranks in one process, over socket pairs.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ring/links/links.h"

namespace dlaunch {

struct LinkedRank {
  AbortFlag flag;
  std::promise<void> promise;
  std::shared_future<void> raised = promise.get_future().share();
  std::unique_ptr<Links> links;

  LinkedRank() {
    flag.on_raise([this] { promise.set_value(); });
  }
  Error error() {
    REQUIRE(raised.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
    return flag.error();
  }
};

// Ranks whose links are socket pairs. The link of a rank that is not started can be taken.
class Trio {
 public:
  explicit Trio(int started = 3) {
    for (int a = 0; a < 3; ++a) {
      for (int b = a + 1; b < 3; ++b) {
        int fds[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
        ends_[a][b].reset(fds[0]);
        ends_[b][a].reset(fds[1]);
      }
    }
    for (int r = 0; r < started; ++r) start(r);
  }
  LinkedRank& operator[](int r) { return ranks_[r]; }
  UniqueFd& end(int of, int to) { return ends_[of][to]; }
  // As the kernel does it for a process that is killed.
  void kill(int unstarted) {
    for (auto& fd : ends_[unstarted]) fd.reset();
  }
  void leave(int r) { ranks_[r].links.reset(); }

 private:
  void start(int r) {
    std::vector<Links::Peer> peers;
    for (int p = 0; p < 3; ++p) {
      peers.push_back({"rank " + std::to_string(p), std::move(ends_[r][p])});
    }
    auto links = Links::start(r, std::move(peers), ranks_[r].flag);
    REQUIRE(links);
    ranks_[r].links = std::move(*links);
  }

  UniqueFd ends_[3][3];
  LinkedRank ranks_[3];
};

}  // namespace dlaunch
