// One operation on one rank: its buffers, the call, and the check of the result.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "random_program.h"

namespace random_ops {

// The memory of buffers: the heap's, or equal slots of memory that all ranks have allocated
// together, by dl_alloc().
class Arena {
 public:
  Arena(void* shared, std::size_t bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  // Shared memory with this probability, if a slot is free and large enough. Valid while this
  // object lives.
  std::shared_ptr<char> take(std::size_t bytes, int permille, Random& random);

 private:
  std::size_t slot_bytes_;
  std::vector<char*> free_;
};

// The source of a task's memory and dice.
struct Source {
  Arena& arena;
  Random& random;
  int shared_permille = 0;
};

// Pieces of memory at any address that their element type allows, with bytes between and around
// them that must not change.
class Buffer {
 public:
  Buffer(const std::vector<std::size_t>& counts, std::size_t element, const Source& source);
  std::size_t pieces() const { return at_.size(); }
  std::size_t count(std::size_t i) const { return counts_[i]; }
  char* piece(std::size_t i) { return bytes_.get() + at_[i]; }
  bool surroundings_intact() const;

 private:
  std::shared_ptr<char> bytes_;
  std::size_t size_;
  std::vector<std::size_t> at_, counts_;
  std::size_t element_;
};

class Task {
 public:
  // A collective; `own`, `ranks`: of the group.
  Task(const Step& step, int own, int ranks, Arena& arena, Random& random);
  // One side of letter `i`; for recv_any the side of the receiver, who learns the sender.
  Task(const Step& step, std::size_t i, bool sends, Arena& arena, Random& random);
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // Blocks, or leaves `request`.
  dl_result start(dl_comm* comm, bool later);
  // After the end: "" or what is wrong.
  std::string judge();
  // Of all bits of the result.
  std::uint64_t digest();
  const Step& step() const { return step_; }
  std::string what() const;
  int source() const { return source_; }
  // The receiver learns the sender of a letter of recv_any.
  void come_from(int rank) { inputs_[0] = mix(step_.key + static_cast<std::uint64_t>(rank)); }
  std::size_t bytes() const;

  dl_request* request = nullptr;

 private:
  using Keys = std::vector<std::uint64_t>;
  std::size_t part(int rank) const;
  std::size_t before(int rank) const;
  std::vector<std::size_t> row(int rank) const;
  std::vector<std::size_t> column(int rank) const;
  std::vector<std::size_t> given() const;  // lengths of the input's pieces
  std::vector<std::size_t> taken() const;
  void lay_out(const Source& source);
  bool may_be_in_place() const;
  void place_inside();
  void fill_input();
  std::vector<char> wanted() const;
  std::string judge_output();
  dl_result start_collective(dl_comm* comm, bool later);
  dl_result start_list(dl_comm* comm, bool later);
  dl_result start_letter(dl_comm* comm, bool later);

  const Step step_;
  const int own_, ranks_;
  const Letter* letter_ = nullptr;
  bool sends_ = false;
  int source_ = -1;
  std::size_t element_;
  Keys inputs_;  // by rank
  bool in_place_ = false;
  std::unique_ptr<Buffer> in_, out_;  // in place: only the larger one
  std::vector<char*> in_at_, out_at_;
};

}  // namespace random_ops
