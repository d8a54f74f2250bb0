// The random program: a sequence of steps that depends on a seed and on the number of ranks only,
// so that all ranks take the same ones. A correct library cannot hang on it: each step only needs
// the ranks that it names to reach it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "random_values.h"

namespace random_ops {

enum class Kind {
  all_reduce,
  all_reduce_list,
  all_reduce_shards,  // each rank has one
  all_reduce_some,    // all ranks are in
  scan,
  reduce,
  reduce_scatter,
  reduce_scatter_v,
  broadcast,
  broadcast_list,
  all_gather,
  all_gather_v,
  gather,
  gather_v,
  scatter,
  scatter_v,
  all_to_all,
  all_to_all_v,
  barrier,
  messages,  // from rank to rank, in order
  recv_any,  // several ranks send to one, which takes them in any order
  head_on,   // every rank sends to every other one before it receives
  split,
  free,     // groups
  compare,  // whether all ranks of the group have seen the same bits
};

struct Letter {
  int from, to;  // ranks of the group
  int tag;
  std::size_t count;
  bool send_later, receive_later;  // in the background
};

struct Step {
  std::uint64_t number = 0;
  std::uint64_t key = 0;  // for its values
  Kind kind = Kind::barrier;
  int group = 0;  // 0: the world
  dl_dtype dtype = DL_INT32;
  dl_op op = DL_SUM;
  Flavour flavour = Flavour::bits;
  std::size_t count = 0;  // of a part, if there are parts
  // Of the ranks, or of the tensors; all_to_all_v: from each rank to each, row by row.
  std::vector<std::size_t> counts;
  int root = 0;
  bool later = false;
  std::vector<Letter> letters;
  std::vector<int> colors, keys;  // by rank of the group
  std::map<int, int> made;        // the new groups, by color
};

std::string describe(const Step& step);
bool reduces(Kind kind);
bool rooted(Kind kind);
// Whether the ranks' parts have the lengths `counts`.
bool in_parts_that_differ(Kind kind);

struct Shape {
  std::uint64_t seed = 1;
  int ranks = 1;
  std::size_t max_bytes = 8 << 20;
  int groups_permille = 4;  // steps that make or free a group
  bool any_order = false;   // sums and products of floats are exact in every order
};

class Program {
 public:
  explicit Program(const Shape& shape);
  Step next();
  // World ranks, in the order of the group; also of groups that have been freed.
  const std::vector<int>& members(int group) const {
    return groups_[static_cast<std::size_t>(group)];
  }

 private:
  Step collective(Step step);
  Step letters(Step step);
  Step split(Step step);
  std::size_t any_bytes();
  std::size_t any_count(std::size_t bytes, dl_dtype dtype);
  int size_of(int group) const { return static_cast<int>(members(group).size()); }

  const Shape shape_;
  Random random_;
  std::uint64_t number_ = 0;
  std::vector<std::vector<int>> groups_;
  std::vector<int> alive_;
};

}  // namespace random_ops
