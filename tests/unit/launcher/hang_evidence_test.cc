#include "launcher/lead/monitor/hang_evidence.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

using Lines = std::vector<std::string>;

// As py-spy prints a program whose main thread is in this line.
Lines python_at(const std::string& frame, const std::string& line) {
  return {"Process 7: python train.py",       "Python v3.11.2 (/usr/bin/python3.11)",
          "Thread 7 (idle): \"MainThread\"",  "    " + frame,
          "    step (train.py:" + line + ")", "    <module> (train.py:30)"};
}
const std::string kReduce = "all_reduce (torch/distributed/distributed_c10d.py:2501)";

HangEvidence one_elsewhere() {
  return {.stacks = {{0, python_at(kReduce, "8")},
                     {1, python_at("wait (threading.py:320)", "5")},
                     {2, python_at(kReduce, "8")},
                     {3, python_at(kReduce, "8")}},
          .recorded = {}};
}

NodePosition stands_at(std::uint64_t seq, bool inside, std::uint32_t group = 0) {
  return {.group = group, .seq = seq, .inside = inside, .what = 0, .still = {}};
}

}  // namespace

TEST_CASE("hang evidence: the rank whose stack differs from those that wait") {
  const auto culprits = culprits_of(one_elsewhere(), {0, 1, 2, 3});
  CHECK(culprits.ranks == RankSet{1});
  CHECK(culprits.note.find("rank 1: ") != std::string::npos);
  CHECK(culprits.note.find("train.py:5") != std::string::npos);
}

TEST_CASE("hang evidence: without a difference all that hang are replaced") {
  HangEvidence same = one_elsewhere();
  same.stacks[1] = same.stacks[0];
  const auto culprits = culprits_of(same, {0, 1, 2, 3});
  CHECK(culprits.ranks == RankSet{0, 1, 2, 3});
  CHECK(culprits.note.empty());
  CHECK(culprits_of({}, {0, 1}).ranks == RankSet{0, 1});
}

TEST_CASE("hang evidence: NCCL's record says which rank lacks which collective") {
  HangEvidence evidence = one_elsewhere();
  for (const int rank : {0, 1, 2}) {
    NcclProgress& at = evidence.nccl[rank].emplace_back();
    at.comm = 7;
    at.enqueued = rank == 2 ? 4 : 5;
  }
  CHECK(culprits_of(evidence, {0, 1, 2, 3}).ranks == RankSet{2});
  CHECK(culprits_of(evidence, {0, 1, 3}).ranks == RankSet{1});  // rank 2 does not hang: by stacks
}

namespace {

NcclProgress ras_names(std::uint64_t launched, std::uint64_t others, std::int32_t ranks = 4) {
  return {
      .comm = 7, .ranks = ranks, .enqueued = launched, .function = "AllReduce", .others = others};
}

}  // namespace

TEST_CASE(
    "hang evidence: NCCL's RAS service says who is behind, and tells the count of the others") {
  HangEvidence evidence = one_elsewhere();
  evidence.ras[2] = {ras_names(41, 42)};
  const auto behind = culprits_of(evidence, {0, 1, 2, 3});
  CHECK(behind.ranks == RankSet{2});
  CHECK(behind.note ==
        "; NCCL RAS: rank 2 has not enqueued AllReduce #42 on NCCL communicator 0000000000000007, "
        "where rank 0-1,3 are waiting");
  evidence.ras[2] = {ras_names(42, 41)};  // RAS names one that waits
  CHECK(culprits_of(evidence, {0, 1, 2, 3}).ranks == RankSet{0, 1, 3});
  evidence.ras[2] = {ras_names(42, 41, 2)};  // for a rank that RAS does not name
  CHECK(culprits_of(evidence, {0, 1, 2, 3}).ranks == RankSet{1});
  evidence.nccl[0].push_back({.comm = 9, .enqueued = 1});
  evidence.nccl[3].push_back({.comm = 9, .enqueued = 0});
  CHECK(culprits_of(evidence, {0, 1, 2, 3}).ranks == RankSet{3});  // the record knows more
}

TEST_CASE("hang evidence: a rank whose RAS thread does not answer") {
  HangEvidence evidence = one_elsewhere();
  evidence.ras[2] = {ras_names(41, 42)};
  evidence.ras_silent = {3};
  const auto silent = culprits_of(evidence, {0, 1, 2, 3});
  CHECK(silent.ranks == RankSet{3});
  CHECK(silent.note == "; NCCL RAS: rank 3 does not answer the other ranks");
  CHECK(culprits_of(evidence, {0, 1, 2}).ranks == RankSet{2});  // rank 3 does not hang
}

// NCCL returns before a collective is done: the program computes, and uses the result later.
TEST_CASE("hang evidence: a rank that computes does not wait, whatever NCCL's records say") {
  HangEvidence evidence = one_elsewhere();
  for (const int rank : {0, 1, 2, 3}) {
    NcclProgress& at = evidence.nccl[rank].emplace_back();
    at.comm = 7;
    at.enqueued = rank == 3 ? 4 : 5;
    at.kernels = true;
    at.begun = at.open = at.enqueued;
  }
  CHECK_FALSE(waits_of(evidence, {0, 1, 2}));
  CHECK(waits_of(evidence, {0, 2}));  // by their stacks
}

TEST_CASE("hang evidence: the recorder says which rank lacks which collective") {
  HangEvidence evidence = one_elsewhere();
  evidence.recorded = {
      {0, {stands_at(17, true)}}, {1, {stands_at(17, true)}}, {2, {stands_at(16, false)}}};
  const auto culprits = culprits_of(evidence, {0, 1, 2, 3});
  CHECK(culprits.ranks == RankSet{2});
  CHECK(culprits.note == "; rank 2 has not entered all_reduce #17, where rank 0-1 are waiting");
}

TEST_CASE(
    "hang evidence: a rank that has called nothing in a group yet lacks its first collective") {
  HangEvidence evidence;
  evidence.recorded = {{0, {stands_at(3, false), stands_at(1, true, 4)}},
                       {1, {stands_at(3, false), stands_at(0, false, 4)}}};
  const auto culprits = culprits_of(evidence, {0, 1});
  CHECK(culprits.ranks == RankSet{1});
  CHECK(culprits.note.find("#1 of group 4") != std::string::npos);
}

TEST_CASE("hang evidence: busy ranks wait if all of them do, by their stacks or by the recorder") {
  HangEvidence evidence = one_elsewhere();
  CHECK(waits_of(evidence, {0, 2, 3}));
  CHECK_FALSE(waits_of(evidence, {0, 1}));
  CHECK_FALSE(waits_of(evidence, {0, 7}));
  evidence.recorded = {{1, {stands_at(17, true)}}};
  CHECK(waits_of(evidence, {0, 1}));
  evidence.recorded = {{1, {stands_at(17, false)}}};
  CHECK_FALSE(waits_of(evidence, {0, 1}));
  CHECK_FALSE(waits_of(evidence, {}));
}
