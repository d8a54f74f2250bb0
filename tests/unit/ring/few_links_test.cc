// Ranks with few links: what is for all reaches all, and other pairs connect at their first frame.
#include "few_links.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/socket.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

constexpr int kFewRanks = 13;  // 0 has no link with 3, 6, 7 and 10

CallSignature few_call(std::uint64_t seq) {
  return signature_of({.collective = Collective::all_reduce, .count = 5, .root = -1, .seq = seq},
                      kFewRanks);
}

template <class Done>
bool comes_true(Done done) {
  const auto until = steady_now() + 30s;
  while (!done() && steady_now() < until) std::this_thread::sleep_for(1ms);
  return done();
}

// Sends the greeting of `rank`, with this token, to the listener of the contact.
UniqueFd greet(const Contact& to, std::int32_t rank, const unsigned char* token) {
  auto fd = connect_unix(listener_name({to.listener, sizeof to.listener}));
  REQUIRE(fd);
  std::string bytes(reinterpret_cast<const char*>(&rank), sizeof rank);
  bytes.append(reinterpret_cast<const char*>(token), sizeof to.token);
  REQUIRE(::send(fd->get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return std::move(*fd);
}

// Gives the two links of ranks that have connected to each other at the same moment.
class TwoLinks final : public LateSource {
 public:
  TwoLinks(int rank, UniqueFd first, UniqueFd second)
      : come_(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)) {
    made_.emplace_back(rank, std::move(first));
    made_.emplace_back(rank, std::move(second));
  }

  int descriptor() const override { return come_.get(); }
  Result<UniqueFd> connect(int) override {
    return Error{.code = Errc::io, .what = "it is being connected", .os_errno = EAGAIN};
  }
  Made accept() override {
    eventfd_t count;
    ::eventfd_read(come_.get(), &count);
    return std::exchange(made_, {});
  }
  void close_in_child() override {}

 private:
  UniqueFd come_;
  Made made_;
};

// Rank 0 of six, and the other ends of its links: one with each neighbour, and two with rank 3.
class TwiceLinked {
 public:
  static constexpr int kRanks = 6;
  static constexpr int kTwice = 3;

  // tunnelled: as with TLS.
  explicit TwiceLinked(bool tunnelled) {
    const LinkGraph graph(kRanks, false);
    REQUIRE_FALSE(graph.linked(0, kTwice));
    std::vector<Links::Peer> peers;
    for (int r = 0; r < kRanks; ++r) {
      Links::Peer& peer = peers.emplace_back();
      peer.who = "rank " + std::to_string(r);
      if (graph.linked(0, r)) connect(peer.link, neighbours_.emplace_back());
    }
    UniqueFd own[2];
    connect(own[0], first);
    connect(own[1], second);
    for (const UniqueFd& fd : own) {
      if (tunnelled) carried_.push_back(carried_by(fd.get(), neighbours_.front().get()));
    }
    auto links = Links::start_few(
        0, std::move(peers),
        {graph, std::make_unique<TwoLinks>(kTwice, std::move(own[0]), std::move(own[1]))},
        rank.flag, Duration::zero(), nullptr, nullptr);
    REQUIRE(links);
    rank.links = std::move(*links);
    REQUIRE(comes_true([&] { return linked(); }));
  }
  ~TwiceLinked() {
    rank.links.reset();
    for (const std::uint64_t key : carried_) carried_no_more(key);
  }
  TwiceLinked(const TwiceLinked&) = delete;
  TwiceLinked& operator=(const TwiceLinked&) = delete;

  bool linked() { return rank.links->trunk()->has_link(kTwice); }

 private:
  static void connect(UniqueFd& one, UniqueFd& other) {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    one.reset(fds[0]);
    other.reset(fds[1]);
  }

  std::vector<UniqueFd> neighbours_;
  std::vector<std::uint64_t> carried_;

 public:
  UniqueFd first, second;  // of rank 3
  LinkedRank rank;
};

}  // namespace

