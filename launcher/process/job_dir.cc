#include "launcher/process/job_dir.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/write_all.h"

namespace dlaunch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "dlaunch-job-";

// Calls `use` for each folder of a job of this user, with its lock file, open: a running job holds
// the lock.
template <class Use>
void for_each_job_dir(const std::string& tmp, const Use& use) {
  std::error_code ec;
  for (fs::directory_iterator it(tmp, ec), end; !ec && it != end; it.increment(ec)) {
    if (!it->path().filename().string().starts_with(kPrefix)) continue;
    struct stat st {};
    if (::lstat(it->path().c_str(), &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != ::geteuid()) {
      continue;
    }
    const UniqueFd lock(::open((it->path() / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (lock) use(it->path(), lock.get());
  }
}

void sweep(const std::string& tmp) {
  for_each_job_dir(tmp, [](const fs::path& path, int lock) {
    if (::flock(lock, LOCK_EX | LOCK_NB) != 0) return;
    std::error_code ignored;
    fs::remove_all(path, ignored);
  });
}

// We may write there, and other users cannot replace what we make: it is ours, or root's and
// either sticky or closed to others.
bool is_safe_folder(const std::string& folder) {
  struct stat st {};
  if (!folder.starts_with('/') || ::stat(folder.c_str(), &st) != 0 || !S_ISDIR(st.st_mode) ||
      ::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    return false;
  }
  const bool closed = (st.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (st.st_mode & S_ISVTX) != 0;
  return (st.st_uid == ::geteuid() || st.st_uid == 0) && closed;
}

std::string usual_folder() {
  const char* runtime = ::getenv("XDG_RUNTIME_DIR");
  for (const std::string& folder :
       {std::string("/tmp"), std::string(runtime != nullptr ? runtime : ""),
        "/run/user/" + std::to_string(::geteuid()), std::string("/run"), std::string("/dev/shm")}) {
    if (is_safe_folder(folder)) return folder;
  }
  return "/tmp";
}

// The error for the folder of jobs, or for something in it.
Error cannot_use(const std::string& tmp, const std::string& what, int err) {
  const char* set = ::getenv("TMPDIR");
  const bool named = set != nullptr && *set != '\0';
  std::string way_out = named ? "TMPDIR names " + tmp : "TMPDIR is not set, so it is in " + tmp;
  if (err == ENOSPC || err == EDQUOT) {
    way_out += ", where no room or no inodes are left, or a quota is used up: make room there";
    return errno_error(what + " (" + way_out + " or set TMPDIR to another folder)", err);
  }
  return errno_error(what + " (" + way_out + ": set TMPDIR to another folder)", err);
}

}  // namespace

std::string folder_for_jobs() {
  const char* tmp = ::getenv("TMPDIR");
  if (tmp == nullptr || *tmp == '\0') return usual_folder();
  std::error_code ec;  // absolute: workers may have another working folder
  const auto whole = fs::absolute(tmp, ec);
  return ec ? tmp : whole.string();
}

std::vector<std::string> running_job_dirs(const std::string& tmp) {
  std::vector<std::string> found;
  for_each_job_dir(tmp, [&](const fs::path& path, int lock) {
    if (::flock(lock, LOCK_SH | LOCK_NB) != 0) found.push_back(path);
  });
  std::ranges::sort(found);
  return found;
}

Result<JobDir> JobDir::make(const std::string& tmp) {
  sweep(tmp);
  JobDir dir;
  dir.path_ = tmp + "/" + kPrefix + "XXXXXX";
  if (::mkdtemp(dir.path_.data()) == nullptr) {
    return cannot_use(tmp, "make a folder for the job in " + tmp, errno);
  }
  dir.folder_.reset(::open(dir.path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir.folder_) (void)::flock(dir.folder_.get(), LOCK_SH | LOCK_NB);
  // Locked before it gets its name: cleaners leave a folder without that file alone.
  const std::string lock = dir.path_ + "/lock", fresh = lock + ".new";
  dir.lock_.reset(::open(fresh.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!dir.lock_ || ::flock(dir.lock_.get(), LOCK_EX | LOCK_NB) != 0 ||
      ::rename(fresh.c_str(), lock.c_str()) != 0) {
    const int err = errno;
    dir.remove();
    return cannot_use(tmp, "lock the job's folder " + dir.path_, err);
  }
  return dir;
}

Result<std::string> JobDir::write_secret(const Secret& secret) const {
  std::string file = path_ + "/" + kSecretInJobDir;
  // It may exist already if a leader has become a follower, because its port was taken.
  const UniqueFd fd(
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  const auto& bytes = secret.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const int err = fd ? write_all(fd.get(), text).os_errno : errno;
  if (err != 0) return cannot_use(fs::path(path_).parent_path(), "write " + file, err);
  return file;
}

Result<std::string> JobDir::write_package(const std::string& name, std::string_view text) const {
  const std::string folder = path_ + "/python", package = folder + "/" + name;
  std::error_code ec;
  fs::create_directories(package, ec);
  const UniqueFd fd(::open((package + "/__init__.py").c_str(),
                           O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  const int err = fd ? write_all(fd.get(), text).os_errno : errno;
  if (err != 0) return cannot_use(fs::path(path_).parent_path(), "write to " + package, err);
  return folder;
}

Result<std::string> JobDir::make_round_dir(int round) const {
  std::string folder = path_ + "/" + std::to_string(round);
  if (::mkdir(folder.c_str(), 0700) != 0) {
    return cannot_use(fs::path(path_).parent_path(), "make the folder " + folder, errno);
  }
  return folder;
}

void JobDir::remove_round_dirs(int round) const {
  std::error_code ec;
  for (; round > 0 && fs::remove_all(path_ + "/" + std::to_string(round), ec) > 0; --round)
    continue;
}

void JobDir::remove() const {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace dlaunch
