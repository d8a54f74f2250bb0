// JournalWriter: appends the merges of a site to its journal (ring/sites/site_journal.h), from a
// thread of its own, which also encodes the records and brings them to the disk. The journal is
// NAME.journal in its folder; only its owner may read it, because it holds the weights. One writer
// at a time has it. When it is as long as several states, it becomes NAME.journal.1 and a new one
// begins with a snapshot; so both can be replayed. A file that cannot be written, or takes so long
// that too much waits for it, costs one warning, and ends the journal, not the job.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ring/sites/site_journal.h"

namespace dlaunch {

// Bytes that a record refers to, as long as it waits.
using SharedBytes = std::shared_ptr<const std::string>;

// The wall clock, for people and for incarnations.
std::int64_t ns_since_1970();

class JournalWriter {
 public:
  struct Limits {
    std::uint64_t growth = 64 << 20;  // at least so many bytes before a new file begins
    // At most so many bytes wait for the disk; or four states, or two merges and a state.
    std::uint64_t waiting = 512 << 20;
    Duration flush = std::chrono::seconds(10);  // at the end, without any progress
  };
  // Makes the folder if only that is missing, and cuts off a torn tail.
  static Result<std::unique_ptr<JournalWriter>> open(const std::string& folder,
                                                     const std::string& name, const Limits& limits);
  ~JournalWriter() { end(); }
  JournalWriter(const JournalWriter&) = delete;
  JournalWriter& operator=(const JournalWriter&) = delete;

  void start(const SiteMember& me, const std::vector<std::string>& names);
  void merge(const Merge& merge, std::uint64_t hash, const std::vector<SharedBytes>& payloads);
  void snapshot(const MergeId& id, std::uint64_t hash, const SharedBytes& state);
  // The file is so long that the next snapshot begins a new one.
  bool wants_snapshot() const;
  // Writes what waits, while the disk makes progress. Further calls have no effect.
  void end();
  // In a forked child, where this object can do no more.
  void close_in_child();

 private:
  class File;  // what the thread works on; it may outlive this object, on a disk that hangs
  JournalWriter(std::shared_ptr<File> file, std::uint64_t bytes, const Limits& limits);

  void add(JournalRecord record, SharedBytes tail, bool begins_file = false);

  const Limits limits_;
  const std::shared_ptr<File> file_;
  std::uint64_t bytes_;  // of the file, with those that wait; heads of records do not count
  std::uint64_t snapshot_bytes_ = 0;
  std::uint64_t merge_bytes_ = 0;  // of the longest merge
  JournalStart start_;
  std::thread thread_;
};

}  // namespace dlaunch
