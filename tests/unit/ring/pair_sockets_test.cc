// Sockets of ranks that share no memory: each pair gets its own when one of the two needs them.
#include "ring/links/pair_sockets.h"

#include <atomic>
#include <condition_variable>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "base/socket.h"
#include "process_world.h"
#include "socket_ends.h"
#include "tests/unit/process_state.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Use = PairSockets::Use;

// Ranks 0, 1 and 2 of this process, whose WANTs arrive at once if they have links.
class Three {
 public:
  explicit Three(std::size_t more = 0, bool linked = true) {
    auto connections = Connections::of_process(Secret(), "127.0.0.1", false, {});
    REQUIRE(connections);
    for (int r = 0; r < 3; ++r) {
      const std::string name = std::to_string(r);
      ranks.push_back(PairSockets::open(
          *connections, {Purpose::ring_link, "three", 1, r, -1, "rank " + name}, name, 3));
      for (const Use use : {Use::data, Use::messages}) {
        ranks.back()->of(use).on_socket([this] {
          const std::lock_guard lock(mutex_);
          ++rung_;
          changed_.notify_all();
        });
      }
    }
    for (int r = 0; r < 3; ++r) {
      PairSockets::Ways ways;
      for (const auto& rank : ranks) ways.targets.push_back(rank->target());
      ways.more.assign(3, more);
      ways.ask = [this, r, linked](int peer, Use use) {
        ++wants;
        if (linked) ranks[static_cast<std::size_t>(peer)]->asked(r, use);
        return linked;
      };
      ranks[static_cast<std::size_t>(r)]->start(std::move(ways));
    }
  }

  ~Three() { ranks.clear(); }  // before what their callbacks use

  // Returns once the other rank knows it.
  void leaves(int rank, int other) {
    (void)of(other, Use::messages).take_sockets();
    ranks[static_cast<std::size_t>(other)]->left(rank);
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, 20s, [&] { return of(other, Use::messages).sockets_come(); }));
  }

  PeerSockets& of(int rank, Use use) { return ranks[static_cast<std::size_t>(rank)]->of(use); }

  // The next sockets that come to a rank.
  NewSockets take(int rank, Use use) {
    std::vector<NewSockets> taken;
    std::unique_lock lock(mutex_);
    const bool come = changed_.wait_for(lock, 20s, [&] {
      lock.unlock();
      taken = of(rank, use).take_sockets();
      lock.lock();
      return !taken.empty();
    });
    REQUIRE(come);
    REQUIRE(taken.size() == 1);
    return std::move(taken[0]);
  }

  // A connection that a rank's process makes, without its PairSockets.
  UniqueFd connect_as(int rank, int to, Purpose purpose, std::uint8_t more = 0) {
    const Connections::Target target = ranks[static_cast<std::size_t>(to)]->target();
    const std::string job = link_id_of("three", target.instance);
    auto fd = connect_tcp(target.tcp, steady_now() + 30s);
    REQUIRE(fd);
    REQUIRE(handshake_connect(fd->get(), Secret(), {purpose, job, 1, rank, to, "a rank", more},
                              steady_now() + 30s));
    return std::move(*fd);
  }

  std::vector<std::shared_ptr<PairSockets>> ranks;
  std::atomic<int> wants{0};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int rung_ = 0;
};

bool is_at_its_end(const UniqueFd& fd) {
  char byte = 0;
  return fd && ::recv(fd.get(), &byte, 1, 0) == 0;
}

}  // namespace

