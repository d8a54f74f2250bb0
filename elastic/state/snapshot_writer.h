// SnapshotWriter: writes committed copies to disk in its own thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "elastic/state/copies.h"
#include "elastic/state/snapshot_file.h"

namespace dlaunch {

class SnapshotWriter {
 public:
  // All its snapshots share the folder and the description.
  SnapshotWriter(std::string folder, int keep, std::string description);
  // Waits for the snapshot that is being written.
  ~SnapshotWriter();
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  const std::string& folder() const { return folder_; }
  const std::string& description() const { return description_; }

  bool idle() const;
  void wait_idle();
  // Must be idle. The copy is busy, and must not change, until all is written. Reports a failure on
  // stderr, once until a write succeeds again. Fails if the system has no thread to give.
  Result<void> write(Copy& copy, std::vector<ObjectId> objects);

 private:
  void work();
  void write_now(const Copy& copy, const std::vector<ObjectId>& objects);

  const std::string folder_;
  const int keep_;
  const std::string description_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Copy* copy_ = nullptr;  // to be written, or being written
  std::vector<ObjectId> objects_;
  bool stop_ = false;
  bool complained_ = false;  // of the thread alone
  std::thread thread_;
};

}  // namespace dlaunch
