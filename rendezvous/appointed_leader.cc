#include "rendezvous/appointed_leader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "rendezvous/shared_file.h"

namespace dlaunch {
namespace {

class AppointedLeader final : public LeaderElection {
 public:
  explicit AppointedLeader(const std::string& journal) : path_(journal) {}

  Result<std::optional<Leader>> find(TimePoint) override { return std::optional<Leader>(); }
  void wait_change(TimePoint) override {}
  Result<bool> campaign(TimePoint) override { return true; }
  Result<void> announce(const std::string&, TimePoint) override { return {}; }
  // Cleaners remove files in /tmp that stay untouched for days.
  Result<void> keep(TimePoint) override {
    (void)::utimensat(AT_FDCWD, path_.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
    return {};
  }
  Result<void> write_journal(const std::string& journal, TimePoint) override;
  Result<std::string> read_journal(TimePoint) override;
  void resign(TimePoint) override {
    ::unlink(path_.c_str());
    if (in_usual_folder()) ::rmdir(folder().c_str());
  }

 private:
  std::string folder() const { return path_.substr(0, std::max<std::size_t>(1, path_.rfind('/'))); }
  bool in_usual_folder() const {
    const std::string in = folder();
    return in.substr(in.rfind('/') + 1).starts_with(kJournalFolder);
  }
  Result<void> check_folder() const;

  const std::string path_;
};

// The usual folder's name is known to every user, so another user may have made it before us and
// could then read, change and block what we put there.
Result<void> AppointedLeader::check_folder() const {
  struct stat it {};
  if (!in_usual_folder() || ::lstat(folder().c_str(), &it) != 0) return {};
  const bool others_write = (it.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (S_ISDIR(it.st_mode) && it.st_uid == ::geteuid() && !others_write) return {};
  return Error{.code = Errc::auth, .what = folder() + " is not a folder of yours alone"};
}

Result<void> AppointedLeader::write_journal(const std::string& journal, TimePoint) {
  if (::mkdir(folder().c_str(), 0700) != 0 && errno != EEXIST) {
    return errno_error("make the journal's folder " + folder(), errno);
  }
  if (auto ours = check_folder(); !ours) return ours;
  const std::string beside = path_ + "~";
  const auto fresh = write_anew(beside, journal);
  if (!fresh) return fresh.error();
  return put_in_place(*fresh, beside, path_);
}

Result<std::string> AppointedLeader::read_journal(TimePoint) {
  if (auto ours = check_folder(); !ours) return ours.error();
  struct stat file {};
  if (::lstat(path_.c_str(), &file) == 0 &&
      (!S_ISREG(file.st_mode) || file.st_uid != ::geteuid())) {
    return Error{.code = Errc::auth, .what = path_ + " is not a file of yours"};
  }
  return read_whole(path_);
}

}  // namespace

std::unique_ptr<LeaderElection> open_appointed_leader(const std::string& journal) {
  return std::make_unique<AppointedLeader>(journal);
}

}  // namespace dlaunch