TEST_CASE("pair sockets: the higher rank connects, whichever of the two needs them first") {
  Three world;
  world.of(2, Use::data).want_socket(0);
  const NewSockets at2 = world.take(2, Use::data), at0 = world.take(0, Use::data);
  CHECK(world.wants == 0);
  CHECK(at2.peer == 0);
  CHECK(at0.peer == 2);
  CHECK(speak(at2.first, at0.first));
  world.of(0, Use::data).want_socket(1);
  const NewSockets at1 = world.take(1, Use::data), back = world.take(0, Use::data);
  CHECK(world.wants == 1);
  CHECK(at1.peer == 0);
  CHECK(back.peer == 1);
  CHECK(speak(at1.first, back.first));
  // Nothing else has come, and neither is made again.
  world.of(0, Use::data).want_socket(1);
  world.of(1, Use::data).want_socket(0);
  CHECK(world.wants == 1);
  for (int r = 0; r < 3; ++r) {
    CHECK(world.of(r, Use::messages).take_sockets().empty());
    CHECK(world.of(r, Use::data).take_sockets().empty());
  }
}

TEST_CASE("pair sockets: a rank that only receives waits for the other one to need them") {
  Three world;
  world.of(0, Use::data).await_socket(2);
  world.of(2, Use::data).await_socket(0);
  world.of(1, Use::data).await_socket(2);
  world.of(1, Use::messages).want_socket(0);
  CHECK(world.take(0, Use::messages).peer == 1);  // by then an earlier order would have come
  CHECK(world.wants == 0);
  for (int r = 0; r < 3; ++r) CHECK(world.of(r, Use::data).take_sockets().empty());
  world.of(0, Use::data).want_socket(2);
  CHECK(world.wants == 1);
  CHECK(speak(world.take(0, Use::data).first, world.take(2, Use::data).first));
  world.leaves(2, 1);
  CHECK(is_at_its_end(world.take(1, Use::data).first));
}

TEST_CASE("pair sockets: a rank without a link asks by a short connection") {
  Three world(3, false);
  for (const Use use : {Use::messages, Use::data}) {
    world.of(0, use).want_socket(2);
    const NewSockets at0 = world.take(0, use), at2 = world.take(2, use);
    CHECK(at0.more.size() == (use == Use::data ? 3 : 0));
    CHECK(speak(at0.first, at2.first));
  }
  CHECK(world.wants == 2);
  CHECK(world.of(1, Use::data).take_sockets().empty());
}

TEST_CASE("pair sockets: a rank may ask before the other one has begun") {
  auto connections = Connections::of_process(Secret(), "127.0.0.1", false, {});
  REQUIRE(connections);
  Three world;
  const auto late =
      PairSockets::open(*connections, {Purpose::ring_link, "three", 1, 2, -1, "rank 2"}, "late", 3);
  late->asked(0, Use::messages);
  PairSockets::Ways ways;
  for (const auto& rank : world.ranks) ways.targets.push_back(rank->target());
  ways.more.assign(3, 0);
  late->start(std::move(ways));
  CHECK(world.take(0, Use::messages).peer == 2);
}

TEST_CASE("pair sockets: a short connection to a rank that leaves meanwhile ends the wait") {
  Three world(0, false);
  world.ranks[2].reset();  // it no longer answers
  world.of(0, Use::data).want_socket(2);
  world.leaves(2, 0);
  CHECK(is_at_its_end(world.take(0, Use::data).first));
}

TEST_CASE("pair sockets: both ask at once, for both uses, and get one socket for each") {
  Three world;
  std::thread other([&] {
    for (const Use use : {Use::data, Use::messages}) world.of(1, use).want_socket(2);
  });
  for (const Use use : {Use::data, Use::messages}) world.of(2, use).want_socket(1);
  other.join();
  for (const Use use : {Use::data, Use::messages}) {
    const NewSockets at1 = world.take(1, use), at2 = world.take(2, use);
    CHECK(speak(at1.first, at2.first));
    CHECK(at1.more.empty());
  }
}

TEST_CASE("pair sockets: all further sockets for data are there with the first one") {
  Three world(7);
  world.of(0, Use::data).want_socket(2);
  const NewSockets at0 = world.take(0, Use::data), at2 = world.take(2, Use::data);
  CHECK(at0.more.size() == 7);
  CHECK(at2.more.size() == 7);
  CHECK(speak(at0.first, at2.first));
  world.of(1, Use::messages).want_socket(2);
  CHECK(world.take(1, Use::messages).more.empty());
}

