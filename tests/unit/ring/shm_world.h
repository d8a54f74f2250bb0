// n ranks as threads of this process over one piece of shared memory: either real memfds, mapped
// once per rank as processes do, or one heap, in which thread sanitizer sees every access.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "ring/shm/shm_memory.h"
#include "ring/shm/shm_regions.h"

namespace dlaunch {

class ShmWorld {
 public:
  ShmWorld(int ranks, int usable_cores, bool memfds, std::vector<int> names = {},
           const PlanRules& rules = {})
      : ranks_(ranks) {
    for (int r = 0; r < ranks; ++r) regions_.push_back(std::make_shared<ShmRegions>(r));
    for (int r = 0; r < ranks; ++r) aborts_.push_back(std::make_unique<AbortFlag>());
    auto memories = memfds ? from_memfds() : from_heap();
    for (int r = 0; r < ranks; ++r) {
      planes_.push_back(make_shm_plane(r, std::move(memories[static_cast<std::size_t>(r)]),
                                       abort(r),
                                       ShmOptions{usable_cores, names, region(r), rules}));
    }
  }

  int ranks() const { return ranks_; }
  // Memory of all ranks that they read in place, as dl_alloc() makes it; by rank.
  std::vector<char*> allocate(std::size_t bytes) {
    ShmRegion region;
    std::vector<char*> memory;
    for (int r = 0; r < ranks_; ++r) {
      memory.push_back(static_cast<char*>(std::calloc(bytes, 1)));
      region.ranks.emplace_back(memory.back(), std::free);
      region.bytes.push_back(bytes);
    }
    for (const auto& regions : regions_) regions->add(region);
    return memory;
  }
  // The plane's memory and its flag stay with this object.
  std::unique_ptr<Plane> take(int rank) {
    return std::move(planes_[static_cast<std::size_t>(rank)]);
  }
  Plane& plane(int rank) { return *planes_[static_cast<std::size_t>(rank)]; }
  AbortFlag& abort(int rank) { return *aborts_[static_cast<std::size_t>(rank)]; }

  // Runs body(rank) for every rank at once.
  void each(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks_; ++r) threads.emplace_back([&, r] { body(r); });
    for (auto& thread : threads) thread.join();
  }

 private:
  std::vector<ShmMemory> from_memfds() {
    auto control = make_shm_control(ranks_);
    auto data = make_shm_data(ranks_);
    std::vector<ShmMemory> memories;
    for (int r = 0; r < ranks_; ++r) {
      memories.push_back(std::move(*map_shm(r, ranks_, *control, *data)));
    }
    seal_shm_data(*data);
    for (const ShmMemory& memory : memories) memory.fault_in();
    return memories;
  }

  std::vector<ShmMemory> from_heap() {
    const ShmShape shape = shape_for(ranks_);
    auto block = [](std::size_t bytes) {
      void* p = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
      std::memset(p, 0, bytes);
      return std::shared_ptr<void>(p, std::free);
    };
    ShmMemory common;
    common.shape = shape;
    common.keep.push_back(block(shape.control_bytes()));
    common.header = static_cast<ShmHeader*>(common.keep.back().get());
    common.ranks = reinterpret_cast<ShmRank*>(common.header + 1);
    for (int r = 0; r < ranks_; ++r) {
      common.keep.push_back(block(shape.data_bytes()));
      common.data.push_back(static_cast<const char*>(common.keep.back().get()));
    }
    std::vector<ShmMemory> memories(static_cast<std::size_t>(ranks_), common);
    for (auto& memory : memories) {
      memory.own =
          const_cast<char*>(common.data[static_cast<std::size_t>(&memory - memories.data())]);
      memory.find_small(static_cast<int>(&memory - memories.data()));
    }
    return memories;
  }

  const std::shared_ptr<ShmRegions>& region(int rank) const {
    return regions_[static_cast<std::size_t>(rank)];
  }

  int ranks_;
  std::vector<std::shared_ptr<ShmRegions>> regions_;
  std::vector<std::unique_ptr<AbortFlag>> aborts_;
  std::vector<std::unique_ptr<Plane>> planes_;
};

}  // namespace dlaunch
