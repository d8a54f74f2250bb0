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

namespace dlaunch {
namespace {

// A network file system does not tell of what other hosts write.
constexpr Duration kLook = std::chrono::milliseconds(100);
constexpr std::size_t kMaxNote = 512;

struct flock whole_file(short type) {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  return range;
}

class FileElection final : public LeaderElection {
 public:
  FileElection(std::string lock, std::string note)
      : lock_path_(std::move(lock)), note_path_(std::move(note)) {}

  Result<std::optional<Leader>> find(TimePoint) override;
  void wait_change(TimePoint deadline) override {
    const auto now = steady_now();
    ::poll(nullptr, 0, poll_timeout_ms(now, std::min(deadline, now + kLook)));
  }
  Result<bool> campaign(TimePoint) override;
  Result<void> announce(const std::string& endpoint, TimePoint) override;
  Result<void> keep(TimePoint) override;
  void resign(TimePoint) override;

 private:
  Error failed(const char* what, const std::string& path) const {
    return errno_error(std::string(what) + " " + path, errno);
  }
  bool has_its_name(const UniqueFd& fd) const;
  Leader read_note() const;

  const std::string lock_path_, note_path_;
  UniqueFd held_;  // where we lead
  std::uint64_t term_ = 0;
};

bool FileElection::has_its_name(const UniqueFd& fd) const {
  struct stat ours {
  }, there{};
  return ::fstat(fd.get(), &ours) == 0 && ::stat(lock_path_.c_str(), &there) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

// What is no note says nothing.
Leader FileElection::read_note() const {
  const UniqueFd fd(::open(note_path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return {};
  char bytes[kMaxNote];
  const ssize_t size = ::read(fd.get(), bytes, sizeof bytes);
  if (size <= 0 || bytes[size - 1] != '\n') return {};
  const std::string_view text(bytes, static_cast<std::size_t>(size) - 1);
  const auto space = text.find(' ');
  if (space == text.npos) return {};
  Leader leader{.endpoint = escaped(text.substr(space + 1))};
  const auto [end, err] = std::from_chars(text.data(), text.data() + space, leader.term);
  return err == std::errc() && end == text.data() + space ? leader : Leader();
}

// The note of one that has died is no leader's.
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
  if (!has_its_name(fd)) return false;  // who had it has removed it: another time
  held_ = std::move(fd);
  term_ = read_note().term + 1;
  if (auto done = announce("", kNever); !done) {
    held_.reset();
    return done.error();
  }
  return true;
}

Result<void> FileElection::announce(const std::string& endpoint, TimePoint) {
  if (auto ours = keep(kNever); !ours) return ours;
  const std::string beside = note_path_ + "~";
  const std::string note = std::to_string(term_) + " " + endpoint + "\n";
  const UniqueFd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) return failed("create", beside);
  if (::write(fd.get(), note.data(), note.size()) != static_cast<ssize_t>(note.size()) ||
      ::fsync(fd.get()) != 0) {
    return failed("write", beside);
  }
  if (::rename(beside.c_str(), note_path_.c_str()) != 0) return failed("replace", note_path_);
  return {};
}

// The lock is the kernel's to keep; somebody may have removed the folder.
Result<void> FileElection::keep(TimePoint) {
  if (held_ && has_its_name(held_)) return {};
  return Error{.code = Errc::aborted, .what = "the lock " + lock_path_ + " is not ours any more"};
}

void FileElection::resign(TimePoint) {
  if (!held_) return;
  if (has_its_name(held_)) {
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
  return std::unique_ptr<LeaderElection>(new FileElection(*lock, *note));
}

}  // namespace dlaunch
