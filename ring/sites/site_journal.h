// The journal of a site: every merge that it applied, with the payloads, and now and then the whole
// outer state. state(n) = f(snapshot, merges up to n): a program can compute each state again.
// Pure encoding; the shell appends to the file.
//
// The file: the 8 bytes "dlsites1", then records. A record:
//   u64 size of the body   u32 CRC-32 of the size   u32 CRC-32 of the body (zlib's crc32)   body
// A body: u8 kind (place in the variant), then the members in order, as base/record.h says:
// little-endian, a bool is a byte, a text or list has a u32 length before it. The bytes of a
// payload or a state have none: they are the rest of the body. A record that was not written to its
// end is a torn tail: readers stop before it, and a writer cuts it off before it appends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ring/sites/site_merge.h"

namespace dlaunch {

inline constexpr std::string_view kSiteJournalMagic = "dlsites1";

// An endpoint has started and appends from here on.
struct JournalStart {
  std::int64_t when_ns = 0;  // wall-clock time since 1970, as in all records
  SiteMember me;
  std::vector<std::string> names;  // of all sites, by number
};
// The site has applied this merge (or adopted this founding); the payloads follow, in the order of
// the contributions.
struct JournalMerge {
  std::int64_t when_ns = 0;
  Merge merge;
  std::uint64_t hash = 0;  // of the outer state after it
};
struct JournalPayload {
  Contribution contribution;
  std::string_view bytes;
};
// The whole outer state after merge `id`.
struct JournalSnapshot {
  std::int64_t when_ns = 0;
  MergeId id;
  std::uint64_t hash = 0;
  std::string_view state;
};
using JournalRecord = std::variant<JournalStart, JournalMerge, JournalPayload, JournalSnapshot>;

// A record in two parts, for writev(): the head holds everything before the long bytes, which are
// the caller's own (empty for short records) and end the record.
struct EncodedRecord {
  std::string head;
  std::string_view tail;
};
EncodedRecord encode_journal_record(const JournalRecord& record);
// The body of a record, after its CRC was right; nothing: it is none.
std::optional<JournalRecord> decode_journal_body(std::string_view body);

// Reads the records of a file in memory (or mapped); payloads and states point into it.
class SiteJournalReader {
 public:
  explicit SiteJournalReader(std::string_view file);
  // The next record; nothing: the end, or whatever stands there is no whole record.
  std::optional<JournalRecord> next();
  // Bytes up to the end of the last whole record: a writer appends there. 0: not such a file.
  std::uint64_t whole_bytes() const { return whole_; }
  // Behind the whole records stand bytes that are none.
  bool torn() const { return whole_ < file_.size(); }

 private:
  std::string_view file_;
  std::uint64_t whole_ = 0;
};

// Where a writer appends: behind the last record whose body is right, however long the file is. It
// reads the heads of the records before that one, but not their bodies. 0: not such a file.
std::uint64_t journal_end(std::string_view file);

// What a journal has for a replay: the last snapshot that merges follow (or the last one, if none
// has merges behind it), and these merges. A merge whose payloads are not all there, or that does
// not continue the one before, ends nothing here: the replay itself reports it.
struct JournalStep {
  JournalMerge merge;
  std::vector<JournalPayload> payloads;  // those that the file has, in the order of contributions
};
struct JournalReplay {
  std::vector<std::string> names;  // of the last start
  std::optional<JournalSnapshot> snapshot;
  std::vector<JournalStep> steps;  // after the snapshot; without one, all
  bool torn = false;
};
JournalReplay read_site_journal(std::string_view file);

}  // namespace dlaunch
