// RoundBook: the shared part of a round in the simulated world: the meeting, and the collectives
// after it. It finds rounds by their number, as keys in the store and frames do, so a number used
// twice brings strangers together. Each contribution names its round.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch::sim {

struct Contribution {
  int round = 0;  // the witness
  int step = 0;   // of the program; -1: newcomers get the state; -2: the last barrier
  std::uint64_t part = 0;
  std::uint64_t version = 0, state = 0;
};

class RoundBook {
 public:
  struct Round {
    std::vector<int> seats;  // the worker of each rank; 0: absent
    std::vector<int> gone;   // ranks that came, and then left or died
    std::vector<std::vector<std::optional<Contribution>>> collectives;  // in turn; by rank
  };
  // Takes a seat in the meeting. True: the meeting is complete.
  bool enter(int round, int rank, int size, int worker);
  // True: all have contributed.
  bool contribute(int number, int rank, int collective, const Contribution& part);

  void leave(int round, int rank) { rounds_[round].gone.push_back(rank); }

  const Round& at(int round) { return rounds_[round]; }
  // The first forbidden act; empty: none.
  const std::string& wrong() const { return wrong_; }

  struct Sum {
    std::uint64_t parts = 0;
    std::uint64_t version = 0, state = 0;  // the newest
  };
  Sum sum(int round, int collective);

 private:
  std::map<int, Round> rounds_;
  std::string wrong_;
};

}  // namespace dlaunch::sim
