#include "rendezvous/file_store.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <map>

#include <fmt/format.h>

#include "base/codec.h"
#include "base/failpoint.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "rendezvous/shared_file.h"

namespace dlaunch {
namespace {

constexpr std::size_t kHeader = 4 + 8;
constexpr std::size_t kMaxRecord = kMaxKeyBytes + kMaxValueBytes + 64;
constexpr Duration kLook = std::chrono::milliseconds(50);
constexpr off_t kSmallJournal = 256 << 10;  // below this size a compaction is not worthwhile
constexpr off_t kGrowth = 4;
enum class RecordKind : std::uint8_t { set = 1, delete_prefix = 2 };

std::string checksum(std::string_view body) {
  const Mac mac = Secret().mac(body);
  return std::string(mac.data(), 8);
}

std::string encode_record(RecordKind kind, std::string_view key, std::string_view value) {
  Writer body;
  body.put(static_cast<std::uint8_t>(kind));
  body.put_string(key);
  body.put_string(value);
  Writer record;
  record.put(static_cast<std::uint32_t>(body.bytes().size()));
  record.put_raw(checksum(body.bytes()));
  record.put_raw(body.bytes());
  return record.take();
}

// Job ids are free text: all bytes but letters, digits, '-' and '.' become %xx. A longer id than
// fits into a file's name is cut, and its hash follows.
std::string file_name(const std::string& what, const std::string& job_id) {
  constexpr std::size_t kMost = 64;
  std::string name = "dlaunch-" + what + "-";
  for (const unsigned char c : job_id.substr(0, kMost)) {
    if (std::isalnum(c) || c == '-' || c == '.')
      name += static_cast<char>(c);
    else
      name += fmt::format("%{:02x}", c);
  }
  if (job_id.size() > kMost) name += "-" + sha256_hex(job_id).substr(0, 16);
  return name;
}

class FileStore : public Store {
 public:
  explicit FileStore(std::string path)
      : path_(std::move(path)), watch_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {}

  // Opens the journal at the path, and forgets the content of the previous one.
  Result<void> open(int flags);

  Result<void> set(std::string_view key, std::string_view value, TimePoint deadline) override {
    return locked(deadline, [&] { return append(RecordKind::set, key, value); });
  }

  Result<std::string> get(std::string_view key, TimePoint deadline) override {
    if (auto there = wait({std::string(key)}, deadline); !there) return there.error();
    return values_.at(std::string(key));
  }

  Result<std::optional<std::string>> try_get(std::string_view key, TimePoint) override {
    if (auto read = catch_up(); !read) return read.error();
    return find(key);
  }

  Result<std::string> compare_and_set(std::string_view key,
                                      std::optional<std::string_view> expected,
                                      std::string_view desired, TimePoint deadline) override {
    if (auto fits = check_size(key, expected.value_or("")); !fits) return fits.error();
    auto done = locked(deadline, [&]() -> Result<void> {
      const auto old = find(key);
      if (old.has_value() != expected.has_value() || (old && *old != *expected)) return {};
      return append(RecordKind::set, key, desired);
    });
    if (!done) return done.error();
    return find(key).value_or("");
  }

  Result<std::int64_t> add(std::string_view key, std::int64_t delta, TimePoint deadline) override {
    std::int64_t sum = 0;
    auto done = locked(deadline, [&]() -> Result<void> {
      const std::string old = find(key).value_or("0");
      const auto [end, err] = std::from_chars(old.data(), old.data() + old.size(), sum);
      if (err != std::errc() || end != old.data() + old.size() ||
          __builtin_add_overflow(sum, delta, &sum)) {
        return Error{
            .code = Errc::usage,
            .what = "store " + path_ + ": " + std::string(key) + " does not hold a number"};
      }
      return append(RecordKind::set, key, std::to_string(sum));
    });
    if (!done) return done.error();
    return sum;
  }

  Result<void> wait(const std::vector<std::string>& keys, TimePoint deadline) override;

  Result<std::int64_t> delete_prefix(std::string_view prefix, TimePoint deadline) override {
    std::int64_t before = 0;
    auto done = locked(deadline, [&] {
      before = static_cast<std::int64_t>(values_.size());
      return append(RecordKind::delete_prefix, prefix, "");
    });
    if (!done) return done.error();
    return before - static_cast<std::int64_t>(values_.size());
  }

