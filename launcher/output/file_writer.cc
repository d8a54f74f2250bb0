#include "launcher/output/file_writer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include <asio/post.hpp>
#include <fmt/format.h>

#include "base/quiet_thread.h"
#include "base/write_all.h"

namespace dlaunch {
namespace {

constexpr std::size_t kFullBytes = 8 << 20;
constexpr std::size_t kPieceBytes = 1 << 20;  // of one file, written together

}  // namespace

// Shared with the thread, which outlives the writer if the file system does not answer.
struct FileWriter::Desk : std::enable_shared_from_this<Desk> {
  Desk(asio::io_context& l, Handlers h) : loop(&l), handlers(std::move(h)) {}

  struct Piece {
    FilePtr file;
    std::string bytes;
  };

  void run();
  void write(const Piece& piece);
  static std::size_t lost_of(File& file, std::string_view bytes, std::size_t written);
  void fail(File& file, int err, const char* what_next);
  void tell(std::function<void()> what);
  bool told_of_loss(File& file) const;

  mutable std::mutex mutex;
  std::condition_variable wake;
  std::deque<Piece> pieces;
  std::size_t waiting = 0;  // bytes, with what is being written
  bool was_full = false;
  asio::io_context* loop;  // null: the writer is gone
  const Handlers handlers;
};

FileWriter::FileWriter(asio::io_context& loop, Handlers handlers)
    : desk_(std::make_shared<Desk>(loop, std::move(handlers))) {}

FileWriter::~FileWriter() {
  const std::lock_guard lock(desk_->mutex);
  desk_->loop = nullptr;
  desk_->wake.notify_one();
}

void FileWriter::write(const FilePtr& file, std::string_view bytes) {
  if (file->gone || bytes.empty()) return;
  if (!std::exchange(started_, true)) {
    auto thread = start_quiet_thread([desk = desk_] { desk->run(); });
    if (!thread) {  // no other thread can be had: the loop waits for the file system
      started_ = false;
      return desk_->write({file, std::string(bytes)});
    }
    thread->detach();
  }
  const std::lock_guard lock(desk_->mutex);
  auto& pieces = desk_->pieces;
  if (pieces.empty() || pieces.back().file != file || pieces.back().bytes.size() > kPieceBytes) {
    pieces.push_back({file, {}});
  }
  pieces.back().bytes += bytes;
  desk_->waiting += bytes.size();
  desk_->was_full |= desk_->waiting >= kFullBytes;
  desk_->wake.notify_one();
}

bool FileWriter::full() const {
  const std::lock_guard lock(desk_->mutex);
  return desk_->waiting >= kFullBytes;
}

bool FileWriter::empty() const {
  const std::lock_guard lock(desk_->mutex);
  return desk_->waiting == 0;
}

void FileWriter::Desk::run() {
  std::unique_lock lock(mutex);
  while (true) {
    wake.wait(lock, [this] { return !pieces.empty() || loop == nullptr; });
    if (pieces.empty()) return;
    const Piece piece = std::move(pieces.front());
    pieces.pop_front();
    lock.unlock();
    write(piece);
    lock.lock();
    waiting -= piece.bytes.size();
    const bool room = waiting == 0 || (was_full && waiting < kFullBytes / 2);
    if (!room) continue;
    was_full = false;
    tell(handlers.drained);
  }
}

void FileWriter::Desk::write(const Piece& piece) {
  File& file = *piece.file;
  if (file.gone) return;
  const std::size_t lost_before = file.lost;
  if (!told_of_loss(file)) {
    file.lost += lost_of(file, piece.bytes, 0);
    return;
  }
  const auto [done, err] = write_all(file.fd.get(), piece.bytes);
  if (err == 0) return;
  if (err != ENOSPC && err != EDQUOT) {
    file.gone = true;
    return fail(file, err, "the job continues without it");
  }
  file.lost += lost_of(file, piece.bytes, done);
  if (lost_before == 0) fail(file, err, "what does not fit is lost");
}

// What is lost of a piece. In a file of lines, a line that was cut off is taken back.
std::size_t FileWriter::Desk::lost_of(File& file, std::string_view bytes, std::size_t written) {
  if (!file.lost_line) return bytes.size() - written;
  const std::size_t whole = bytes.substr(0, written).rfind('\n') + 1;  // npos + 1 is 0
  struct stat st {};
  if (written > whole && ::fstat(file.fd.get(), &st) == 0) {
    static_cast<void>(
        !::ftruncate(file.fd.get(), st.st_size - static_cast<off_t>(written - whole)));
  }
  const auto rest = bytes.substr(whole);
  return static_cast<std::size_t>(std::ranges::count(rest, '\n'));
}

// Nothing was lost, or the file now has the note about it.
bool FileWriter::Desk::told_of_loss(File& file) const {
  if (file.lost == 0) return true;
  const auto note =
      file.lost_line
          ? file.lost_line(file.lost)
          : fmt::format("\ndlaunch: {} bytes were lost here: no space was left\n", file.lost);
  if (write_all(file.fd.get(), note).os_errno != 0) return false;
  file.lost = 0;
  return true;
}

void FileWriter::Desk::fail(File& file, int err, const char* what_next) {
  Error error = errno_error("write " + file.name, err);
  error.what += fmt::format("; {}", what_next);
  const std::lock_guard lock(mutex);
  tell([this, error] { handlers.failed(error); });
}

// Call it under the lock. Runs `what` in the loop, as long as the writer exists.
void FileWriter::Desk::tell(std::function<void()> what) {
  if (loop == nullptr) return;
  asio::post(*loop, [desk = shared_from_this(), what = std::move(what)] {
    {
      const std::lock_guard lock(desk->mutex);
      if (desk->loop == nullptr) return;
    }
    what();
  });
}

std::size_t room_in(int fd, std::size_t most) {
  struct stat now {};
  if (::fstat(fd, &now) != 0 || !S_ISREG(now.st_mode)) return most;
  return most - std::min(most, static_cast<std::size_t>(now.st_size));
}

}  // namespace dlaunch
