#include "rendezvous/file_election.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/text.h"
#include "base/unique_fd.h"
#include "rendezvous/file_store.h"
#include "rendezvous/shared_file.h"

namespace dlaunch {
namespace {

// A network file system does not report other hosts' writes.
constexpr Duration kTermLook = std::chrono::milliseconds(100);

struct flock whole_file(short type) {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  return range;
}

class FileElection final : public LeaderElection {
 public:
  FileElection(std::string lock, std::string note, std::string journal)
      : lock_path_(std::move(lock)),
        note_path_(std::move(note)),
        journal_path_(std::move(journal)) {}

  Result<std::optional<Leader>> find(TimePoint) override;
  void wait_change(TimePoint deadline) override {
    const auto now = steady_now();
    ::poll(nullptr, 0, poll_timeout_ms(now, std::min(deadline, now + kTermLook)));
  }
  Result<bool> campaign(TimePoint) override;
  Result<void> announce(const std::string& endpoint, TimePoint) override;
  Result<void> keep(TimePoint) override;
  Result<void> write_journal(const std::string& journal, TimePoint) override {
    return replace(journal_path_, journal);
  }
  Result<std::string> read_journal(TimePoint) override { return read_whole(journal_path_); }
  void resign(TimePoint) override;

 private:
  Error failed(const char* what, const std::string& path) const {
    return errno_error(std::string(what) + " " + path, errno);
  }
  bool has_its_name(const UniqueFd& fd) const;
  Leader read_note() const;
  Result<void> replace(const std::string& path, const std::string& bytes);

  const std::string lock_path_, note_path_, journal_path_;
  UniqueFd held_;  // while we lead
  std::uint64_t term_ = 0;
};

bool FileElection::has_its_name(const UniqueFd& fd) const {
  struct stat ours {
  }, there{};
  return ::fstat(fd.get(), &ours) == 0 && ::stat(lock_path_.c_str(), &there) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

// A malformed note counts as empty.
Leader FileElection::read_note() const {
  const auto bytes = read_whole(note_path_);
  if (!bytes || !bytes->ends_with('\n')) return {};
  const auto text = std::string_view(*bytes).substr(0, bytes->size() - 1);
  const auto space = text.find(' ');
  if (space == text.npos) return {};
  Leader leader{.endpoint = escaped(text.substr(space + 1))};
  const auto [end, err] = std::from_chars(text.data(), text.data() + space, leader.term);
  return err == std::errc() && end == text.data() + space ? leader : Leader();
}

// Replaces the file atomically, and on disk.
Result<void> FileElection::replace(const std::string& path, const std::string& bytes) {
  if (auto ours = keep(kNever); !ours) return ours;
  const std::string beside = path + "~";
  const auto fresh = write_anew(beside, bytes);
  if (!fresh) return fresh.error();
  return put_in_place(*fresh, beside, path);
}

// The note of a dead leader does not count.
Result<std::optional<Leader>> FileElection::find(TimePoint) {
  const UniqueFd fd(::open(lock_path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd && errno == ENOENT) return std::optional<Leader>();
  if (!fd) return failed("open", lock_path_);
  struct flock range = whole_file(F_WRLCK);
  if (::fcntl(fd.get(), F_OFD_GETLK, &range) != 0) return failed("look at the lock of", lock_path_);
  if (range.l_type == F_UNLCK || !has_its_name(fd)) return std::optional<Leader>();
  return std::optional(read_note());
}

Result<bool> FileElection::campaign(TimePoint) {
  UniqueFd fd(::open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return failed("create", lock_path_);
  struct flock range = whole_file(F_WRLCK);
  if (::fcntl(fd.get(), F_OFD_SETLK, &range) != 0) {
    if (errno == EAGAIN || errno == EACCES || errno == EINTR) return false;
    return failed("lock", lock_path_);
  }
  if (!has_its_name(fd)) return false;  // the previous holder has removed it: try again later
  held_ = std::move(fd);
  term_ = read_note().term + 1;
  if (auto done = announce("", kNever); !done) {
    held_.reset();
    return done.error();
  }
  return true;
}

Result<void> FileElection::announce(const std::string& endpoint, TimePoint) {
  return replace(note_path_, std::to_string(term_) + " " + endpoint + "\n");
}

// The kernel keeps the lock; but the folder may have been removed.
Result<void> FileElection::keep(TimePoint) {
  if (held_ && has_its_name(held_)) return {};
  return Error{.code = Errc::aborted,
               .what = "the lock " + lock_path_ + " no longer belongs to this process"};
}

void FileElection::resign(TimePoint) {
  if (!held_) return;
  if (has_its_name(held_)) {
    ::unlink(journal_path_.c_str());
    ::unlink(note_path_.c_str());
    ::unlink(lock_path_.c_str());
  }
  held_.reset();
}

}  // namespace

Result<std::unique_ptr<LeaderElection>> open_file_election(const std::string& folder,
                                                           const std::string& job_id) {
  auto lock = job_file(folder, "lock", job_id);
  if (!lock) return lock.error();
  auto note = job_file(folder, "leader", job_id);
  if (!note) return note.error();
  auto journal = job_file(folder, "journal", job_id);
  if (!journal) return journal.error();
  return std::unique_ptr<LeaderElection>(new FileElection(*lock, *note, *journal));
}

}  // namespace dlaunch