 private:
  std::optional<std::string> find(std::string_view key) const {
    const auto it = values_.find(std::string(key));
    return it == values_.end() ? std::nullopt : std::optional(it->second);
  }
  Error failed(const char* what) const {
    return errno_error("store " + path_ + ": " + what, errno);
  }

  Result<void> catch_up();
  Result<void> read_on();
  bool replaced() const;
  void compact_if_worth_it();
  bool takes_after(const UniqueFd& fresh) const;
  bool apply(std::string_view body);
  Result<void> append(RecordKind kind, std::string_view key, std::string_view value);
  Result<void> lock(TimePoint deadline);
  Result<void> lock_ours(TimePoint deadline);
  void unlock();

  template <class Work>
  Result<void> locked(TimePoint deadline, Work work) {
    if (auto held = lock(deadline); !held) return held;
    failpoint("file_store.locked");
    auto done = read_on();
    if (done) done = work();
    if (done) compact_if_worth_it();
    unlock();
    return done;
  }

  UniqueFd fd_;
  std::string path_;
  UniqueFd watch_;
  int watched_ = -1;
  off_t read_ = 0;  // everything before is in values_
  off_t compact_at_ = kSmallJournal;
  std::map<std::string, std::string> values_;
};

Result<void> FileStore::open(int flags) {
  UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC | flags, 0600));
  if (!fd) return errno_error("store " + path_, errno);
  fd_ = std::move(fd);
  read_ = 0;
  values_.clear();
  if (!watch_) return {};
  if (watched_ >= 0) ::inotify_rm_watch(watch_.get(), watched_);
  // IN_ATTRIB: the file has lost its last name, so another journal has replaced it.
  watched_ = ::inotify_add_watch(watch_.get(), path_.c_str(), IN_MODIFY | IN_ATTRIB);
  return {};
}

// Whether another file than ours is at the path. If there is none, the folder was removed, and the
// processes that have the journal open go on with it.
bool FileStore::replaced() const {
  struct stat ours {
  }, there{};
  if (::stat(path_.c_str(), &there) != 0) return false;
  if (::fstat(fd_.get(), &ours) != 0) return errno == ESTALE;
  return ours.st_ino != there.st_ino || ours.st_dev != there.st_dev;
}

Result<void> FileStore::catch_up() {
  if (!replaced()) {
    auto read = read_on();
    if (read || read.error().os_errno != ESTALE) return read;
  }
  // ESTALE: on a network file system, another host has replaced the file.
  if (auto opened = open(0); !opened) return opened;
  return read_on();
}

