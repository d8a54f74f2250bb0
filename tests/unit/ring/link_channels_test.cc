// Several channels on one trunk: groups use the links of their parent.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <thread>

#include "base/clock.h"
#include "trio.h"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;

// A group of all three, or of the first two, in the order of the trio.
class GroupOfTrio {
 public:
  GroupOfTrio(Trio& trio, std::uint64_t id, int size = 3) : trio_(trio), id_(id), size_(size) {}
  LinkedRank& operator[](int r) { return ranks_[static_cast<std::size_t>(r)]; }
  LinkedRank& open(int r) {
    std::vector<int> members;
    for (int m = 0; m < size_; ++m) members.push_back(m);
    LinkedRank& rank = (*this)[r];
    rank.links =
        Links::open(trio_[r].links->trunk(), id_, r, std::move(members), rank.flag, nullptr);
    return rank;
  }
  void open_all() {
    for (int r = 0; r < size_; ++r) open(r).links->join();
  }
  Result<void> meets(int r, Duration patience = 20s) {
    return (*this)[r].links->await_all(steady_now() + patience, nullptr, missing);
  }
  RankSet missing;

 private:
  Trio& trio_;
  const std::uint64_t id_;
  const int size_;
  std::array<LinkedRank, 3> ranks_;
};

CallSignature group_call(std::uint64_t seq) {
  return signature_of({.collective = Collective::all_reduce, .count = 5, .root = -1, .seq = seq},
                      3);
}

// Whether this process may undo a lower hard limit: only root may, in most places.
bool may_raise_hard_limit() {
  rlimit before{};
  if (::getrlimit(RLIMIT_NOFILE, &before) != 0) return false;
  rlimit more = before;
  ++more.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &more) == 0 && ::setrlimit(RLIMIT_NOFILE, &before) == 0;
}

