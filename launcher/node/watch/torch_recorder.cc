#include "launcher/node/watch/torch_recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <asio/post.hpp>
#include <asio/steady_timer.hpp>

#include "base/unique_fd.h"
#include "launcher/node/watch/torch_dump.h"
#include "launcher/node/workers/worker_evidence.h"
#include "launcher/process/process_tree.h"

namespace dlaunch {
namespace {

constexpr Duration kDumpInterval = std::chrono::milliseconds(50);
constexpr std::size_t kMaxDump = 16 << 20;

using Done = std::function<void(std::vector<NodePosition>)>;

// When the file was last written, and its size.
std::optional<std::pair<TimePoint, off_t>> version_of(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return std::nullopt;
  const Duration time =
      std::chrono::seconds(st.st_mtim.tv_sec) + std::chrono::nanoseconds(st.st_mtim.tv_nsec);
  return std::pair(TimePoint(time), st.st_size);
}

// False: nobody reads the pipe.
bool request_dump(const std::string& pipe) {
  const UniqueFd fd(::open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  struct stat st {};
  return fd && ::fstat(fd.get(), &st) == 0 && S_ISFIFO(st.st_mode) &&
         ::write(fd.get(), "1", 1) == 1;
}

// Waits for the dump that was asked for.
class DumpWait : public std::enable_shared_from_this<DumpWait> {
 public:
  DumpWait(asio::io_context& loop, std::string file, Done done, Duration limit)
      : timer_(loop),
        file_(std::move(file)),
        seen_(version_of(file_)),
        until_(steady_now() + limit),
        done_(std::move(done)) {}

  void look() {
    // One that is being written changes again.
    if (const auto version = version_of(file_); version != seen_) {
      seen_ = version;
      auto positions = read_torch_dump(read_left_file(file_, kMaxDump));
      if (positions) return done_(std::move(*positions));
    }
    if (steady_now() >= until_) return done_({});
    timer_.expires_after(kDumpInterval);
    timer_.async_wait([self = shared_from_this()](asio::error_code error) {
      if (!error) self->look();
    });
  }

 private:
  asio::steady_timer timer_;
  const std::string file_;
  std::optional<std::pair<TimePoint, off_t>> seen_;
  const TimePoint until_;
  const Done done_;
};

}  // namespace

void ask_torch_recorder(asio::io_context& loop, pid_t pid, int rank, Done done, Duration limit) {
  const auto none = [&] { asio::post(loop, [done = std::move(done)] { done({}); }); };
  const auto pipe = environment_of(pid, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
  auto file = environment_of(pid, "TORCH_FR_DUMP_TEMP_FILE");
  if (!file) file = environment_of(pid, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
  if (!pipe || !file) return none();
  const std::string number = std::to_string(rank);
  const auto wait = std::make_shared<DumpWait>(loop, *file + number, done, limit);
  if (!request_dump(*pipe + number + ".pipe")) return none();
  wait->look();
}

}  // namespace dlaunch
