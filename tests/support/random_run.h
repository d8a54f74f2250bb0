// One rank's way through the random program.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "random_program.h"
#include "random_task.h"

namespace random_ops {

constexpr std::size_t kSharedBytes = 8 << 20;  // enough for a Run

struct Limits {
  std::uint64_t steps = UINT64_MAX;
  double seconds = 1e9;
  std::function<bool()> enough = {};  // by rank 0's decision
  std::uint64_t skip = 0;  // of the steps before this one takes only those that make or free groups
  bool trace = false;
};

// How the program ended on this rank.
struct Outcome {
  dl_result result = DL_OK;  // the first error of the library
  int group = 0;             // of the error
  int lost = -1;             // world rank that dl_peer_lost() named there
  std::string text;
};

class Run {
 public:
  // `tell` gets each wrong result. `shared`: kSharedBytes of the caller's dl_alloc() memory, for
  // some of the buffers.
  Run(dl_comm* world, const Shape& shape, const Limits& limits,
      std::function<void(const std::string&)> tell, void* shared, std::size_t shared_bytes);
  ~Run();  // leaves all groups, but not the world
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // After an error of the library all operations under way end before it returns.
  Outcome run();
  const std::vector<int>& members(int group) const { return program_.members(group); }

  // Called at the first error of the library, before this rank leaves any group because of it.
  std::function<void(const Outcome&)> on_failure;
  std::uint64_t steps = 0;  // of all ranks
  std::atomic<std::uint64_t> operations{0}, wrong{0};

 private:
  struct Group {
    dl_comm* comm;
    int rank, size;
    std::uint64_t digest = 0;
  };
  using Tasks = std::list<std::unique_ptr<Task>>;

  bool over(const Outcome& outcome);
  void take(const Step& step);
  void letters(const Step& step);
  void letter(const Step& step, std::size_t i, bool sends);
  void take_any(const Step& step);
  void split(const Step& step);
  void leave(int group);
  void compare(const Step& step);
  void begin(std::unique_ptr<Task> task, bool later);
  void finish(std::unique_ptr<Task> task);
  void complain(const Task& task, const std::string& what);
  void note(dl_result result, int group);
  Tasks::iterator end_one(Tasks::iterator at);
  Tasks::iterator ended(Tasks::iterator at, dl_result result, int group);
  void end_some();
  void end_all_of(int group);
  void give_up();

  Program program_;
  const Limits limits_;
  const std::function<void(const std::string&)> tell_;
  const int rank_;
  Random local_;
  Arena arena_;
  std::map<int, Group> groups_;
  Tasks pending_;
  std::size_t pending_bytes_ = 0;
  Outcome outcome_;
};

}  // namespace random_ops
