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

// Removes all commits older than `before` except the newest `keep`, and their unfinished files.
// Files that cannot be removed stay.
void prune_snapshots(const std::string& folder, const Version& before, int keep);

}  // namespace dlaunch
