// The ranks of an MPI program find each other: the side of one node.
#include "launcher/node/mpi/pmi_core.h"

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

using Client = PmiCore::Client;

// All replies of one line, each with whom it is for.
std::string replies(const PmiCore::Actions& actions) {
  std::string all;
  for (const auto& reply : actions.replies) all += std::to_string(reply.to) + ": " + reply.line;
  return all;
}

std::string say(PmiCore& core, Client client, std::string_view line) {
  const auto actions = core.said(client, line);
  return actions ? replies(*actions) : "closed: " + actions.error().what;
}

PmiCore node_of(int local_size, int size, int nodes, int first = 0) {
  PmiCore core;
  for (int client = 0; client < local_size; ++client) {
    core.add(first + client, {.round = 1, .size = size, .local_size = local_size, .nodes = nodes});
  }
  return core;
}

}  // namespace

TEST_CASE("pmi: the others get a rank's keys after the barrier") {
  auto core = node_of(2, 2, 1);
  CHECK(say(core, 0, "cmd=init pmi_version=1 pmi_subversion=1") ==
        "0: cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
  CHECK(say(core, 0, "cmd=get_maxes") ==
        "0: cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n");
  CHECK(say(core, 1, "cmd=get_appnum") == "1: cmd=appnum rc=0 appnum=0\n");
  core.add(1, {.round = 1, .size = 2, .local_size = 2, .appnum = 3});  // of another program
  CHECK(say(core, 1, "cmd=get_appnum") == "1: cmd=appnum rc=0 appnum=3\n");
  CHECK(say(core, 0, "cmd=get_appnum") == "0: cmd=appnum rc=0 appnum=0\n");
  CHECK(say(core, 1, "cmd=get_my_kvsname") == "1: cmd=my_kvsname rc=0 kvsname=dlaunch\n");
  CHECK(say(core, 1, "cmd=get_universe_size") == "1: cmd=universe_size rc=0 size=2\n");
  CHECK(say(core, 1, "cmd=get kvsname=dlaunch key=a") ==
        "1: cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
  CHECK(say(core, 0, "cmd=put kvsname=dlaunch key=a value=x#y=z$") ==
        "0: cmd=put_result rc=0 msg=success\n");
  CHECK(say(core, 0, "cmd=barrier_in") == "");
  CHECK(say(core, 1, "cmd=barrier_in") == "0: cmd=barrier_out rc=0\n1: cmd=barrier_out rc=0\n");
  CHECK(say(core, 1, "cmd=get kvsname=dlaunch key=a") ==
        "1: cmd=get_result rc=0 msg=success value=x#y=z$\n");
  // The next barrier is another one.
  CHECK(say(core, 1, "cmd=barrier_in") == "");
  CHECK(say(core, 1, "cmd=finalize") == "1: cmd=finalize_ack rc=0\n");
}

TEST_CASE("pmi: nodes exchange the keys since the last barrier") {
  auto here = node_of(2, 3, 2), there = node_of(1, 3, 2, 7);
  say(here, 1, "cmd=put kvsname=dlaunch key=one value=1");
  say(there, 7, "cmd=put kvsname=dlaunch key=two value=2");
  CHECK(say(here, 0, "cmd=barrier_in") == "");
  auto ours = here.said(1, "cmd=barrier_in"), theirs = there.said(7, "cmd=barrier_in");
  REQUIRE((ours && ours->exchange && theirs && theirs->exchange));
  CHECK((ours->replies.empty() && ours->exchange->round == 1 && ours->exchange->turn == 1));
  CHECK(replies(here.exchanged(1, std::vector{theirs->exchange->own})) ==
        "0: cmd=barrier_out rc=0\n1: cmd=barrier_out rc=0\n");
  CHECK(replies(there.exchanged(1, std::vector{ours->exchange->own})) ==
        "7: cmd=barrier_out rc=0\n");
  CHECK(say(there, 7, "cmd=get kvsname=dlaunch key=one") ==
        "7: cmd=get_result rc=0 msg=success value=1\n");
  CHECK(say(here, 0, "cmd=get kvsname=dlaunch key=two") ==
        "0: cmd=get_result rc=0 msg=success value=2\n");
  theirs = there.said(7, "cmd=barrier_in");
  REQUIRE((theirs && theirs->exchange));
  CHECK((theirs->exchange->turn == 2 && theirs->exchange->own.empty()));
  // What cannot be had is an error of the barrier, and so is nonsense.
  CHECK(replies(there.exchanged(1, Error{.code = Errc::io, .what = "gone"})) ==
        "7: cmd=barrier_out rc=-1\n");
  say(there, 7, "cmd=barrier_in");
  CHECK(replies(there.exchanged(1, std::vector<std::string>{"\x01"})) ==
        "7: cmd=barrier_out rc=-1\n");
}

TEST_CASE("pmi: a new round leaves nothing of the old one") {
  auto core = node_of(2, 2, 1);
  say(core, 0, "cmd=put kvsname=dlaunch key=a value=old");
  say(core, 0, "cmd=barrier_in");
  core.gone(1);
  for (const Client client : {2, 3}) core.add(client, {.round = 2, .size = 2, .local_size = 2});
  CHECK(say(core, 0, "cmd=barrier_in") == "");  // nobody waits for it any more
  CHECK(core.exchanged(1, std::vector<std::string>{}).replies.empty());
  CHECK(say(core, 2, "cmd=get kvsname=dlaunch key=a") ==
        "2: cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
  CHECK(say(core, 2, "cmd=barrier_in") == "");
  core.gone(0);
  CHECK(say(core, 3, "cmd=barrier_in") == "2: cmd=barrier_out rc=0\n3: cmd=barrier_out rc=0\n");
  // Who has gone from a barrier is not in it.
  say(core, 2, "cmd=barrier_in");
  core.gone(2);
  CHECK(say(core, 3, "cmd=barrier_in") == "");
}

TEST_CASE("pmi: nothing of an earlier run remains, although its rounds had the same numbers") {
  auto core = node_of(1, 2, 2);
  CHECK(say(core, 0, "cmd=put kvsname=dlaunch key=a value=1").ends_with("rc=0 msg=success\n"));
  CHECK(core.said(0, "cmd=barrier_in")->exchange->turn == 1);
  core.forget_rounds();
  core.gone(0);
  core.add(1, {.round = 1, .size = 2, .local_size = 1, .nodes = 2});
  CHECK(say(core, 1, "cmd=get kvsname=dlaunch key=a").find("key_not_found") != std::string::npos);
  CHECK(core.said(1, "cmd=barrier_in")->exchange->turn == 1);
}

TEST_CASE("pmi: MPI_Abort() passes its code, which is never 0") {
  auto core = node_of(1, 1, 1);
  const auto code_of = [&](std::string_view line) {
    const auto actions = core.said(0, line);
    REQUIRE((actions && actions->replies.empty() && actions->abort));
    return *actions->abort;
  };
  CHECK(code_of("cmd=abort exitcode=7") == 7);
  CHECK(code_of("cmd=abort exitcode=0") == 1);
  CHECK(code_of("cmd=abort exitcode=256") == 1);
  CHECK(code_of("cmd=abort exitcode=-1") == 255);
  CHECK(code_of("cmd=abort exitcode=many") == 1);
  CHECK(code_of("cmd=abort") == 1);
}

TEST_CASE("pmi: a missing key gets an answer, and a malformed line closes the connection") {
  auto core = node_of(1, 1, 1);
  CHECK(say(core, 0, "cmd=lookup_name service=x") ==
        "0: cmd=lookup_result rc=-1 msg=not_supported\n");
  CHECK(say(core, 0, "mcmd=spawn") == "0: cmd=spawn_result rc=-1 msg=not_supported\n");
  CHECK(core.said(0, "mcmd=spawn")->spawn);
  CHECK_FALSE(core.said(0, "cmd=lookup_name service=a")->spawn);
  CHECK(say(core, 0, "nprocs=2") == "");
  CHECK(say(core, 0, "endcmd") == "");
  CHECK(say(core, 0, "cmd=put kvsname=dlaunch key=" + std::string(65, 'k') + " value=v") ==
        "0: cmd=put_result rc=-1 msg=too_long\n");
  CHECK(say(core, 0, "cmd=put kvsname=dlaunch key=k value=" + std::string(1025, 'v')) ==
        "0: cmd=put_result rc=-1 msg=too_long\n");
  CHECK(say(core, 0, "cmd=put key=k").starts_with("closed: "));
  CHECK(say(core, 0, "cmd=dance\x1b") ==
        "closed: an MPI library sent 'cmd=dance\\x1b', which is not part of PMI-1");
  CHECK(say(core, 0, "").starts_with("closed: "));
}