// While this object lives, this process cannot open another descriptor. hard: the library cannot
// raise the limit either.
class NoMoreDescriptors {
 public:
  explicit NoMoreDescriptors(bool hard = false) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const UniqueFd next(::eventfd(0, EFD_CLOEXEC));
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(next.get());
    if (hard) none.rlim_max = none.rlim_cur;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoMoreDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

void do_call(LinkedRank& rank, std::uint64_t seq) {
  rank.links->enter(seq, group_call(seq));
  rank.links->complete(seq);
}

// On a busy machine a rank sometimes does not answer within a second. It answers a later roll call.
bool everyone_answers(Links& links, std::uint64_t seq) {
  for (int i = 0; i < 20; ++i) {
    if (links.call_roll(seq).silent.empty()) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("link channels: later ranks of a bootstrap find the early ones") {
  Trio trio;
  GroupOfTrio group(trio, 7);
  group.open(0).links->join();
  const UniqueFd segment(::eventfd(42, EFD_CLOEXEC));
  group[0].links->pass(2, Passed::segment, segment.get());
  group.open(1).links->join();
  // On a busy machine rank 0 takes longer to hear of rank 1.
  const auto end = steady_now() + 20s;
  do {
    CHECK(group.meets(0, 50ms).error().code == Errc::timeout);
  } while (group.missing.contains(1) && steady_now() < end);
  CHECK(group.missing.contains(2));
  CHECK_FALSE(group.missing.contains(1));
  group.open(2).links->join();
  for (int r = 0; r < 3; ++r) CHECK(group.meets(r));
  auto come = group[2].links->take(0, Passed::segment, steady_now() + 20s);
  REQUIRE(come);
  eventfd_t value = 0;
  CHECK(::eventfd_read(come->get(), &value) == 0);
  CHECK(value == 42);
}

TEST_CASE("link channels: the end of a channel does not end another, nor the trunk") {
  Trio trio;
  GroupOfTrio one(trio, 7), other(trio, 8, 2);
  one.open_all();
  other.open_all();
  for (int r = 0; r < 3; ++r) CHECK(one.meets(r));
  do_call(other[0], 1);
  do_call(other[1], 1);
  one[1].links->abort({.code = Errc::aborted, .what = "dl_abort() was called on this rank"});
  for (const int r : {0, 2}) {
    CHECK(one[r].error().code == Errc::peer_lost);
    CHECK(one[r].error().rank == 1);
  }
  one[1].links.reset();
  do_call(other[0], 2);
  do_call(other[1], 2);
  CHECK(everyone_answers(*trio[0].links, 0));
  for (int r = 0; r < 3; ++r) CHECK_FALSE(trio[r].flag.raised());
  for (int r = 0; r < 2; ++r) CHECK_FALSE(other[r].flag.raised());
}

TEST_CASE(
    "link channels: one may be freed while others are busy, and come again under another name") {
  Trio trio;
  GroupOfTrio busy(trio, 1);
  busy.open_all();
  std::thread calls([&] {
    for (std::uint64_t seq = 1; seq <= 200; ++seq) {
      for (int r = 0; r < 3; ++r) do_call(busy[r], seq);
      CHECK(everyone_answers(*busy[0].links, seq));
    }
  });
  for (std::uint64_t id = 2; id < 102; ++id) {
    GroupOfTrio group(trio, id);
    group.open_all();
    for (int r = 0; r < 3; ++r) CHECK(group.meets(r));
    for (int r = 0; r < 3; ++r) do_call(group[r], 1);
    for (int r = 0; r < 3; ++r) group[r].links.reset();
    for (int r = 0; r < 3; ++r) CHECK_FALSE(group[r].flag.raised());
  }
  calls.join();
  for (int r = 0; r < 3; ++r) CHECK_FALSE(busy[r].flag.raised());
}

TEST_CASE(
    "link channels: who leaves in the middle of a collective is lost, though connections stay") {
  Trio trio;
  GroupOfTrio group(trio, 7);
  group.open_all();
  group[2].links->enter(1, group_call(1));
  group[2].links.reset();
  CHECK(group[0].error().code == Errc::peer_lost);
  CHECK(group[0].error().what == "rank 2 was lost: it ended in the middle of collective #1");
  CHECK_FALSE(trio[0].flag.raised());
}

TEST_CASE("link channels: a group outlives the communicator that it was made from") {
  Trio trio;
  GroupOfTrio group(trio, 7);
  group.open_all();
  for (int r = 0; r < 3; ++r) CHECK(group.meets(r));
  for (int r = 0; r < 3; ++r) trio.leave(r);
  for (int r = 0; r < 3; ++r) do_call(group[r], 1);
  CHECK(everyone_answers(*group[1].links, 1));
  group[2].links.reset();
  group[0].links->enter(2, group_call(2));
  CHECK(group[0].error().what == "rank 2 has left after collective #1; #2 needs it");
}

TEST_CASE("link channels: a rank that is lost ends a bootstrap, and one that begins later") {
  Trio trio(2);
  GroupOfTrio early(trio, 7), late(trio, 8), without(trio, 9, 2);
  early.open(0).links->join();
  std::thread killer([&] { trio.kill(2); });
  const auto met = early.meets(0);
  killer.join();
  REQUIRE_FALSE(met);
  CHECK(met.error().code == Errc::peer_lost);
  CHECK(met.error().rank == 2);
  (void)trio[0].error();
  (void)trio[1].error();
  late.open(1).links->join();
  CHECK(late[1].error().rank == 2);
  without.open_all();
  CHECK(without.meets(0));
  CHECK(without.meets(1));
}

TEST_CASE("link channels: ranks that come later learn that a rank has given up") {
  Trio trio;
  GroupOfTrio group(trio, 7);
  group.open(0).links->join();
  group[0].links->abort({.code = Errc::timeout, .what = "ranks 1 and 2 have not come"});
  group.open(1);
  CHECK(group[1].error().what == "ranks 1 and 2 have not come");
}

TEST_CASE("link channels: if one rank declines, the whole group meets elsewhere") {
  Trio trio;
  GroupOfTrio group(trio, 7);
  group.open(1).links->join();
  group.open(0).links->decline("no memory");
  group.open(2).links->join();
  const auto segment = group[1].links->take(0, Passed::segment, steady_now() + 20s);
  CHECK(segment.error().code == Errc::unsupported);
  CHECK(group.meets(2).error().what == "no memory");
}

TEST_CASE("link channels: the bootstrap of a group ends with its parent") {
  Trio trio;
  GroupOfTrio group(trio, 7);
  group.open(0).links->join();
  AbortFlag parent;
  std::thread aborts([&] { parent.raise({.code = Errc::aborted, .what = "over"}); });
  const ParentEnd end(parent, {0, 1, 2});
  const auto met = group[0].links->await_all(steady_now() + 20s, &end, group.missing);
  aborts.join();
  CHECK(met.error().what == "over");
}

TEST_CASE("link channels: the error after the parent's end has the group's rank numbers") {
  AbortFlag of_member, of_other;
  of_member.raise({.code = Errc::peer_lost, .what = "lost", .rank = 3});
  of_other.raise({.code = Errc::peer_lost, .what = "lost", .rank = 0});
  CHECK(ParentEnd(of_member, {2, 3, 1}).error().rank == 1);
  CHECK(ParentEnd(of_other, {2, 3, 1}).error().rank == -1);
  CHECK(ParentEnd(of_member).error().rank == 3);
}

TEST_CASE("link channels: a channel ignores frames of ranks that are not members") {
  Trio trio;
  GroupOfTrio all(trio, 7), pair(trio, 7, 2);
  const UniqueFd segment(::eventfd(0, EFD_CLOEXEC));
  all.open(2).links->join();
  all[2].links->pass(0, Passed::segment, segment.get());
  CHECK(everyone_answers(*trio[2].links, 0));  // both have heard it
  pair.open_all();
  CHECK(pair.meets(0));
  CHECK(pair.meets(1));
  for (int r = 0; r < 2; ++r) CHECK_FALSE(pair[r].flag.raised());
}

TEST_CASE("link channels: without room for descriptors, only operations that need one fail") {
  Trio trio;
  GroupOfTrio group(trio, 7);
  group.open_all();
  for (int r = 0; r < 3; ++r) CHECK(group.meets(r));
  const UniqueFd region(::eventfd(0, EFD_CLOEXEC));
  if (may_raise_hard_limit()) {
    const NoMoreDescriptors full(true);
    group[0].links->pass(1, Passed::region, region.get());
    const auto come = group[1].links->take(0, Passed::region, steady_now() + 20s);
    REQUIRE(come);
    CHECK_FALSE(*come);
  }
  {
    const NoMoreDescriptors full;  // the receiver raises the soft limit
    group[0].links->pass(1, Passed::region, region.get());
    const auto come = group[1].links->take(0, Passed::region, steady_now() + 20s);
    REQUIRE(come);
    CHECK(*come);
  }
  group[0].links->pass(1, Passed::region, region.get());
  const auto come = group[1].links->take(0, Passed::region, steady_now() + 20s);
  REQUIRE(come);
  CHECK(*come);
  for (int r = 0; r < 3; ++r) CHECK_FALSE(group[r].flag.raised());
}

// Rank 2 reads nothing, so that its frames wait in rank 0. Rank 1 is not started: its thread would
// make room for descriptors while it reads.
TEST_CASE("link channels: a held descriptor that cannot be copied is reported as missing") {
  Trio trio(1);
  GroupOfTrio group(trio, 7);
  group.open(0);
  constexpr int kMany = 20000;
  for (int i = 0; i < kMany; ++i) group[0].links->join();
  const UniqueFd region(::eventfd(0, EFD_CLOEXEC));
  {
    const NoMoreDescriptors full;
    group[0].links->pass(2, Passed::region, region.get());
  }
  std::string told;
  std::optional<LinkFrame> last;
  for (char buffer[4096]; !last || last->type != LinkFrame::Type::pass;) {
    const ssize_t n = ::read(trio.end(2, 0).get(), buffer, sizeof buffer);
    REQUIRE(n > 0);
    told.append(buffer, static_cast<std::size_t>(n));
    std::string_view rest = told;
    for (auto next = take_link_frame(rest, 3);; next = take_link_frame(rest, 3)) {
      REQUIRE(next);
      if (!next->has_value()) break;
      last = **next;
      last->text = {};
    }
    told.erase(0, told.size() - rest.size());
  }
  CHECK(last->passes());
  CHECK_FALSE(last->carries_descriptor());
}

TEST_CASE("link channels: peers learn that a rank leaves a broken channel, while links stay") {
  Trio trio;
  GroupOfTrio group(trio, 7);
  group.open_all();
  group[2].flag.raise({.code = Errc::peer_lost, .what = "the round is over"});
  group[2].links.reset();
  CHECK(group[0].error().rank == 2);
  CHECK(group[0].error().what == "rank 2 was lost: the round is over");
  CHECK_FALSE(trio[0].flag.raised());
}

namespace {

// The sockets that a rank gets, by peer, once it has so many.
std::map<int, UniqueFd> sockets_of(Links& links, std::size_t wanted) {
  std::map<int, UniqueFd> all;
  for (const auto end = steady_now() + 20s; all.size() < wanted && steady_now() < end;) {
    if (!links.sockets_come()) std::this_thread::sleep_for(1ms);
    for (NewSockets& come : links.take_sockets()) all[come.peer] = std::move(come.first);
  }
  return all;
}

}  // namespace

TEST_CASE("link channels: both ends get the same socket for messages, whichever asks, or both") {
  std::atomic<int> rings{0};  // lives longer than the links, which may ring until they end
  Trio trio;
  GroupOfTrio group(trio, 7);
  group.open_all();
  for (int r = 0; r < 3; ++r) group[r].links->on_socket([&] { ++rings; });
  // Ranks 0 and 1 ask each other at the same time, and twice; only rank 2 asks rank 0; no rank asks
  // for one between 1 and 2.
  std::thread other([&] { group[0].links->want_socket(1); });
  group[1].links->want_socket(0);
  group[1].links->want_socket(0);
  other.join();
  group[2].links->want_socket(0);
  std::map<int, UniqueFd> sockets[3];
  for (int r = 0; r < 3; ++r) sockets[r] = sockets_of(*group[r].links, r == 0 ? 2 : 1);
  CHECK(rings >= 4);
  for (const auto& [a, b] : {std::pair(0, 1), std::pair(1, 0), std::pair(0, 2), std::pair(2, 0)}) {
    const char word = static_cast<char>(10 * a + b);
    char heard = 0;
    REQUIRE((sockets[a].contains(b) && sockets[b].contains(a)));
    CHECK(::write(sockets[a][b].get(), &word, 1) == 1);
    CHECK(::read(sockets[b][a].get(), &heard, 1) == 1);
    CHECK(heard == word);
  }
  for (int r = 0; r < 3; ++r) CHECK(group[r].links->take_sockets().empty());
}

TEST_CASE("link channels: the socket for messages to a rank that has left is at its end") {
  Trio trio;
  GroupOfTrio group(trio, 7);
  group.open_all();
  group[0].links->want_socket(1);  // before rank 1 leaves, which makes rank 0's end
  auto early = sockets_of(*group[0].links, 1);
  group[1].links.reset();
  while (!group[0].links->has_left(1) || !group[2].links->has_left(1)) {
    std::this_thread::sleep_for(1ms);
  }
  group[2].links->want_socket(1);
  auto late = sockets_of(*group[2].links, 1);
  char byte;
  CHECK(::read(early[1].get(), &byte, 1) == 0);
  CHECK(::read(late[1].get(), &byte, 1) == 0);
}

}  // namespace dlaunch
