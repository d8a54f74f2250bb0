// A snapshot on disk: one object of one committed copy per file.
//
//   "dlstate1"  u32 header bytes  u32 CRC-32 of the header  header  content
//   header: round, number, layout, bytes of the content (u64); object, world (i32);
//           description (string); pieces (u64), CRC-32 of each (u32)
//
// Numbers are little-endian. A file appears under its name when it is complete and on the disk.
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

// Makes the folder, and those above it, if need be.
Result<void> make_snapshot_folder(const std::string& folder);
// Fills path, bytes and table from the content. Failing leaves nothing behind.
Result<void> write_snapshot(const std::string& folder, Snapshot snapshot,
                            std::span<const std::byte> content);

struct SnapshotList {
  std::vector<Snapshot> intact;      // as far as header and size tell
  std::vector<std::string> damaged;  // sentences
};
// An absent folder is an empty one.
Result<SnapshotList> list_snapshots(const std::string& folder);
// content.size() == snapshot.bytes. Checks every piece.
Result<void> read_snapshot(const Snapshot& snapshot, std::span<std::byte> content);

// Removes all commits older than `before` but for the newest `keep`, and what of them was never
// finished. What cannot be removed stays.
void prune_snapshots(const std::string& folder, const Version& before, int keep);

}  // namespace dlaunch
