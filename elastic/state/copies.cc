#include "elastic/state/copies.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "base/check.h"

namespace dlaunch {

bool Copy::has(ObjectId object) const {
  const auto it = objects.find(object);
  return it != objects.end() && it->second.whole;
}

bool Copy::make_room(ObjectId object, std::size_t bytes) {
  Object& room = objects[object];
  room.whole = false;
  if (room.bytes.size() == bytes) return true;
  try {
    room.bytes = {};  // not both sizes at once
    room.bytes.resize(bytes);
  } catch (const std::bad_alloc&) {
    return false;
  } catch (const std::length_error&) {
    return false;
  }
  return true;
}

void Copy::forget_all_but(std::span<const ObjectId> objects_kept) {
  std::erase_if(objects, [&](const auto& item) {
    return std::ranges::find(objects_kept, item.first) == objects_kept.end();
  });
}

Holding Copy::holding() const {
  Holding holding{.id = id, .base = base, .world = world, .objects = {}};
  for (const auto& [object, room] : objects) {
    if (room.whole) holding.objects[object] = room.bytes.size();
  }
  return holding;
}

std::vector<Holding> Copies::holdings() const {
  std::vector<Holding> all;
  for (const auto& copy : copies_) {
    if (copy.committed) all.push_back(copy.holding());
  }
  return all;
}

Version Copies::newest() const {
  Version newest;
  for (const auto& copy : copies_) {
    if (copy.committed) newest = std::max(newest, copy.id.version);
  }
  return newest;
}

Copy* Copies::find(const CopyId& id) {
  for (auto& copy : copies_) {
    if (copy.committed && copy.id == id) return &copy;
  }
  return nullptr;
}

const Copy* Copies::newest_before(const CopyId& id) const {
  const Copy* best = nullptr;
  for (const auto& copy : copies_) {
    const bool older = copy.committed && copy.id < id;
    if (older && (best == nullptr || best->id < copy.id)) best = &copy;
  }
  return best;
}

Copy& Copies::take_other_than(const Copy* kept) {
  Copy* best = nullptr;
  for (std::size_t i = 0; i < used_; ++i) {
    Copy& copy = copies_[i];
    if (&copy == kept || copy.busy) continue;
    const auto age = [](const Copy& c) { return c.committed ? c.id : CopyId(); };
    if (best == nullptr || age(copy) < age(*best)) best = &copy;
  }
  DL_ASSERT(best != nullptr);
  best->committed = false;
  return *best;
}

void Copies::forget_all() {
  for (auto& copy : copies_) copy.committed = false;
}

}  // namespace dlaunch
