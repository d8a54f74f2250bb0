#include "ring/sites/journal_writer.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/quiet_thread.h"
#include "base/unique_fd.h"
#include "base/write_all.h"

namespace dlaunch {
namespace {

// And as many states of them.
constexpr std::uint64_t kStatesOfGrowth = 8;
constexpr std::uint64_t kStatesWaiting = 4;
// What is written between two signs of progress.
constexpr std::size_t kWritten = 16 << 20;

// end: where the file's whole records end, and a writer appends.
Result<UniqueFd> open_file(const std::string& path, std::uint64_t& end) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!fd) return errno_error("open " + path, errno);
  // Some file servers have no locks.
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return Error{.code = Errc::io,
                 .what = path + " has another writer: give each job a folder of its own"};
  }
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return errno_error("open " + path, errno);
  end = 0;
  const auto size = static_cast<std::size_t>(st.st_size);
  if (size > 0) {
    void* const at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (at == MAP_FAILED) return errno_error("read " + path, errno);
    end = journal_end({static_cast<const char*>(at), size});
    ::munmap(at, size);
    if (end == 0) {
      return Error{.code = Errc::protocol,
                   .what = path + " is not a journal of a site: move it away"};
    }
    if (end < size && ::ftruncate(fd.get(), static_cast<off_t>(end)) != 0) {
      return errno_error("cut " + path, errno);
    }
  }
  return fd;
}

}  // namespace

std::int64_t ns_since_1970() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

class JournalWriter::File {
 public:
  struct Waiting {
    JournalRecord record;
    SharedBytes tail{};  // may be null; the record refers to it
    bool begins_file = false;
    std::uint64_t bytes() const { return tail ? tail->size() : 0; }
  };
  File(std::string path, UniqueFd fd, bool is_new)
      : path_(std::move(path)), fd_(std::move(fd)), in_child_(fd_.get()), is_new_(is_new) {}

  void add(Waiting record, std::uint64_t most_bytes);
  void main();
  // Whether the thread has come to its end, or will at once.
  bool flush(Duration without_progress);
  void close_in_child() {
    if (const int fd = in_child_.exchange(-1); fd >= 0) ::close(fd);
  }

 private:
  void give_up(const std::string& why);  // with the lock
  Result<void> write_records(const std::deque<Waiting>& records);
  Result<void> write(const Waiting& record);
  Result<void> append(std::string_view bytes);
  Result<void> sync();
  Result<void> rotate();

  const std::string path_;
  UniqueFd fd_;                // the thread's
  std::atomic<int> in_child_;  // fd_, for a forked child; -1 while it changes
  bool is_new_;                // the thread's: nothing is written
  std::atomic<std::uint64_t> progress_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  std::uint64_t bytes_ = 0;  // that wait or are being written
  bool ends_ = false, over_ = false;
};

void JournalWriter::File::add(Waiting record, std::uint64_t most_bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (ends_) return;  // the file cannot be written
    if (bytes_ > 0 && bytes_ + record.bytes() > most_bytes) {
      return give_up(
          fmt::format("{} MiB wait for {}, which takes too long to write", bytes_ >> 20, path_));
    }
    bytes_ += record.bytes();
    waiting_.push_back(std::move(record));
  }
  changed_.notify_all();
}

void JournalWriter::File::give_up(const std::string& why) {
  log_warn("the training goes on without its journal: {}", why);
  ends_ = true;
  waiting_.clear();
  changed_.notify_all();
}

void JournalWriter::File::main() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
    if (waiting_.empty()) break;
    std::deque<Waiting> records = std::exchange(waiting_, {});
    lock.unlock();
    std::uint64_t bytes = 0;
    for (const Waiting& record : records) bytes += record.bytes();
    const Result<void> ok = write_records(records);
    records.clear();
    lock.lock();
    bytes_ -= bytes;
    if (ok) continue;
    give_up(ok.error().what);
    break;
  }
  in_child_ = -1;
  fd_.reset();
  over_ = true;
  changed_.notify_all();
}

// A lack of memory ends the journal, not the job.
Result<void> JournalWriter::File::write_records(const std::deque<Waiting>& records) {
  try {
    for (const Waiting& record : records) {
      if (auto ok = write(record); !ok) return ok;
    }
    return sync();
  } catch (const std::bad_alloc&) {
    return Error{.code = Errc::io, .what = "no memory"};
  }
}

