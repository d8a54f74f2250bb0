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
  Error lost() const {
    return {.code = Errc::aborted,
            .what = "the lock " + lock_path_ + " no longer belongs to this process"};
  }
  Result<bool> has_its_name(const UniqueFd& fd) const;
  Result<Leader> read_note() const;
  Result<void> replace(const std::string& path, const std::string& bytes);

  const std::string lock_path_, note_path_, journal_path_;
  UniqueFd held_;  // while we lead
  std::uint64_t term_ = 0;
};

// False: another file has the name, or none. An error: the file server has not said.
Result<bool> FileElection::has_its_name(const UniqueFd& fd) const {
  struct stat ours {
  }, there{};
  const bool open = ::fstat(fd.get(), &ours) == 0;
  if (!open && errno == ESTALE) return false;
  if (!open) return failed("stat", lock_path_);
  const bool found = ::stat(lock_path_.c_str(), &there) == 0;
  if (!found && (errno == ENOENT || errno == ENOTDIR)) return false;
  if (!found) return failed("stat", lock_path_);
  return ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

// A malformed note counts as empty.
Result<Leader> FileElection::read_note() const {
  const auto bytes = read_whole(note_path_);
  if (!bytes && bytes.error().code != Errc::protocol) return bytes.error();
  if (!bytes || !bytes->ends_with('\n')) return Leader();
  const auto text = std::string_view(*bytes).substr(0, bytes->size() - 1);
  const auto space = text.find(' ');
  if (space == text.npos) return Leader();
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
  if (range.l_type == F_UNLCK) return std::optional<Leader>();
  const auto named = has_its_name(fd);
  if (!named) return named.error();
  if (!*named) return std::optional<Leader>();
  const auto note = read_note();
  return std::optional(note ? *note : Leader());
}

Result<bool> FileElection::campaign(TimePoint) {
  UniqueFd fd(::open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return failed("create", lock_path_);
  struct flock range = whole_file(F_WRLCK);
  if (::fcntl(fd.get(), F_OFD_SETLK, &range) != 0) {
    if (errno == EAGAIN || errno == EACCES || errno == EINTR) return false;
    return failed("lock", lock_path_);
  }
  const auto named = has_its_name(fd);
  if (!named) return named.error();
  if (!*named) return false;  // the previous holder has removed it: try again later
  const auto last = read_note();
  if (!last) return last.error();
  held_ = std::move(fd);
  term_ = last->term + 1;
  // A previous holder that does not know of its end finds the higher term before it writes.
  if (auto done = announce("", kNever); !done) {
    held_.reset();
    return done.error();
  }
  return true;
}

Result<void> FileElection::announce(const std::string& endpoint, TimePoint) {
  return replace(note_path_, std::to_string(term_) + " " + endpoint + "\n");
}

// The kernel keeps the lock; but the folder may have been removed, or the file server may have lost
// the lock in a restart and given it to another host, which has then written a higher term.
Result<void> FileElection::keep(TimePoint) {
  if (!held_) return lost();
  const auto named = has_its_name(held_);
  if (!named) return named.error();
  if (!*named) return lost();
  const auto note = read_note();
  if (note && note->term > term_) return lost();
  return {};
}

void FileElection::resign(TimePoint) {
  if (!held_) return;
  if (keep(kNever)) {
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
