// PmiCore: how the ranks of an MPI program find each other, in the protocol PMI-1, which MPICH and
// its kin (Intel MPI, MVAPICH) speak with their launcher. One line each way, as
// "cmd=put kvsname=dlaunch key=a value=b": a rank puts its values, all come to a barrier, and each
// gets the values of the others. This is the side of one node; before a barrier ends the nodes
// exchange the values of their ranks, one text each. Pure.
//
// The commands are those of MPICH's src/pmi (Argonne National Laboratory), version 1.1.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace dlaunch {

inline constexpr std::size_t kMaxPmiLine = 4096;

class PmiCore {
 public:
  using Client = int;
  struct World {
    int round = 1;
    int size = 1;        // ranks of the round
    int local_size = 1;  // of them on this node
    int nodes = 1;       // with ranks
    int appnum = 0;      // of the client: which of the job's programs it runs
  };

  struct Reply {
    Client to;
    std::string line;  // with its end
  };
  // All ranks of this node have come to the round's n-th barrier: exchange the nodes' texts.
  struct Exchange {
    int round;
    int turn;
    std::string own;
  };
  struct Actions {
    std::vector<Reply> replies = {};
    std::optional<Exchange> exchange = {};
    std::optional<int> abort = {};  // the exit code: the client waits to be killed
    bool spawn = false;             // the client called MPI_Comm_spawn(), which was refused
  };

  void add(Client client, const World& world);
  void gone(Client client);
  // The numbers of rounds begin again.
  void forget_rounds() { rounds_.clear(); }
  // line: without its newline. Error: it makes no sense; close the client.
  Result<Actions> said(Client client, std::string_view line);
  // The values of the other nodes, or why they are missing.
  Actions exchanged(int round, const Result<std::vector<std::string>>& others);

 private:
  struct Round {
    World world;
    std::set<Client> in_barrier;
    std::map<std::string, std::string> values;
    std::map<std::string, std::string> news;  // put here since the last barrier
    std::size_t bytes = 0;
    int turns = 0;
  };
  using Words = std::map<std::string, std::string>;
  Result<std::string> put(Round& round, const Words& words);
  static std::string get(const Round& round, const Words& words);
  Actions come(Round& round, Client client);
  static Actions let_go(Round& round, const char* rc);

  struct Seat {
    int round, appnum;
  };
  std::map<Client, Seat> clients_;
  std::map<int, Round> rounds_;
};

}  // namespace dlaunch
