#include "rendezvous/shared_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/write_all.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMaxFile = std::size_t{16} << 20;

}  // namespace

Result<UniqueFd> write_anew(const std::string& path, std::string_view bytes) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return errno_error("create " + path, errno);
  if (const int err = write_all(fd.get(), bytes).os_errno) return errno_error("write " + path, err);
  return fd;
}

Result<void> put_in_place(const UniqueFd& file, const std::string& path, const std::string& name) {
  const auto failed = [&](const char* what) {
    Error error = errno_error(std::string(what) + " " + path, errno);
    ::unlink(path.c_str());
    return error;
  };
  if (::fsync(file.get()) != 0) return failed("write");
  if (::rename(path.c_str(), name.c_str()) != 0) return failed("rename");
  const UniqueFd folder(
      ::open(name.substr(0, name.rfind('/')).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) ::fsync(folder.get());
  return {};
}

Result<std::string> read_whole(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return std::string();
  if (!fd) return errno_error("open " + path, errno);
  std::string bytes;
  char piece[4096];
  while (bytes.size() < kMaxFile) {
    const ssize_t size = ::read(fd.get(), piece, sizeof piece);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno_error("read " + path, errno);
    if (size == 0) return bytes;
    bytes.append(piece, static_cast<std::size_t>(size));
  }
  return Error{.code = Errc::protocol, .what = path + " is too long"};
}

}  // namespace dlaunch