// Reads the whole records behind read_. A torn one at the end is left for later.
Result<void> FileStore::read_on() {
  struct stat st {};
  if (::fstat(fd_.get(), &st) != 0) return failed("stat");
  std::string bytes(static_cast<std::size_t>(std::max<off_t>(st.st_size - read_, 0)), '\0');
  std::size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n =
        ::pread(fd_.get(), bytes.data() + got, bytes.size() - got, read_ + static_cast<off_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("read");
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  std::string_view rest(bytes.data(), got);
  while (rest.size() >= kHeader) {
    const auto size = Reader(rest).get<std::uint32_t>();
    if (size > kMaxRecord || rest.size() - kHeader < size) break;
    const auto body = rest.substr(kHeader, size);
    if (rest.substr(4, 8) != checksum(body) || !apply(body)) break;
    rest.remove_prefix(kHeader + size);
    read_ += static_cast<off_t>(kHeader + size);
  }
  return {};
}

bool FileStore::apply(std::string_view body) {
  Reader in(body);
  const auto kind = static_cast<RecordKind>(in.get<std::uint8_t>());
  const std::string key(in.get_string(kMaxKeyBytes));
  const std::string value(in.get_string(kMaxValueBytes));
  if (!in.done()) return false;
  if (kind == RecordKind::set) {
    values_[key] = value;
  } else {
    std::erase_if(values_, [&](const auto& item) { return item.first.starts_with(key); });
  }
  return true;
}

// With the lock held and everything read: any bytes behind read_ are a dead writer's torn record.
Result<void> FileStore::append(RecordKind kind, std::string_view key, std::string_view value) {
  if (auto fits = check_size(key, value); !fits) return fits;
  if (::ftruncate(fd_.get(), read_) != 0) return failed("truncate");
  const auto record = encode_record(kind, key, value);
  std::size_t written = 0;
  while (written < record.size()) {
    const auto size = failpoint_write("file_store.append", record.size() - written);
    const ssize_t n =
        ::pwrite(fd_.get(), record.data() + written, size, read_ + static_cast<off_t>(written));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("write");
    written += static_cast<std::size_t>(n);
  }
  return read_on();
}

// With the lock held. A failed compaction is harmless: the journal is whole without it.
void FileStore::compact_if_worth_it() {
  if (read_ < compact_at_) return;
  std::string bytes;
  for (const auto& [key, value] : values_) bytes += encode_record(RecordKind::set, key, value);
  compact_at_ = std::max(kSmallJournal, kGrowth * static_cast<off_t>(bytes.size()));
  if (read_ < compact_at_) return;
  const auto beside = path_ + "~";  // no journal's name: '~' of a job id is written %7e
  const auto fresh = write_anew(beside, bytes);
  if (fresh && takes_after(*fresh) && put_in_place(*fresh, beside, path_)) return;
  ::unlink(beside.c_str());
  compact_at_ = 2 * read_;
}

// Every process that could open the old journal can open this one.
bool FileStore::takes_after(const UniqueFd& fresh) const {
  struct stat st {};
  return ::fstat(fd_.get(), &st) == 0 && ::fchown(fresh.get(), st.st_uid, st.st_gid) == 0 &&
         ::fchmod(fresh.get(), st.st_mode & 07777) == 0;
}

// Locks the journal at the path: a lock on a replaced journal guards nothing.
Result<void> FileStore::lock(TimePoint deadline) {
  while (true) {
    auto held = lock_ours(deadline);
    if (!held && held.error().os_errno != ESTALE) return held;
    if (held && !replaced()) return held;
    unlock();
    if (auto opened = open(0); !opened) return opened;
  }
}

Result<void> FileStore::lock_ours(TimePoint deadline) {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  int pause_ms = 1;
  while (::fcntl(fd_.get(), F_OFD_SETLK, &range) != 0) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) return failed("lock");
    if (steady_now() >= deadline) {
      return Error{.code = Errc::timeout,
                   .what = "store " + path_ + ": another process holds the lock"};
    }
    ::poll(nullptr, 0, pause_ms);
    pause_ms = std::min(pause_ms * 2, 20);
  }
  return {};
}

void FileStore::unlock() {
  struct flock range {};
  range.l_type = F_UNLCK;
  range.l_whence = SEEK_SET;
  ::fcntl(fd_.get(), F_OFD_SETLK, &range);
}

Result<void> FileStore::wait(const std::vector<std::string>& keys, TimePoint deadline) {
  const auto started = steady_now();
  while (true) {
    if (auto read = catch_up(); !read) return read;
    std::string missing;
    for (const auto& key : keys) {
      if (!values_.contains(key)) missing += (missing.empty() ? "" : ", ") + key;
    }
    if (missing.empty()) return {};
    const auto now = steady_now();
    if (now >= deadline) {
      return Error{.code = Errc::timeout,
                   .what = fmt::format("store {}: waited {} for {}", path_,
                                       format_duration(now - started), missing)};
    }
    pollfd p{watch_.get(), POLLIN, 0};
    ::poll(&p, 1, poll_timeout_ms(now, std::min(deadline, now + kLook)));
    char events[4096];
    while (watch_ && ::read(watch_.get(), events, sizeof events) > 0) {
    }
  }
}

}  // namespace

Result<std::string> job_file(const std::string& folder, const std::string& what,
                             const std::string& job_id) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return errno_error("shared folder " + folder, errno);
  }
  return folder + "/" + file_name(what, job_id);
}

Result<std::unique_ptr<Store>> open_file_store(const std::string& folder,
                                               const std::string& job_id) {
  auto path = job_file(folder, "store", job_id);
  if (!path) return path.error();
  auto store = std::make_unique<FileStore>(std::move(*path));
  if (auto opened = store->open(O_CREAT); !opened) return opened.error();
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace dlaunch
