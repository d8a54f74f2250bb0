#include "fuzz.h"
#include "ring/sites/site_journal.h"

static std::string whole_record(const dlaunch::JournalRecord& record) {
  const auto encoded = dlaunch::encode_journal_record(record);
  return encoded.head + std::string(encoded.tail);
}

static int fuzz_site_journal(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const std::string_view file = fuzz_text(data, size);
  SiteJournalReader reader(file);
  std::string again(kSiteJournalMagic);
  while (const auto record = reader.next()) again += whole_record(*record);
  fuzz_check(reader.whole_bytes() <= size);
  (void)read_site_journal(file);
  // Mutations seldom have the right CRC.
  if (const auto record = decode_journal_body(file)) {
    fuzz_check(read_site_journal(std::string(kSiteJournalMagic) + whole_record(*record)).torn ==
               false);
    return 0;
  }
  if (reader.whole_bytes() == 0) return -1;
  // What was read is written again in the same bytes; a bool may have been any byte.
  SiteJournalReader second(again);
  while (second.next()) {
  }
  fuzz_check(!second.torn());
  return 0;
}

static std::vector<std::string> site_journal_examples() {
  using namespace dlaunch;
  const SiteMember first{0, 11};
  const Contribution payload{first, {5, 7}, 3, 42};
  const Merge merge{.id = {5, 7},
                    .members = {first},
                    .contributions = {payload},
                    .order = {0},
                    .founding = false,
                    .hash = 0};
  std::string file(kSiteJournalMagic);
  file += whole_record(JournalStart{1, first, {"a", "b"}});
  file += whole_record(JournalSnapshot{2, {5, 6}, 8, "state"});
  file += whole_record(JournalMerge{3, merge, 9});
  file += whole_record(JournalPayload{payload, "abc"});
  std::vector<std::string> all = {std::string(kSiteJournalMagic), file,
                                  file.substr(0, file.size() - 1)};
  for (const JournalRecord& record :
       {JournalRecord(JournalStart{1, first, {"a", "b"}}), JournalRecord(JournalMerge{3, merge, 9}),
        JournalRecord(JournalPayload{payload, "abc"})}) {
    all.push_back(whole_record(record).substr(16));  // the body
  }
  return all;
}

static const FuzzTarget site_journal_target("site_journal", fuzz_site_journal,
                                            site_journal_examples);
