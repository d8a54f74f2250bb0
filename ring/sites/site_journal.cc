#include "ring/sites/site_journal.h"

#include <array>
#include <type_traits>
#include <utility>

#include "base/record.h"

namespace dlaunch {
namespace {

constexpr std::size_t kRecordHead = 8 + 4 + 4;
constexpr RecordLimits kJournalTexts{.text = 4096, .items = 256};

// Of zlib's CRC-32: [n][byte] is the CRC of that byte and n zero bytes behind it.
using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr CrcTables crc_tables() {
  CrcTables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    tables[0][byte] = crc;
  }
  for (std::size_t n = 1; n < tables.size(); ++n) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = tables[n - 1][byte];
      tables[n][byte] = crc >> 8 ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}

// crc32(a + b) is crc32_of(b, crc32_of(a)). Eight bytes at a time.
std::uint32_t crc32_of(std::string_view bytes, std::uint32_t before = 0) {
  static constexpr auto kTables = crc_tables();
  std::uint32_t crc = ~before;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    const auto word = Reader(bytes).get<std::uint64_t>() ^ crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][word >> 8 * i & 0xff];
  }
  for (const char c : bytes) {
    crc = crc >> 8 ^ kTables[0][(crc ^ static_cast<unsigned char>(c)) & 0xff];
  }
  return ~crc;
}

struct RecordHead {
  std::uint64_t size = 0;  // of the body
  std::uint32_t crc = 0;   // of the body
};

// Nothing: no record that could be whole begins there.
std::optional<RecordHead> head_at(std::string_view file, std::uint64_t at) {
  const std::string_view rest = file.substr(at);
  Reader in(rest);
  RecordHead head{.size = in.get<std::uint64_t>()};
  const auto size_crc = in.get<std::uint32_t>();
  head.crc = in.get<std::uint32_t>();
  if (!in.ok() || crc32_of(rest.substr(0, 8)) != size_crc || head.size > in.left()) {
    return std::nullopt;
  }
  return head;
}

// What stands before the long bytes of a record, and these.
std::string_view long_bytes(const JournalPayload& it) { return it.bytes; }
std::string_view long_bytes(const JournalSnapshot& it) { return it.state; }
template <class Record>
std::string_view long_bytes(const Record&) {
  return {};
}
template <class Out>
void write_short(Out& out, const JournalPayload& it) {
  out(it.contribution);
}
template <class Out>
void write_short(Out& out, const JournalSnapshot& it) {
  out(it.when_ns), out(it.id), out(it.hash);
}
template <class Out, class Record>
void write_short(Out& out, const Record& it) {
  out(it);
}

// The same record without its long bytes, which end the body.
struct SnapshotHead {
  std::int64_t when_ns = 0;
  MergeId id;
  std::uint64_t hash = 0;
};

template <class Head>
std::optional<Head> take_head(std::string_view& body) {
  static const std::size_t size = encode_record(Head{}).size();  // no texts, no lists
  Head head;
  if (body.size() < size || !decode_record(body.substr(0, size), head)) return std::nullopt;
  body.remove_prefix(size);
  return head;
}

template <class Record>
std::optional<JournalRecord> whole_record(std::string_view body) {
  Record record;
  if (!decode_record(body, record, kJournalTexts)) return std::nullopt;
  return record;
}

}  // namespace

std::optional<JournalRecord> decode_journal_body(std::string_view body) {
  if (body.empty()) return std::nullopt;
  const auto kind = static_cast<unsigned char>(body.front());
  body.remove_prefix(1);
  switch (kind) {
    case 0:
      return whole_record<JournalStart>(body);
    case 1: {
      auto record = whole_record<JournalMerge>(body);
      if (record && !makes_sense(std::get<JournalMerge>(*record).merge)) return std::nullopt;
      return record;
    }
    case 2: {
      const auto head = take_head<Contribution>(body);
      if (!head || !makes_sense(*head) || head->bytes != body.size()) return std::nullopt;
      return JournalPayload{*head, body};
    }
    case 3: {
      const auto head = take_head<SnapshotHead>(body);
      if (!head) return std::nullopt;
      return JournalSnapshot{head->when_ns, head->id, head->hash, body};
    }
    default:
      return std::nullopt;
  }
}

EncodedRecord encode_journal_record(const JournalRecord& record) {
  RecordWriter body(kJournalTexts);
  body(static_cast<std::uint8_t>(record.index()));
  std::visit([&](const auto& it) { write_short(body, it); }, record);
  const auto tail = std::visit([](const auto& it) { return long_bytes(it); }, record);
  Writer size;
  size.put(static_cast<std::uint64_t>(body.bytes().size() + tail.size()));
  Writer out;
  out.put_raw(size.bytes());
  out.put(crc32_of(size.bytes()));
  out.put(crc32_of(tail, crc32_of(body.bytes())));
  out.put_raw(body.bytes());
  return {out.take(), tail};
}

SiteJournalReader::SiteJournalReader(std::string_view file) : file_(file) {
  if (file.starts_with(kSiteJournalMagic)) whole_ = kSiteJournalMagic.size();
}

std::optional<JournalRecord> SiteJournalReader::next() {
  if (whole_ == 0) return std::nullopt;
  const auto head = head_at(file_, whole_);
  if (!head) return std::nullopt;
  const std::string_view body = file_.substr(whole_ + kRecordHead, head->size);
  if (crc32_of(body) != head->crc) return std::nullopt;
  auto record = decode_journal_body(body);
  if (record) whole_ += kRecordHead + head->size;
  return record;
}

std::uint64_t journal_end(std::string_view file) {
  if (!file.starts_with(kSiteJournalMagic)) return 0;
  std::vector<std::uint64_t> starts;
  std::uint64_t end = kSiteJournalMagic.size();
  while (const auto head = head_at(file, end)) {
    starts.push_back(end);
    end += kRecordHead + head->size;
  }
  for (; !starts.empty(); starts.pop_back()) {
    const std::uint64_t at = starts.back();
    const std::string_view body = file.substr(at + kRecordHead, end - at - kRecordHead);
    if (crc32_of(body) == head_at(file, at)->crc) break;
    end = at;
  }
  return end;
}

JournalReplay read_site_journal(std::string_view file) {
  JournalReplay replay;
  SiteJournalReader reader(file);
  std::optional<JournalSnapshot> later;  // no merge follows it yet
  while (auto record = reader.next()) {
    if (auto* start = std::get_if<JournalStart>(&*record)) {
      replay.names = std::move(start->names);
    } else if (auto* snapshot = std::get_if<JournalSnapshot>(&*record)) {
      later = *snapshot;
    } else if (auto* payload = std::get_if<JournalPayload>(&*record)) {
      if (!replay.steps.empty()) replay.steps.back().payloads.push_back(*payload);
    } else {
      if (later) {
        replay.steps.clear();
        replay.snapshot = std::exchange(later, std::nullopt);
      }
      replay.steps.push_back({std::get<JournalMerge>(std::move(*record)), {}});
    }
  }
  if (!replay.snapshot && later) {
    replay.snapshot = later;
    replay.steps.clear();
  }
  replay.torn = reader.torn();
  return replay;
}

}  // namespace dlaunch