bool JournalWriter::File::flush(Duration without_progress) {
  std::unique_lock lock(mutex_);
  ends_ = true;
  changed_.notify_all();
  std::uint64_t before;
  do {
    before = progress_;
    if (changed_.wait_for(lock, without_progress, [this] { return over_; })) return true;
  } while (progress_ != before);
  log_warn("the last merges may be missing in {}: its disk does not answer", path_);
  waiting_.clear();
  return false;
}

Result<void> JournalWriter::File::write(const Waiting& record) {
  if (record.begins_file) {
    if (auto ok = rotate(); !ok) return ok;
  }
  if (std::exchange(is_new_, false)) {
    if (auto ok = append(kSiteJournalMagic); !ok) return ok;
  }
  const EncodedRecord encoded = encode_journal_record(record.record);
  if (auto ok = append(encoded.head); !ok) return ok;
  return append(encoded.tail);
}

Result<void> JournalWriter::File::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, kWritten);
    const Written done = write_all(fd_.get(), piece);
    if (done.os_errno != 0) return errno_error("write " + path_, done.os_errno);
    bytes.remove_prefix(piece.size());
    ++progress_;
  }
  return {};
}

Result<void> JournalWriter::File::sync() {
  if (::fdatasync(fd_.get()) == 0 || errno == EINVAL) return {};  // EINVAL: it is on no disk
  return errno_error("write " + path_, errno);
}

Result<void> JournalWriter::File::rotate() {
  if (auto ok = sync(); !ok) return ok;
  if (::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) {
    return errno_error("keep " + path_ + " as " + path_ + ".1", errno);
  }
  std::uint64_t end = 0;
  auto fd = open_file(path_, end);
  if (!fd) return fd.error();
  in_child_ = -1;
  fd_ = std::move(*fd);
  in_child_ = fd_.get();
  is_new_ = end == 0;
  return {};
}

Result<std::unique_ptr<JournalWriter>> JournalWriter::open(const std::string& folder,
                                                           const std::string& name,
                                                           const Limits& limits) {
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    return errno_error("make the folder " + folder, errno);
  }
  const std::string path = folder + "/" + name + ".journal";
  std::uint64_t end = 0;
  auto fd = open_file(path, end);
  if (!fd) return fd.error();
  auto file = std::make_shared<File>(path, std::move(*fd), end == 0);
  std::unique_ptr<JournalWriter> made(new JournalWriter(file, end, limits));
  auto thread = start_quiet_thread([file] { file->main(); });
  if (!thread) return thread.error();
  made->thread_ = std::move(*thread);
  return made;
}

JournalWriter::JournalWriter(std::shared_ptr<File> file, std::uint64_t bytes, const Limits& limits)
    : limits_(limits), file_(std::move(file)), bytes_(bytes) {}

void JournalWriter::end() {
  if (!thread_.joinable()) return;
  if (file_->flush(limits_.flush)) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void JournalWriter::close_in_child() { file_->close_in_child(); }

void JournalWriter::start(const SiteMember& me, const std::vector<std::string>& names) {
  start_ = {.when_ns = ns_since_1970(), .me = me, .names = names};
  add(start_, nullptr);
}

void JournalWriter::merge(const Merge& merge, std::uint64_t hash,
                          const std::vector<SharedBytes>& payloads) {
  std::uint64_t bytes = 0;
  for (const SharedBytes& payload : payloads) bytes += payload->size();
  merge_bytes_ = std::max(merge_bytes_, bytes);
  add(JournalMerge{.when_ns = ns_since_1970(), .merge = merge, .hash = hash}, nullptr);
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    add(JournalPayload{.contribution = merge.contributions[i], .bytes = *payloads[i]}, payloads[i]);
  }
}

void JournalWriter::snapshot(const MergeId& id, std::uint64_t hash, const SharedBytes& state) {
  snapshot_bytes_ = state->size();
  if (wants_snapshot()) {
    start_.when_ns = ns_since_1970();
    add(start_, nullptr, true);
    bytes_ = 0;
  }
  add(JournalSnapshot{.when_ns = ns_since_1970(), .id = id, .hash = hash, .state = *state}, state);
}

bool JournalWriter::wants_snapshot() const {
  return bytes_ > std::max(limits_.growth, kStatesOfGrowth * snapshot_bytes_);
}

void JournalWriter::add(JournalRecord record, SharedBytes tail, bool begins_file) {
  if (tail) bytes_ += tail->size();
  // However fast the disk is, a merge and the snapshot behind it come to it at once.
  const std::uint64_t most = std::max(
      {limits_.waiting, kStatesWaiting * snapshot_bytes_, 2 * merge_bytes_ + snapshot_bytes_});
  file_->add({std::move(record), std::move(tail), begins_file}, most);
}

}  // namespace dlaunch
