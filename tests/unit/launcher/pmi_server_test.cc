// The ranks of an MPI program on two nodes, with sockets and a store.
#include "launcher/node/mpi/pmi_server.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <chrono>

#include <asio/executor_work_guard.hpp>
#include <doctest/doctest.h>

#include "tests/unit/temp_folder.h"

using namespace dlaunch;

namespace {

WorkerPlace place_on(int node, int rank, const TempFolder& folder, int round = 1) {
  WorkerPlace place;
  place.round = round;
  place.rank = rank;
  place.size = 2;
  place.node_rank = node;
  place.nodes = 2;
  place.worker = rank + 1;
  place.store_url = "file://" + folder.path.string();
  return place;
}

// A node's agent, whose loop is turned by hand, and the connection of its only rank.
struct NodeWorld {
  asio::io_context loop;
  const asio::executor_work_guard<asio::io_context::executor_type> goes_on{loop.get_executor()};
  PmiServer server{loop, {.job_id = "j", .secret = {}, .who = "a test"}};
  UniqueFd rank;

  void start(const WorkerPlace& place) {
    auto made = server.connect(place);
    REQUIRE(made);
    rank = std::move(*made);
    const timeval patience{20, 0};
    ::setsockopt(rank.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  void say(const std::string& line) {
    CHECK(::send(rank.get(), line.data(), line.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(line.size()));
    loop.restart();
    loop.run_for(std::chrono::milliseconds(50));  // the first time, it starts the thread
  }
  // "": the connection has ended.
  std::string heard() {
    std::string line;
    for (char byte = 0; byte != '\n' && ::recv(rank.get(), &byte, 1, 0) == 1;) line += byte;
    return line;
  }
};

}  // namespace

TEST_CASE("pmi server: nodes exchange the keys of their ranks through the store") {
  const TempFolder folder;
  NodeWorld here, there;
  here.start(place_on(0, 0, folder));
  there.start(place_on(1, 1, folder));
  here.say("cmd=put kvsname=dlaunch key=zero value=0\ncmd=bar");
  here.say("rier_in\n");  // lines come as they like
  CHECK(here.heard() == "cmd=put_result rc=0 msg=success\n");
  there.say("cmd=put kvsname=dlaunch key=one value=1\ncmd=barrier_in\n");
  CHECK(there.heard() == "cmd=put_result rc=0 msg=success\n");
  CHECK(here.heard() == "cmd=barrier_out rc=0\n");
  CHECK(there.heard() == "cmd=barrier_out rc=0\n");
  for (NodeWorld* const node : {&here, &there}) {
    node->say("cmd=get kvsname=dlaunch key=zero\ncmd=get kvsname=dlaunch key=one\n");
    CHECK(node->heard() == "cmd=get_result rc=0 msg=success value=0\n");
    CHECK(node->heard() == "cmd=get_result rc=0 msg=success value=1\n");
  }
}

TEST_CASE("pmi server: the next round ends a wait for a node that does not come") {
  const TempFolder folder;
  NodeWorld here;
  here.start(place_on(0, 0, folder));
  here.say("cmd=barrier_in\n");
  auto next = here.server.connect(place_on(0, 0, folder, 2));
  REQUIRE(next);
  UniqueFd old = std::exchange(here.rank, std::move(*next));
  here.say("cmd=get_appnum\n");
  CHECK(here.heard() == "cmd=appnum rc=0 appnum=0\n");
}  // and so it is by the end of the job

TEST_CASE("pmi server: MPI_Abort() reaches the loop; malformed or long lines end a connection") {
  const TempFolder folder;
  NodeWorld here;
  int worker = 0, code = 0;
  here.server.on_abort([&](int its_worker, int its_code) {
    worker = its_worker;
    code = its_code;
    here.loop.stop();
  });
  here.start(place_on(0, 0, folder));
  here.say("cmd=abort exitcode=9\n");
  here.loop.restart();
  if (code == 0) here.loop.run_for(std::chrono::seconds(20));
  CHECK((worker == 1 && code == 9));
  for (const std::string& line : {std::string("hello\n"), std::string(5000, 'x')}) {
    here.start(place_on(0, 0, folder));
    here.say(line);
    CHECK(here.heard() == "");
  }
}
