#include "launcher/lead/monitor/hang_stacks.h"

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

RankStacks one_elsewhere() {
  return {{0, python_at(kReduce, "8")},
          {1, python_at("wait (threading.py:320)", "5")},
          {2, python_at(kReduce, "8")},
          {3, python_at(kReduce, "8")}};
}

}  // namespace

TEST_CASE("hang stacks: the rank whose stack differs from those that wait") {
  const auto culprits = culprits_by_stacks(one_elsewhere(), {0, 1, 2, 3});
  CHECK(culprits.ranks == RankSet{1});
  CHECK(culprits.note.find("rank 1: ") != std::string::npos);
  CHECK(culprits.note.find("train.py:5") != std::string::npos);
}

TEST_CASE("hang stacks: without a difference all that hang are replaced") {
  RankStacks same = one_elsewhere();
  same[1] = same[0];
  const auto culprits = culprits_by_stacks(same, {0, 1, 2, 3});
  CHECK(culprits.ranks == RankSet{0, 1, 2, 3});
  CHECK(culprits.note.empty());
  CHECK(culprits_by_stacks({}, {0, 1}).ranks == RankSet{0, 1});
}

TEST_CASE("hang stacks: busy ranks wait only if all of them do") {
  const RankStacks stacks = one_elsewhere();
  const auto waits = waits_of(stacks, {0, 2, 3});
  REQUIRE(waits);
  CHECK(waits->at(2).find("train.py:8") != std::string::npos);
  CHECK_FALSE(waits_of(stacks, {0, 1}));
  CHECK_FALSE(waits_of(stacks, {0, 7}));
  CHECK_FALSE(waits_of(stacks, {}));
}
