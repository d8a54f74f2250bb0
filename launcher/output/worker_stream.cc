#include "launcher/output/worker_stream.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace dlaunch {

void StreamTail::append(std::string_view bytes) {
  if (bytes.size() >= kKept) {
    cut_ = cut_ || !text_.empty() || bytes.size() > kKept;
    text_.assign(bytes.substr(bytes.size() - kKept));
    return;
  }
  text_.append(bytes);
  if (text_.size() <= 2 * kKept) return;
  text_.erase(0, text_.size() - kKept);
  cut_ = true;
}

std::vector<std::string> StreamTail::lines(std::size_t most) const {
  std::string_view text = text_;
  // Skips the rest of a line, if a whole one follows.
  const auto newline = text.find('\n');
  if (cut_ && newline != std::string_view::npos && newline + 1 < text.size()) {
    text.remove_prefix(newline + 1);
  }
  std::vector<std::string> found;
  auto keep = [&](std::string_view line, bool) { found.emplace_back(line); };
  LineSplitter splitter;
  splitter.feed(TimePoint::min(), text, keep);
  splitter.finish(keep);
  if (found.size() > most) found.erase(found.begin(), found.end() - static_cast<long>(most));
  return found;
}

Result<UniqueFd> WorkerStream::open_pipe(std::size_t pipe_bytes) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe for a worker's output", errno);
  UniqueFd reading(ends[0]), writing(ends[1]);
  // Best effort: the total size of a user's pipes is limited, and smaller pipes work, too.
  if (pipe_bytes > kDefaultPipe) {
    ::fcntl(writing.get(), F_SETPIPE_SZ, static_cast<int>(pipe_bytes));
  }
  if (auto ok = adopt(std::move(reading)); !ok) return ok.error();
  return writing;
}

Result<void> WorkerStream::adopt(UniqueFd reading) {
  ::fcntl(reading.get(), F_SETFL, O_NONBLOCK);  // of this end only
  asio::error_code ec;
  pipe_.assign(reading.get(), ec);
  if (ec) return errno_error("watch a worker's output", ec.value());
  reading.release();
  return {};
}

Result<void> WorkerStream::open_log(const std::string& folder, int round) {
  namespace fs = std::filesystem;
  const std::string who = rank < 0 ? "spare" + std::to_string(slot_) : std::to_string(rank);
  const fs::path own = fs::path(folder) / std::to_string(round) / who;
  std::error_code ec;
  fs::create_directories(own, ec);
  if (ec) return errno_error("--log-dir: make " + own.string(), ec.value());
  const std::string path = (own / (kind_ == OutputStream::err ? "stderr" : "stdout")).string();
  // Appends: an earlier job's output there is not ours to destroy.
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file) return errno_error("--log-dir: write " + path, errno);
  log_ = std::make_shared<FileWriter::File>(std::move(file), path);
  return {};
}

void WorkerStream::close() {
  asio::error_code ec;
  pipe_.close(ec);
}

long WorkerStream::read(char* buffer, std::size_t size) {
  long n = 0;
  do {
    n = ::read(pipe_.native_handle(), buffer, size);
  } while (n < 0 && errno == EINTR);
  return n;
}

std::size_t WorkerStream::held() {
  int bytes = 0;
  const bool known = ::ioctl(pipe_.native_handle(), FIONREAD, &bytes) == 0;
  return known && bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace dlaunch
