// The journals of <dlaunch/sites.h>.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "dlaunch/sites.h"
#include "ring/api.h"
#include "ring/sites/site_journal.h"
#include "ring/sites/state_replay.h"

using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Result;

struct dl_journal {
  dl_journal(std::string where, std::string_view bytes)
      : path(std::move(where)), file(bytes), reader(bytes), next(reader.next()) {}
  ~dl_journal() { ::munmap(const_cast<char*>(file.data()), file.size()); }
  dl_journal(const dl_journal&) = delete;
  dl_journal& operator=(const dl_journal&) = delete;

  std::string path;
  std::string_view file;
  dlaunch::SiteJournalReader reader;
  std::optional<dlaunch::JournalRecord> next;
  std::vector<std::string> names{};
  dlaunch::StateReplay replay{};
};

namespace {

Result<std::unique_ptr<dl_journal>> open_journal(const std::string& path) {
  dlaunch::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0) return dlaunch::errno_error("open " + path, errno);
  const auto size = static_cast<std::size_t>(st.st_size);
  void* const at =
      size == 0 ? MAP_FAILED : ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (at == MAP_FAILED && size > 0) return dlaunch::errno_error("read " + path, errno);
  std::unique_ptr<dl_journal> journal;
  if (size > 0) {
    journal =
        std::make_unique<dl_journal>(path, std::string_view(static_cast<const char*>(at), size));
  }
  if (!journal || journal->reader.whole_bytes() == 0) {
    return Error{.code = Errc::usage, .what = path + " is not a journal of a site"};
  }
  return journal;
}

std::uint32_t mask_of(const std::vector<dlaunch::SiteMember>& members) {
  std::uint32_t mask = 0;
  for (const auto& member : members) mask |= 1U << member.site;
  return mask;
}

class Step {
 public:
  Step(dl_journal& journal, bool replays, dl_journal_entry& entry)
      : journal_(journal), replays_(replays), entry_(entry) {}

  Result<void> operator()(const dlaunch::JournalStart& start) {
    entry_.kind = DL_JOURNAL_START;
    entry_.when_ns = start.when_ns;
    entry_.site = start.me.site;
    journal_.names = start.names;
    return {};
  }
  Result<void> operator()(const dlaunch::JournalMerge& it) {
    entry_.kind = it.merge.founding ? DL_JOURNAL_FOUNDING : DL_JOURNAL_MERGE;
    set(it.when_ns, it.merge.id, it.hash);
    entry_.members = mask_of(it.merge.members);
    std::vector<std::string_view> payloads;
    while (payloads.size() < it.merge.contributions.size() && journal_.next) {
      const auto* payload = std::get_if<dlaunch::JournalPayload>(&*journal_.next);
      if (payload == nullptr) break;
      entry_.contributed |= 1U << payload->contribution.member.site;
      entry_.bytes += payload->bytes.size();
      payloads.push_back(payload->bytes);
      journal_.next = journal_.reader.next();
    }
    const bool torn = payloads.size() < it.merge.contributions.size() && writing_ended();
    if (!replays_ || torn) return {};
    auto hash = journal_.replay.merge(it.merge, payloads, journal_.names);
    if (!hash) return hash.error();
    return replayed(*hash);
  }
  Result<void> operator()(const dlaunch::JournalPayload&) {
    return Error{.code = Errc::protocol, .what = "a contribution is in no merge"};
  }
  Result<void> operator()(const dlaunch::JournalSnapshot& it) {
    entry_.kind = DL_JOURNAL_SNAPSHOT;
    set(it.when_ns, it.id, it.hash);
    entry_.bytes = it.state.size();
    if (!replays_) return {};
    if (auto ok = journal_.replay.snapshot(it); !ok) return ok;
    return replayed(journal_.replay.hash());
  }

 private:
  // A site was killed here. Another start may follow, and a snapshot with it.
  bool writing_ended() const {
    return !journal_.next || std::holds_alternative<dlaunch::JournalStart>(*journal_.next);
  }
  void set(std::int64_t when, const dlaunch::MergeId& id, std::uint64_t hash) {
    entry_.when_ns = when;
    entry_.epoch = id.epoch;
    entry_.number = id.number;
    entry_.hash = hash;
  }
  Result<void> replayed(const std::optional<std::uint64_t>& hash) {
    entry_.replayed = hash ? 1 : 0;
    entry_.replayed_hash = hash.value_or(0);
    return {};
  }

  dl_journal& journal_;
  const bool replays_;
  dl_journal_entry& entry_;
};

}  // namespace

dl_result dl_journal_open(const char* path, dl_journal** journal) {
  return dlaunch::guarded(nullptr, [&]() -> Result<void> {
    if (path == nullptr || journal == nullptr) {
      return Error{.code = Errc::usage, .what = "dl_journal_open: path or journal is null"};
    }
    *journal = nullptr;
    auto opened = open_journal(path);
    if (!opened) return opened.error();
    *journal = opened->release();
    return {};
  });
}

void dl_journal_close(dl_journal* journal) { delete journal; }

dl_result dl_journal_next(dl_journal* journal, int replay, dl_journal_entry* entry, int* end) {
  return dlaunch::guarded(nullptr, [&]() -> Result<void> {
    if (journal == nullptr || entry == nullptr || end == nullptr ||
        entry->struct_size != sizeof *entry) {
      return Error{.code = Errc::usage,
                   .what = "dl_journal_next: an argument is null, or struct_size is not set"};
    }
    *entry = {};
    entry->struct_size = sizeof *entry;
    *end = journal->next ? 0 : 1;
    if (*end != 0) return {};
    const dlaunch::JournalRecord record = std::move(*journal->next);
    journal->next = journal->reader.next();
    auto ok = std::visit(Step(*journal, replay != 0, *entry), record);
    if (!ok) return Error{.code = ok.error().code, .what = journal->path + ": " + ok.error().what};
    return {};
  });
}

const char* dl_journal_site(const dl_journal* journal, int site) {
  if (journal == nullptr || site < 0) return nullptr;
  const auto at = static_cast<std::size_t>(site);
  return at < journal->names.size() ? journal->names[at].c_str() : nullptr;
}

int dl_journal_torn(const dl_journal* journal) {
  return journal != nullptr && !journal->next && journal->reader.torn() ? 1 : 0;
}
