#include "cli/slurm_time.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>

#include "base/units.h"
#include "cli/plan_slurm.h"
#include "launcher/process/spawn.h"

extern char** environ;

namespace dlaunch {
namespace {

constexpr Duration kPatience = std::chrono::seconds(5);
constexpr std::size_t kMaxOutput = 4096;

// The command's output; its output so far if it takes too long.
std::string output_of(const std::vector<std::string>& command) {
  const char* path = std::getenv("PATH");
  auto program = find_program(command[0], path != nullptr ? path : "/usr/bin:/bin");
  int ends[2];
  if (!program || ::pipe2(ends, O_CLOEXEC) != 0) return "";
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  SpawnRequest request{.path = *program, .argv = command};
  for (char** item = environ; *item != nullptr; ++item) request.env.emplace_back(*item);
  request.in = request.err = null.get();
  request.out = writing.get();
  ::getrlimit(RLIMIT_NOFILE, &request.open_files);
  Spawned spawned;
  if (spawn(request, spawned).stage != Stage::none) return "";
  writing.reset();
  std::string output;
  const auto deadline = steady_now() + kPatience;
  while (output.size() < kMaxOutput) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_now());
    pollfd ready{reading.get(), POLLIN, 0};
    const int count = left.count() > 0 ? ::poll(&ready, 1, static_cast<int>(left.count())) : 0;
    if (count < 0 && errno == EINTR) continue;
    char bytes[512];
    const ssize_t size = count > 0 ? ::read(reading.get(), bytes, sizeof bytes) : 0;
    if (size <= 0) break;
    output.append(bytes, static_cast<std::size_t>(size));
  }
  ::kill(spawned.pid, SIGKILL);  // its output is closed, or its time is up
  while (::waitpid(spawned.pid, nullptr, 0) < 0 && errno == EINTR) continue;
  return output;
}

}  // namespace

std::optional<Duration> slurm_time_left(const std::string& job) {
  if (const char* end = std::getenv("SLURM_JOB_END_TIME")) {
    const auto at = parse_number(end, 1, 1e12, "");
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    if (at) return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*at) - now);
  }
  return parse_slurm_time_left(output_of({"squeue", "--noheader", "--jobs=" + job, "--format=%L"}));
}

}  // namespace dlaunch
