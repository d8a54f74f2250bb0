// Copies: the committed copies of the state in this process. There are two, so that the last commit
// is whole while the next is made, and three if a snapshot may be reading one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "elastic/state/holding.h"

namespace dlaunch {

struct Copy {
  // An object that is not whole is being filled, or was left half filled.
  struct Object {
    std::vector<std::byte> bytes;
    bool whole = false;
  };

  bool committed = false;  // id and the following members count
  CopyId id;
  std::uint64_t base = 0;
  int world = 0;
  std::map<ObjectId, Object> objects;
  std::atomic<bool> busy = false;  // a snapshot is reading it

  std::span<std::byte> bytes(ObjectId object) { return objects.at(object).bytes; }
  bool has(ObjectId object) const;
  // Makes room for an object, which is not whole yet. False: no memory.
  [[nodiscard]] bool make_room(ObjectId object, std::size_t bytes);
  void forget_all_but(std::span<const ObjectId> objects_kept);
  Holding holding() const;  // the whole objects
};

class Copies {
 public:
  // All holdings.
  std::vector<Holding> holdings() const;
  Version newest() const;  // of all holdings
  // The copy of this name, or null.
  Copy* find(const CopyId& id);
  // The newest that is older than this, or null.
  const Copy* newest_before(const CopyId& id) const;
  // A copy to fill: neither `kept` nor read by a snapshot; an unused one, else the oldest. It is no
  // longer committed.
  Copy& take_other_than(const Copy* kept);
  void forget_all();
  void make_place_for_snapshots() { used_ = copies_.size(); }

 private:
  std::array<Copy, 3> copies_;
  std::size_t used_ = 2;
};

}  // namespace dlaunch