TEST_CASE("few links: all learn of a lost rank, in the same words") {
  FewLinks world(kFewRanks, 5);
  world.kill(5);
  for (int r = 0; r < kFewRanks; ++r) {
    if (r == 5) continue;
    CHECK(world[r].error().rank == 5);
    CHECK(world[r].error().what == "rank 5 was lost: its connection ended");
  }
}

TEST_CASE("few links: an abort reaches all, and means the loss of its rank") {
  FewLinks world(kFewRanks);
  world[9].links->abort({.code = Errc::aborted, .what = "stop"});
  for (int r = 0; r < kFewRanks; ++r) {
    CHECK(world[r].error().code == (r == 9 ? Errc::aborted : Errc::peer_lost));
    if (r != 9) CHECK(world[r].error().what == "rank 9 aborted: stop");
  }
}

TEST_CASE("few links: all may leave in any order, without an error") {
  for (int first = 0; first < kFewRanks; ++first) {
    FewLinks world(kFewRanks);
    for (int r = 0; r < kFewRanks; ++r) {
      world[r].links->enter(1, few_call(1));
      world[r].links->complete(1);
    }
    for (int i = 0; i < kFewRanks; ++i) {
      const int leaves = (first + i * 5) % kFewRanks;
      world.leave(leaves);
      for (int r = 0; r < kFewRanks; ++r) {
        if (world[r].links) CHECK(comes_true([&] { return world[r].links->has_left(leaves); }));
      }
    }
    for (int r = 0; r < kFewRanks; ++r) CHECK_FALSE(world[r].flag.raised());
  }
}

TEST_CASE("few links: a rank that needs one that has left gets an error, and passes it on") {
  FewLinks world(kFewRanks);
  world.leave(6);
  CHECK(comes_true([&] { return world[0].links->has_left(6); }));
  world[0].links->enter(1, few_call(1));
  for (int r = 0; r < kFewRanks; ++r) {
    if (r != 6) CHECK(world[r].error().what == "rank 6 has left after collective #0; #1 needs it");
  }
}

TEST_CASE("few links: a roll call finds the ranks outside and the one that stands still") {
  FewLinks world(kFewRanks, 7);  // its neighbours wait for it in vain, and others lie behind it
  for (int r = 0; r < kFewRanks; ++r) {
    if (r != 7 && r != 3) world[r].links->enter(1, few_call(1));
  }
  // All ask at once, as they do when a time limit is over.
  std::vector<std::future<RollCall>> rolls;
  for (const int r : {0, 1, 2, 12}) {
    rolls.push_back(std::async(std::launch::async, [&world, r] {
      RollCall roll;
      // On a busy machine a rank sometimes does not answer in time. It answers a later roll call.
      for (int i = 0; i < 20 && roll.silent != RankSet{7}; ++i) {
        roll = world[r].links->call_roll(1);
      }
      return roll;
    }));
  }
  for (auto& roll : rolls) {
    const RollCall found = roll.get();
    CHECK(found.silent == RankSet{7});
    CHECK(found.outside == RankSet{3});
    CHECK(found.behind.empty());
  }
  // A later one has new answers.
  world[3].links->enter(1, few_call(1));
  CHECK(comes_true([&] { return world[0].links->call_roll(1).outside.empty(); }));
}

TEST_CASE("few links: ranks that wait in different calls learn it from each other") {
  FewLinks world(kFewRanks);
  for (int r = 0; r < kFewRanks; ++r) {
    CallSignature own = few_call(1);
    if (r == 10) own.count = 6;
    world[r].links->enter(1, own);
  }
  for (int r = 0; r < kFewRanks; ++r) CHECK(world[r].error().code == Errc::mismatch);
}

