// OpenFds: the descriptors of an object, for a forked child that must close its copies: there other
// threads of the parent may have held any lock.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>

namespace dlaunch {

class OpenFds {
 public:
  static constexpr std::size_t kMost = 80;  // further ones stay open in a child

  // Notes one descriptor, and forgets it; destroy it before the descriptor is closed.
  class Slot {
   public:
    Slot(OpenFds& all, int fd) {
      for (auto& place : all.fds_) {
        int none = kNone;
        if (place.compare_exchange_strong(none, fd)) {
          place_ = &place;
          return;
        }
      }
    }
    ~Slot() {
      if (place_ != nullptr) place_->store(kNone);
    }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    void note(int fd) {
      if (place_ != nullptr) place_->store(fd < 0 ? kClosed : fd);
    }

   private:
    std::atomic<int>* place_ = nullptr;
  };

  OpenFds() {
    for (auto& place : fds_) place = kNone;
  }
  void close_in_child() {
    for (auto& place : fds_) {
      if (const int fd = place.exchange(kNone); fd >= 0) ::close(fd);
    }
  }

 private:
  static constexpr int kNone = -1, kClosed = -2;
  std::array<std::atomic<int>, kMost> fds_;
};

}  // namespace dlaunch
