#include "ring/sites/site_journal.h"

#include <fstream>

#include <dlaunch/sites.h>
#include <doctest/doctest.h>

#include "ring/compress/outer_state.h"
#include "ring/sites/outer_merge.h"
#include "tests/unit/temp_folder.h"

namespace dlaunch {
namespace {

std::string journal_bytes(const JournalRecord& record) {
  const auto encoded = encode_journal_record(record);
  return encoded.head + std::string(encoded.tail);
}

Contribution for_merge(std::uint64_t number, std::string_view bytes) {
  return {{1, 11}, {5, number}, bytes.size(), 42};
}

JournalMerge journal_merge(std::uint64_t number, std::string_view bytes) {
  const Merge merge{.id = {5, number},
                    .members = {{1, 11}},
                    .contributions = {for_merge(number, bytes)},
                    .order = {1},
                    .founding = false,
                    .hash = 0};
  return {99, merge, 1000 + number};
}

// A start, the state after 6, the merge 7 with its payload.
std::string some_file() {
  return std::string(kSiteJournalMagic) +
         journal_bytes(JournalStart{5, {1, 11}, {"left", "right"}}) +
         journal_bytes(JournalSnapshot{7, {5, 6}, 1006, "the state"}) +
         journal_bytes(journal_merge(7, "payload")) +
         journal_bytes(JournalPayload{for_merge(7, "payload"), "payload"});
}

}  // namespace

TEST_CASE("site journal: what was written is read") {
  const std::string file = some_file();
  const auto replay = read_site_journal(file);
  CHECK_FALSE(replay.torn);
  CHECK(replay.names == std::vector<std::string>{"left", "right"});
  REQUIRE(replay.snapshot);
  CHECK(replay.snapshot->id == MergeId{5, 6});
  CHECK(replay.snapshot->hash == 1006);
  CHECK(replay.snapshot->state == "the state");
  REQUIRE(replay.steps.size() == 1);
  CHECK(replay.steps[0].merge.merge == journal_merge(7, "payload").merge);
  CHECK(replay.steps[0].merge.when_ns == 99);
  CHECK(replay.steps[0].merge.hash == 1007);
  REQUIRE(replay.steps[0].payloads.size() == 1);
  CHECK(replay.steps[0].payloads[0].bytes == "payload");
}

TEST_CASE("site journal: the CRC is zlib's") {
  // A start without names: python3 -c 'import zlib; …'
  const std::string record = journal_bytes(JournalStart{0, {0, 0}, {}});
  REQUIRE(record.size() == 16 + 25);
  // zlib.crc32(bytes([25, 0, 0, 0, 0, 0, 0, 0])) and zlib.crc32(bytes(25))
  CHECK(record.substr(8, 4) == std::string("\x69\xf5\xd6\x06", 4));
  CHECK(record.substr(12, 4) == std::string("\x8f\x0e\xcf\xe9", 4));
}

TEST_CASE("site journal: a torn tail ends what is read, wherever it is torn") {
  const std::string file = some_file();
  std::uint64_t last = kSiteJournalMagic.size();
  for (std::size_t size = kSiteJournalMagic.size(); size < file.size(); ++size) {
    const std::string torn = file.substr(0, size);
    SiteJournalReader reader(torn);
    while (reader.next()) {
    }
    CHECK(reader.whole_bytes() >= last);
    CHECK(reader.whole_bytes() <= size);
    CHECK(reader.torn() == (reader.whole_bytes() < size));
    last = reader.whole_bytes();
  }
  SiteJournalReader foreign("dlsites2 or another file");
  CHECK_FALSE(foreign.next());
  CHECK(foreign.whole_bytes() == 0);
}

TEST_CASE("site journal: a changed byte ends what is read") {
  const std::string file = some_file();
  for (std::size_t at = kSiteJournalMagic.size(); at < file.size(); ++at) {
    std::string changed = file;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    SiteJournalReader reader(changed);
    while (reader.next()) {
    }
    CHECK(reader.torn());
    CHECK(reader.whole_bytes() <= at);
  }
}

TEST_CASE("site journal: a replay begins at the last snapshot that merges follow") {
  std::string file = some_file() + journal_bytes(JournalSnapshot{8, {5, 7}, 1007, "newer"});
  CHECK(read_site_journal(file).snapshot->id == MergeId{5, 6});
  file += journal_bytes(journal_merge(8, "more"));
  auto replay = read_site_journal(file);
  CHECK(replay.snapshot->id == MergeId{5, 7});
  CHECK(replay.steps.size() == 1);
  CHECK(replay.steps[0].payloads.empty());  // torn before it: the replay says so
  // Only a snapshot: nothing to compute, but a state.
  file = std::string(kSiteJournalMagic) + journal_bytes(JournalSnapshot{8, {5, 7}, 1007, "newer"});
  replay = read_site_journal(file);
  CHECK(replay.snapshot->state == "newer");
  CHECK(replay.steps.empty());
}

TEST_CASE("site journal: a replay goes on behind a merge that a kill has cut off") {
  std::vector<float> w(kCodecUnit);
  OuterState state({}, {w});
  const std::string copy = copy_state(state, WireCodec::none, 1);
  const std::string payload =
      encode_payload({.common = 1, .steps = 4}, WireCodec::none, w, nullptr);
  const std::string life = journal_bytes(JournalStart{5, {1, 11}, {"left", "right"}}) +
                           journal_bytes(JournalSnapshot{7, {5, 0}, hash_of_state(state), copy}) +
                           journal_bytes(journal_merge(1, payload));
  const TempFolder folder;
  const std::string path = (folder.path / "sea.journal").string();
  std::ofstream(path, std::ios::binary)
      << kSiteJournalMagic << life << life
      << journal_bytes(JournalPayload{for_merge(1, payload), payload});

  dl_journal* journal = nullptr;
  REQUIRE(dl_journal_open(path.c_str(), &journal) == DL_OK);
  std::string replayed;
  for (int end = 0;;) {
    dl_journal_entry entry;
    entry.struct_size = sizeof entry;
    REQUIRE_MESSAGE(dl_journal_next(journal, 1, &entry, &end) == DL_OK, dl_last_error(nullptr));
    if (end != 0) break;
    replayed += static_cast<char>('0' + entry.replayed);
  }
  CHECK(replayed == "010011");  // start, snapshot, merge, in both lives
  CHECK(dl_journal_torn(journal) == 0);
  dl_journal_close(journal);
}

TEST_CASE("site journal: a writer appends behind the last record that is right") {
  const std::string whole = some_file();
  CHECK(journal_end(whole) == whole.size());
  CHECK(journal_end(whole + "half a record") == whole.size());
  CHECK(journal_end("notes about the sea") == 0);
  const std::string payload = journal_bytes(JournalPayload{for_merge(7, "payload"), "payload"});
  std::string broken = whole;
  broken.back() ^= 1;
  CHECK(journal_end(broken) == whole.size() - payload.size());
  // Bodies before the last one are not read.
  broken = whole;
  broken[kSiteJournalMagic.size() + 20] ^= 1;
  CHECK(journal_end(broken) == whole.size());
}

}  // namespace dlaunch