TEST_CASE("few links: the loss of a rank is seen also after its neighbours have left") {
  FewLinks world(kFewRanks);
  const int loses = 0, lost = 6;  // without a link
  // All but rank 6 have done the call, so it needs none of those that leave.
  for (int r = 0; r < kFewRanks; ++r) {
    world[r].links->enter(1, few_call(1));
    if (r != lost) world[r].links->complete(1);
  }
  for (int r = 0; r < kFewRanks; ++r) {
    if (r != loses && r != lost) world.leave(r);
  }
  // The two connect, and rank 6 ends in the middle of the call.
  CHECK(comes_true([&] { return !world[loses].links->call_roll(1).silent.contains(lost); }));
  world.leave(lost);
  CHECK(world[loses].error().rank == lost);
}

TEST_CASE("few links: a group meets on links that it makes") {
  FewLinks world(kFewRanks);
  const std::vector<int> members{0, 3, 7, 10};
  std::vector<AbortFlag> flags(members.size());
  std::vector<std::unique_ptr<Links>> group(members.size());
  for (std::size_t i = 0; i < members.size(); ++i)
    group[i] = world.open(members[i], members, flags[i]);
  const auto meet = [&](std::size_t i) {
    return std::async(std::launch::async, [&, i] {
      RankSet missing;
      group[i]->join();
      return bool(group[i]->await_all(steady_now() + 30s, nullptr, missing));
    });
  };
  SUBCASE("all at the same moment") {
    std::vector<std::future<bool>> met;
    for (std::size_t i = 0; i < members.size(); ++i) met.push_back(meet(i));
    for (auto& one : met) CHECK(one.get());
    // In both directions, and in the order in which they were passed.
    for (const auto& [from, to] : {std::pair(0, 1), {1, 0}, {2, 0}, {0, 3}, {3, 1}}) {
      int ends[2];
      REQUIRE(::pipe(ends) == 0);
      const UniqueFd read(ends[0]), write(ends[1]);
      group[static_cast<std::size_t>(from)]->pass(to, Passed::region, read.get());
      group[static_cast<std::size_t>(from)]->pass(to, Passed::region, -1);
      auto first =
          group[static_cast<std::size_t>(to)]->take(from, Passed::region, steady_now() + 30s);
      auto second =
          group[static_cast<std::size_t>(to)]->take(from, Passed::region, steady_now() + 30s);
      REQUIRE(first);
      REQUIRE(second);
      CHECK(*first);
      CHECK_FALSE(*second);
    }
  }
  SUBCASE("the end of a member is the group's, also after all others have left") {
    std::vector<std::future<bool>> met;
    for (std::size_t i = 0; i < members.size(); ++i) met.push_back(meet(i));
    for (auto& one : met) CHECK(one.get());
    for (int r = 0; r < kFewRanks; ++r) world.leave(r);
    group[2]->enter(1, few_call(1));
    group[2].reset();
    for (const std::size_t i : {0, 1, 3}) CHECK(comes_true([&] { return flags[i].raised(); }));
    CHECK(flags[0].error().what.starts_with("rank 7 was lost: it ended in the middle"));
  }
}

TEST_CASE("few links: a rank that ended before anyone connected to it is lost") {
  FewLinks world(kFewRanks, 6);
  const std::vector<int> members{0, 6};
  AbortFlag flag;
  const auto group = world.open(0, members, flag);
  world.kill(6);
  group->join();
  CHECK(comes_true([&] { return flag.raised(); }));
  CHECK(flag.error().rank == 1);
}