TEST_CASE("pair sockets: a rank that sends and ends at once keeps its further sockets") {
  Three world;
  UniqueFd kept = world.connect_as(2, 0, Purpose::ring_more_data);
  world.connect_as(2, 0, Purpose::ring_more_data).reset();
  UniqueFd first = world.connect_as(2, 0, Purpose::ring_data, 2);
  kept.reset();
  first.reset();
  CHECK(world.take(0, Use::data).more.size() == 2);
}

TEST_CASE("pair sockets: a further socket that failed where it was made is left out") {
  Three world;
  world.connect_as(2, 0, Purpose::ring_more_data).reset();
  const UniqueFd again = world.connect_as(2, 0, Purpose::ring_more_data);
  const UniqueFd first = world.connect_as(2, 0, Purpose::ring_data, 1);
  const NewSockets at0 = world.take(0, Use::data);
  REQUIRE(at0.more.size() == 1);
  CHECK(speak(again, at0.more[0]));
}

TEST_CASE("pair sockets: the socket to a rank that has left is at its end") {
  Three world;
  world.leaves(2, 0);
  world.leaves(0, 2);
  world.of(0, Use::messages).want_socket(2);
  CHECK(is_at_its_end(world.take(0, Use::messages).first));
  CHECK(world.wants == 0);
  world.ranks[0].reset();
  world.of(2, Use::messages).want_socket(0);
  CHECK(is_at_its_end(world.take(2, Use::messages).first));
}

TEST_CASE("pair sockets: a rank that leaves while another waits for it to connect") {
  Three others;
  others.ranks[2] = others.ranks[1];  // the WANT goes nowhere
  others.of(1, Use::messages).want_socket(2);
  CHECK(others.of(1, Use::messages).take_sockets().empty());
  others.leaves(2, 1);
  CHECK(is_at_its_end(others.take(1, Use::messages).first));
}

TEST_CASE("pair sockets: over TCP a pair connects when it first needs to, and only then") {
  Together<5> counted, sent, again;
  all_well({5, "tcp"}, [&](int rank, dl_comm*& comm) {
    // A link with each other rank, and the process's listening socket.
    const long before = open_sockets();
    EXPECT(before == 4 + 1);
    counted.come(rank);
    int x = rank;
    if (rank == 1) {
      EXPECT(dl_send(comm, &x, 1, DL_INT32, 3, 0) == DL_OK);
      EXPECT(dl_recv(comm, &x, 1, DL_INT32, 3, 0) == DL_OK);
    }
    if (rank == 3) {
      EXPECT(dl_recv(comm, &x, 1, DL_INT32, 1, 0) == DL_OK);
      EXPECT(x == 1);
      EXPECT(dl_send(comm, &x, 1, DL_INT32, 1, 0) == DL_OK);
    }
    sent.come(rank);
    EXPECT(open_sockets() - before == (rank == 1 || rank == 3 ? 1 : 0));
    again.come(rank);
    EXPECT(dl_broadcast(comm, &x, 1, DL_INT32, 0) == DL_OK);
    return 0;
  });
}

TEST_CASE("pair sockets: a rank may send and leave before the other one looks") {
  Gate left;
  all_well({3, "tcp"}, [&](int rank, dl_comm*& comm) {
    int x = rank;
    if (rank == 0) {
      EXPECT(dl_send(comm, &x, 1, DL_INT32, 2, 0) == DL_OK);
      EXPECT(dl_recv(comm, &x, 1, DL_INT32, 1, 0) == DL_OK);
      dl_finalize(comm);
      comm = nullptr;
      left.open();
    }
    if (rank == 1) EXPECT(dl_send(comm, &x, 1, DL_INT32, 0, 0) == DL_OK);
    if (rank == 2) {
      left.pass();
      EXPECT(dl_recv(comm, &x, 1, DL_INT32, 0, 0) == DL_OK);
      EXPECT(x == 0);
    }
    return 0;
  });
}
