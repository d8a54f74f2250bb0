// A snapshot on disk: one object of one committed copy per file.
//
//   "dlstate1"  u32 header bytes  u32 CRC-32 of the header  header  content
//   header: round, number, layout, bytes of the content (u64); object, world (i32);
//           description (string); pieces (u64), CRC-32 of each (u32)
//
// Numbers are little-endian. A file gets its name when it is complete and on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "elastic/state/holding.h"

namespace dlaunch {

struct Snapshot {
  std::string path;
  CopyId id;
  int world = 0;
  ObjectId object = kReplicated;
  std::uint64_t bytes = 0;
  std::string description;  // Registry's
  PieceTable table;
};

// Makes the folder, and its parents, if needed.
Result<void> make_snapshot_folder(const std::string& folder);
// Fills path, bytes and table from the content. A failure leaves no file behind.
Result<void> write_snapshot(const std::string& folder, Snapshot snapshot,
                            std::span<const std::byte> content);

struct SnapshotList {
  std::vector<Snapshot> intact;      // by header and size
  std::vector<std::string> damaged;  // sentences
  std::uint64_t last_round = 0;      // of all files, also of damaged and unfinished ones
};
// An absent folder is an empty one.
Result<SnapshotList> list_snapshots(const std::string& folder);
// content.size() == snapshot.bytes. Checks every piece.
Result<void> read_snapshot(const Snapshot& snapshot, std::span<std::byte> content);

// Which commits stay beside the one that is being written. One that lacks a rank's part must not
// take the place of a complete one. Where a rank does not know whether a commit is complete, the
// commit stays until there are enough newer ones.
struct SnapshotsToKeep {
  std::size_t number = 1;              // of complete ones
  std::vector<Version> complete = {};  // that all ranks are known to have written, newest first
  Version judged_from = {};  // of commits from this one on the complete ones are known; {}: of none

  void take(std::vector<Version> versions);  // these complete ones, newest first
  void add(const Version& version);  // a complete one, newer than the others or the same again
  bool contains(const Version& version) const;
};
// Removes all other commits older than `before`, and their unfinished files. Files that cannot be
// removed stay.
void prune_snapshots(const std::string& folder, const Version& before, const SnapshotsToKeep& keep);

}  // namespace dlaunch
