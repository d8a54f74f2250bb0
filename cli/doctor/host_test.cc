#include "cli/doctor/host_test.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "base/cpus.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "cli/doctor/gpu_findings.h"
#include "cli/doctor/host_facts.h"
#include "dlaunch/ring.hpp"
#include "launcher/node/placement/gpus.h"
#include "launcher/process/job_dir.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMostMemory = 64 << 20;  // bytes, of all workers together
constexpr std::size_t kRoom = 1 << 20;         // bytes
constexpr int kSteps = 10'000, kTimes = 50;    // about a millisecond a CPU
constexpr double kGiveUp = 15;                 // seconds, for an operation
constexpr Duration kGpuTestLimit = std::chrono::seconds(25);
constexpr double kGiveUpOnGpus = 30;  // seconds, if the GPUs must be awaited

constexpr std::uint64_t kSeed = 20'26;
constexpr std::uint64_t kComputed = compute(kSeed, kSteps);  // by the compiler

constexpr std::uint64_t pattern(std::size_t place, int turn) {
  const std::uint64_t mixed = (place + 1) * 0x9e3779b97f4a7c15;
  return turn == 0 ? mixed : ~mixed;
}

// On the present CPU.
bool computes_right() {
  const volatile std::uint64_t seed = kSeed;
  for (int i = 0; i < kTimes; ++i) {
    if (compute(seed, kSteps) != kComputed) return false;
  }
  return true;
}

// Each rank's part is small enough for every sum to be exact.
std::string test_collective(dl::Communicator& all) {
  std::vector<double> values(32 << 10);
  const int size = all.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(i) * (all.rank() + 1);
  }
  all.all_reduce(std::span(values));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double right = static_cast<double>(i) * (size * (size + 1) / 2);
    if (values[i] == right) continue;
    return fmt::format("all_reduce of {} processes: element {} is {}, not {}", size, i, values[i],
                       right);
  }
  return "";
}

std::string test_all(dl::Communicator& all, const std::string& gpus) {
  const int rank = all.rank(), size = all.size();
  const std::size_t most = std::min<std::size_t>(kMostMemory, find_host_facts("").memory_free / 8);
  std::string wrong = test_memory(most / static_cast<std::size_t>(size));
  if (wrong.empty()) wrong = test_cpus(rank, size);
  if (wrong.empty() && rank == 0) wrong = test_room("/dev/shm");
  if (wrong.empty() && rank == 0) wrong = test_room(folder_for_jobs());
  const int asked = std::atoi(gpus.c_str());
  if (wrong.empty() && rank == 0) wrong = test_gpus(asked);
  if (wrong.empty() && rank == 0 && asked > 0) {
    wrong = worst_of(gpu_facts_of_host(false, kGpuTestLimit));
  }
  return wrong.empty() ? test_collective(all) : wrong;
}

int say(const std::string& wrong) {
  if (wrong.empty()) return 0;
  std::puts(wrong.c_str());
  std::fflush(stdout);
  return 1;
}

}  // namespace

void fill_pattern(std::span<std::uint64_t> words, int turn) {
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = pattern(i, turn);
}

std::optional<std::size_t> first_wrong(std::span<const std::uint64_t> words, int turn) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] != pattern(i, turn)) return i;
  }
  return std::nullopt;
}

std::string test_memory(std::size_t bytes) {
  std::vector<std::uint64_t> words(bytes / sizeof(std::uint64_t));
  for (const int turn : {0, 1}) {
    fill_pattern(words, turn);
    // The compiler must not know what it has just written.
    asm volatile("" : : "r"(words.data()) : "memory");
    if (const auto at = first_wrong(words, turn)) {
      return fmt::format("memory does not hold what was written: a word is {:016x}, not {:016x}",
                         words[*at], pattern(*at, turn));
    }
  }
  return "";
}

std::string test_cpus(int first, int of) {
  const std::string ours = own_cpus();
  if (ours.empty()) return errno_error("our CPUs", errno).what;
  const std::vector<int> cpus = cpus_in(ours);
  std::string wrong;
  for (auto i = static_cast<std::size_t>(first); i < cpus.size() && wrong.empty();
       i += static_cast<std::size_t>(of)) {
    if (const int error = run_on(only_cpu(cpus[i])); error != 0) {
      wrong = errno_error(fmt::format("run on CPU {}", cpus[i]), error).what;
    } else if (!computes_right()) {
      wrong = fmt::format("CPU {} computes wrong", cpus[i]);
    }
  }
  run_on(ours);
  return wrong;
}

std::string test_room(const std::string& folder) {
  if (::access(folder.c_str(), F_OK) != 0 && errno == ENOENT) return "";
  std::string name = folder + "/dlaunch-test-XXXXXX";
  const UniqueFd file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) return errno_error("make a file in " + folder, errno).what;
  ::unlink(name.c_str());
  const int error = ::posix_fallocate(file.get(), 0, kRoom);
  return error == 0 ? "" : errno_error("room for 1 MiB in " + folder, error).what;
}

std::string test_gpus(int asked, const std::string& root) {
  if (asked == 0) return "";
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const auto found = usable_gpus(read_gpu_files(root),
                                 visible ? std::optional<std::string>(visible) : std::nullopt);
  if (!found) return found.error().what;
  const auto here = static_cast<int>(found->size());
  return here >= asked ? "" : fmt::format("{} of {} GPUs are here", here, asked);
}

// Facts that are only history are the doctor's business; the job has run on these GPUs with them.
std::string worst_of(AllGpuFacts facts) {
  for (GpuFacts& gpu : facts.gpus) {
    gpu.figures.uncorrected = 0;
    gpu.figures.rows_pending = gpu.figures.pages_pending = false;
  }
  for (const auto& finding : gpu_findings("this host", facts)) {
    if (finding.bad) return finding.what + "; " + finding.fix;
  }
  return "";
}

std::vector<std::string> host_test_words(const std::string& nproc, const std::string& gpus) {
  const int workers = std::clamp(std::atoi(nproc.c_str()), 2, 8);
  return {"--nproc", std::to_string(workers), "--output", "raw", "--grace", "1s", "--timeout",
          gpus == "0" ? "20s" : "40s", "--straggler", "off", "--",
          // Wherever it is installed here.
          "/proc/self/exe", kHostTestWorkerWord, gpus};
}

int run_host_test_worker(const std::string& gpus) {
  try {
    dl::Options options;
    options.op_timeout_s = gpus == "0" ? kGiveUp : kGiveUpOnGpus;
    auto all = dl::Communicator::init(nullptr, options);
    const std::string wrong = test_all(all, gpus);
    if (wrong.empty()) all.barrier();
    return say(wrong);
  } catch (const dl::PeerLost&) {
    return 1;  // the error has been printed
  } catch (const dl::Error& error) {
    return say(fmt::format("a collective on this host: {}", error.what()));
  }
}

}  // namespace dlaunch
