#include "base/secret.h"

#include <fcntl.h>
#include <nettle/memops.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.h"

namespace dlaunch {

Result<std::string> random_bytes(std::size_t bytes) {
  std::string out(bytes, '\0');
  for (std::size_t got = 0; got < bytes;) {
    const ssize_t more = ::getrandom(out.data() + got, bytes - got, 0);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) return errno_error("get random bytes from the system", errno);
    got += static_cast<std::size_t>(more);
  }
  return out;
}

namespace {

std::string hex_of(std::string_view bytes) {
  std::string hex;
  for (const unsigned char c : bytes) {
    hex += "0123456789abcdef"[c >> 4];
    hex += "0123456789abcdef"[c & 15];
  }
  return hex;
}

}  // namespace

Result<std::string> random_hex(std::size_t bytes) {
  auto raw = random_bytes(bytes);
  if (!raw) return raw.error();
  return hex_of(*raw);
}

std::string sha256_hex(std::string_view bytes) {
  const auto digest = sha256(bytes);
  return hex_of({digest.data(), digest.size()});
}

Result<Secret> Secret::random() {
  auto hex = random_hex(32);
  if (!hex) return hex.error();
  return Secret(std::move(*hex));
}

Result<Secret> Secret::load(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe would block
  if (!fd) return errno_error("open secret file " + path, errno);
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return errno_error("stat secret file " + path, errno);
  if (!S_ISREG(st.st_mode)) {
    return Error{.code = Errc::usage,
                 .what = "secret file " + path + " is a folder, a pipe or the like, and no file"};
  }
  const bool lent = st.st_uid == 0 && ::geteuid() != 0;
  const mode_t others = (lent ? S_IWGRP | S_IXGRP : S_IRWXG) | S_IRWXO;
  if ((st.st_mode & others) != 0) {
    return Error{.code = Errc::usage,
                 .what = "secret file " + path + " may be read by others: chmod 600 it"};
  }
  char buffer[4097];
  const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
  if (got < 0) return errno_error("read secret file " + path, errno);
  std::string bytes(buffer, static_cast<std::size_t>(got));
  while (!bytes.empty() && (bytes.back() == '\n' || bytes.back() == '\r' || bytes.back() == ' ')) {
    bytes.pop_back();
  }
  if (bytes.size() < 16 || bytes.size() > 4096) {
    return Error{.code = Errc::usage,
                 .what = "secret file " + path + " must hold 16 to 4096 bytes, not " +
                         std::to_string(bytes.size())};
  }
  return Secret(std::move(bytes));
}

Result<Secret> Secret::load_or_make(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) return load(path);
  auto made = random();
  auto suffix = random_hex(4);
  if (!made || !suffix) return made ? suffix.error() : made.error();
  const std::string folder = path.substr(0, path.rfind('/'));
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return errno_error("make the folder " + folder, errno);
  }
  // link() makes the file with its content, and only if there is none: also on NFS.
  const std::string draft = path + "." + *suffix;
  UniqueFd fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const std::string& bytes = made->bytes();
  const bool written =
      fd && ::write(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) &&
      ::close(fd.release()) == 0 && (::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int err = errno;
  ::unlink(draft.c_str());
  if (!written) return errno_error("make the key " + path, err);
  return load(path);
}

Mac Secret::mac(std::string_view message) const { return hmac_sha256(bytes_, message); }

bool macs_equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() && nettle_memeql_sec(a.data(), b.data(), a.size()) != 0;
}

}  // namespace dlaunch
