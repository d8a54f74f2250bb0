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
  SnapshotWriter(std::string folder, std::string description);
  // Waits for the snapshot that is being written.
  ~SnapshotWriter();
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  const std::string& folder() const { return folder_; }
  const std::string& description() const { return description_; }

  bool idle() const;
  void wait_idle();
  // The last commit that it has written, with all objects that it was given.
  Version written() const;
  // Must be idle. The copy is busy, and must not change, until all is written. Removes older
  // commits first. Reports a failure on stderr, once until a write succeeds again. Fails if the
  // system has no thread to give.
  Result<void> write(Copy& copy, std::vector<ObjectId> objects, SnapshotsToKeep keep);

 private:
  void work();
  bool write_now(const Copy& copy, const std::vector<ObjectId>& objects,
                 const SnapshotsToKeep& keep);

  const std::string folder_;
  const std::string description_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Copy* copy_ = nullptr;  // to be written, or being written
  std::vector<ObjectId> objects_;
  SnapshotsToKeep keep_;
  Version written_;
  bool stop_ = false;
  bool complained_ = false;  // of the thread alone
  std::thread thread_;
};

}  // namespace dlaunch
