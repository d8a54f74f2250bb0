// Ranks in one process whose links, over socket pairs, lead to their neighbours only; the others
// connect when they need to.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/secret.h"
#include "ring/links/late_links.h"
#include "ring/links/listener.h"
#include "trio.h"

namespace dlaunch {

// A listening socket and a token for each rank.
struct ContactsInHeap {
  explicit ContactsInHeap(int ranks) : all(static_cast<std::size_t>(ranks)) {
    for (Contact& contact : all) {
      auto listener = Listener::open("127.0.0.1", true);
      REQUIRE(listener);
      const std::string hex = listener->unix_name().substr(listener_name("").size());
      const auto token = random_bytes(sizeof contact.token);
      REQUIRE(token);
      contact.pid = static_cast<std::uint32_t>(::getpid());
      std::copy(hex.begin(), hex.end(), contact.listener);
      std::copy(token->begin(), token->end(), contact.token);
      listeners.push_back(listener->take_unix());
    }
  }
  Contacts contacts() {
    Contacts shown;
    for (Contact& contact : all) shown.of.push_back(&contact);
    return shown;
  }

  std::vector<Contact> all;
  std::vector<UniqueFd> listeners;
};

class FewLinks {
 public:
  // `unstarted`: nobody reads the links of this rank.
  explicit FewLinks(int ranks, int unstarted = -1)
      : graph_(ranks, false), heap_(ranks), ends_(static_cast<std::size_t>(ranks)) {
    for (auto& ends : ends_) ends.resize(static_cast<std::size_t>(ranks));
    for (int a = 0; a < ranks; ++a) {
      for (const int b : graph_.neighbours(a)) {
        if (b < a) continue;
        int fds[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
        end(a, b).reset(fds[0]);
        end(b, a).reset(fds[1]);
      }
    }
    for (int r = 0; r < ranks; ++r) {
      ranks_.push_back(std::make_unique<LinkedRank>());
      if (r != unstarted) start(r);
    }
  }
  int size() const { return graph_.ranks(); }
  const LinkGraph& graph() const { return graph_; }
  LinkedRank& operator[](int r) { return *ranks_[static_cast<std::size_t>(r)]; }
  void leave(int r) { (*this)[r].links.reset(); }
  // As the kernel does it for a process that is killed.
  void kill(int unstarted) {
    heap_.listeners[static_cast<std::size_t>(unstarted)].reset();
    for (auto& fd : ends_[static_cast<std::size_t>(unstarted)]) fd.reset();
  }
  // A group of these ranks on the links of all.
  std::unique_ptr<Links> open(int rank, const std::vector<int>& members, AbortFlag& flag) {
    const auto own = std::find(members.begin(), members.end(), rank) - members.begin();
    return Links::open((*this)[rank].links->trunk(), 77, static_cast<int>(own), members, flag,
                       nullptr);
  }

 private:
  UniqueFd& end(int of, int to) {
    return ends_[static_cast<std::size_t>(of)][static_cast<std::size_t>(to)];
  }
  void start(int r) {
    std::vector<Links::Peer> peers;
    for (int p = 0; p < size(); ++p) {
      peers.push_back({"rank " + std::to_string(p), std::move(end(r, p))});
    }
    auto late = LateLinks::open(r, std::move(heap_.listeners[static_cast<std::size_t>(r)]),
                                heap_.contacts());
    REQUIRE(late);
    auto links = Links::start_few(r, std::move(peers), {graph_, std::move(*late)}, (*this)[r].flag,
                                  Duration::zero(), nullptr, nullptr);
    REQUIRE(links);
    (*this)[r].links = std::move(*links);
  }

  const LinkGraph graph_;
  ContactsInHeap heap_;
  std::vector<std::vector<UniqueFd>> ends_;
  std::vector<std::unique_ptr<LinkedRank>> ranks_;
};

}  // namespace dlaunch
