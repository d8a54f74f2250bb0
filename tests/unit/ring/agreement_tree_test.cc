#include "ring/links/agreement_tree.h"

#include <sys/socket.h>

#include <future>
#include <vector>

#include <doctest/doctest.h>

#include "ring/links/link_graph.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Answer = LinkMessage::Answer;

// The links of ranks in one process.
std::vector<Mesh> meshes(int ranks) {
  const LinkGraph graph(ranks, false);
  std::vector<Mesh> all(static_cast<std::size_t>(ranks));
  for (auto& mesh : all) mesh.peers.resize(static_cast<std::size_t>(ranks));
  const auto peer = [&](int of, int to) -> Peer& {
    return all[static_cast<std::size_t>(of)].peers[static_cast<std::size_t>(to)];
  };
  for (int a = 0; a < ranks; ++a) {
    for (int b = 0; b < ranks; ++b) peer(a, b).who = "rank " + std::to_string(b);
    for (const int b : graph.neighbours(a)) {
      if (b < a) continue;
      int fds[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
      peer(a, b).link.reset(fds[0]);
      peer(b, a).link.reset(fds[1]);
    }
  }
  return all;
}

LinkMessage answering(Answer answer, int cores) {
  LinkMessage own{.answer = answer, .error = {}};
  own.cores = cores;
  return own;
}

// What each rank gets in `rounds` agreements; `silent` takes no part, -1: all do.
std::vector<std::future<LinkMessage>> agree(const std::vector<Mesh>& all, int silent,
                                            TimePoint deadline, int rounds) {
  std::vector<std::future<LinkMessage>> verdicts;
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
    if (rank == silent) continue;
    verdicts.push_back(std::async(std::launch::async, [&all, rank, deadline, rounds] {
      AgreementTree tree(rank, all[static_cast<std::size_t>(rank)], deadline);
      LinkMessage verdict;
      for (int round = 0; round < rounds && verdict.answer != Answer::failed; ++round) {
        verdict = tree.agree(answering(Answer::yes, rank + 1), [](LinkMessage heard) {
          heard.cores += 100;  // the fewest, and the mark of rank 0
          return heard;
        });
      }
      return verdict;
    }));
  }
  return verdicts;
}

}  // namespace

TEST_CASE("agreement tree: rank 0 decides on what all say, and all get its verdict") {
  for (const int ranks : {6, 13, 40}) {
    CAPTURE(ranks);
    const auto all = meshes(ranks);
    for (auto& verdict : agree(all, -1, steady_now() + 20s, 3)) {
      const LinkMessage got = verdict.get();
      CHECK(got.answer == Answer::yes);
      CHECK(got.cores == 101);
    }
  }
}

TEST_CASE("agreement tree: all name the rank that stands still, wherever it is in the tree") {
  for (const int silent : {0, 1, 4, 7, 8, 12}) {
    CAPTURE(silent);
    // A rank that does not run for 300 ms is taken for the missing one: such a try does not count.
    int others = -1;  // that are named instead
    for (int i = 0; i < 20 && others != 0; ++i) {
      others = 0;
      const auto all = meshes(13);
      for (auto& verdict : agree(all, silent, steady_now() + 1s, 1)) {
        const LinkMessage got = verdict.get();
        CHECK(got.answer == Answer::failed);
        CHECK(got.error.code == Errc::timeout);
        others += got.error.rank != silent;
      }
    }
    CHECK(others == 0);
  }
}

TEST_CASE("agreement tree: all name the rank that ended") {
  for (const int ended : {0, 1, 4, 7, 8, 12}) {
    CAPTURE(ended);
    auto all = meshes(13);
    for (auto& peer : all[static_cast<std::size_t>(ended)].peers) peer.link.reset();
    for (auto& verdict : agree(all, ended, steady_now() + 20s, 1)) {
      const LinkMessage got = verdict.get();
      CHECK(got.answer == Answer::failed);
      CHECK(got.error.rank == ended);
    }
  }
}