TEST_CASE("few links: a goodbye on one of two links counts after the end of the other") {
  for (const bool tunnelled : {false, true}) {
    CAPTURE(tunnelled);
    TwiceLinked world(tunnelled);
    constexpr int kLeaves = TwiceLinked::kTwice;
    const std::string goodbye = encode({.type = LinkFrame::Type::goodbye,
                                        .rank = kLeaves,
                                        .text = "",
                                        .origin = kLeaves,
                                        .number = 1});
    world.first.reset();
    CHECK(comes_true([&] { return !world.linked(); }));
    std::this_thread::sleep_for(50ms);  // all that follows the end of one link is over by then
    REQUIRE(::send(world.second.get(), goodbye.data(), goodbye.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(goodbye.size()));
    world.second.reset();
    const auto left = [&] { return world.rank.links->has_left(kLeaves); };
    CHECK(comes_true([&] { return left() || world.rank.flag.raised(); }));
    CHECK(left());
    std::this_thread::sleep_for(1700ms);  // a rank without a goodbye would be lost by then
    CHECK_FALSE(world.rank.flag.raised());
  }
}

TEST_CASE("few links: a rank with two links is lost when both end") {
  for (const bool tunnelled : {false, true}) {
    CAPTURE(tunnelled);
    TwiceLinked world(tunnelled);
    world.first.reset();
    world.second.reset();
    CHECK(world.rank.error().rank == TwiceLinked::kTwice);
    CHECK(world.rank.error().what == "rank 3 was lost: its connection ended");
  }
}

TEST_CASE("late links: only a rank that knows the token gets in") {
  ContactsInHeap heap(3);
  auto links = LateLinks::open(0, std::move(heap.listeners[0]), heap.contacts());
  REQUIRE(links);
  const Contact& own = heap.all[0];
  const auto wrong = greet(own, 1, heap.all[1].token);
  const auto nobody = greet(own, 3, own.token), self = greet(own, 0, own.token);
  const auto negative = greet(own, -1, own.token);
  auto silent = connect_unix(listener_name({own.listener, sizeof own.listener}));
  REQUIRE(silent);
  CHECK((*links)->accept().empty());
  for (const auto* fd : {&wrong, &nobody, &self, &negative}) {
    char byte;
    CHECK(::recv(fd->get(), &byte, 1, MSG_DONTWAIT) == 0);
  }
  // Part of a greeting does not count, and does not delay others.
  REQUIRE(::send(silent->get(), "\2", 1, 0) == 1);
  const auto right = greet(own, 2, own.token);
  auto made = (*links)->accept();
  REQUIRE(made.size() == 1);
  CHECK(made[0].first == 2);
  // What follows the greeting stays in the socket.
  REQUIRE(::send(right.get(), "x", 1, 0) == 1);
  char byte = 0;
  CHECK(::recv(made[0].second.get(), &byte, 1, 0) == 1);
  CHECK(byte == 'x');
}

TEST_CASE("late links: a crowd of strangers does not keep a rank out") {
  ContactsInHeap heap(2);
  auto links = LateLinks::open(0, std::move(heap.listeners[0]), heap.contacts());
  REQUIRE(links);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 300; ++i) {
    auto fd = connect_unix(listener_name({heap.all[0].listener, kListenerHex}));
    REQUIRE(fd);
    strangers.push_back(std::move(*fd));
  }
  const auto right = greet(heap.all[0], 1, heap.all[0].token);
  CHECK((*links)->accept().size() == 1);
}

TEST_CASE("late links: all ranks that connect at the same moment get in") {
  constexpr int kMany = 300;
  ContactsInHeap heap(2);
  auto& own = heap.all[0];
  Contacts contacts = heap.contacts();
  contacts.of.resize(kMany, &heap.all[1]);
  auto links = LateLinks::open(0, std::move(heap.listeners[0]), contacts);
  REQUIRE(links);
  std::vector<UniqueFd> ends;
  for (int rank = 1; rank < kMany; ++rank) ends.push_back(greet(own, rank, own.token));
  CHECK((*links)->accept().size() == kMany - 1);
}

TEST_CASE("late links: a rank whose process has ended refuses") {
  ContactsInHeap heap(2);
  auto links = LateLinks::open(0, std::move(heap.listeners[0]), heap.contacts());
  REQUIRE(links);
  heap.listeners[1].reset();
  const auto link = (*links)->connect(1);
  REQUIRE_FALSE(link);
  CHECK(link.error().os_errno == ECONNREFUSED);
}
