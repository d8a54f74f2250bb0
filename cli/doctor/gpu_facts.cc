#include "cli/doctor/gpu_facts.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "base/exit_code.h"
#include "base/print.h"
#include "base/record.h"
#include "base/unique_fd.h"
#include "cli/doctor/gpu_test.h"
#include "launcher/node/placement/gpus.h"
#include "launcher/node/watch/nvml.h"
#include "launcher/process/command.h"

namespace dlaunch {
namespace {

constexpr RecordLimits kGpuFactLimits{.text = 400, .items = 4096, .escapes = true};
constexpr std::size_t kMostLog = 8 << 20;  // bytes

// From bad to worse. Not here: Xids of programs that went wrong (13, 31, 43, 45 …).
constexpr std::array kHardwareXids = {92, 94, 63, 61, 62, 74, 119, 120, 64, 140, 48, 95, 79};

std::size_t weight_of(int xid) {
  return static_cast<std::size_t>(std::find(kHardwareXids.begin(), kHardwareXids.end(), xid) -
                                  kHardwareXids.begin());
}

// Only the GPUs that this process's programs would see.
std::vector<GpuFigures> visible_of(std::vector<GpuFigures> all) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return all;
  std::vector<GpuFigures> some;
  std::set<std::size_t> seen;  // several instances may be of one GPU
  for (const GpuUse& use : gpus_named(all, visible)) {
    if (seen.insert(use.gpu).second) some.push_back(all[use.gpu]);
  }
  return some;
}

// Adds GPUs that are in the driver's files but unknown to NVML, or not known by their bus.
void add_missing(std::vector<GpuFigures>& gpus, const std::vector<std::string>& in_files) {
  const auto find = [&gpus](const auto& is) { return std::find_if(gpus.begin(), gpus.end(), is); };
  for (const std::string& bus : in_files) {
    if (find([&](const GpuFigures& gpu) { return gpu.bus == bus; }) != gpus.end()) continue;
    auto lost = find([](const GpuFigures& gpu) { return gpu.bus.find(':') == std::string::npos; });
    if (lost == gpus.end()) lost = gpus.insert(gpus.end(), GpuFigures{});
    lost->bus = bus;
    if (lost->lost.empty()) lost->lost = "NVML does not list it";
  }
}

}  // namespace

std::map<std::string, int> xids_in(std::string_view kernel_log) {
  constexpr std::string_view kBegin = "NVRM: Xid (PCI:";
  std::map<std::string, int> worst;
  for (std::size_t at = kernel_log.find(kBegin); at != kernel_log.npos;
       at = kernel_log.find(kBegin, at + 1)) {
    const std::string_view rest = kernel_log.substr(at + kBegin.size(), 64);
    const auto end = rest.find("): ");
    if (end == rest.npos) continue;
    int xid = 0;
    const std::string_view number = rest.substr(end + 3);
    std::from_chars(number.data(), number.data() + number.size(), xid);
    if (weight_of(xid) == kHardwareXids.size()) continue;
    int& known = worst[short_bus(std::string(rest.substr(0, end)))];
    if (known == 0 || weight_of(xid) > weight_of(known)) known = xid;
  }
  return worst;
}

// Reads a record at a time; EPIPE: some were overwritten before we read them.
std::string kernel_log() {
  const UniqueFd fd(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string log;
  char record[8192];
  while (fd && log.size() < kMostLog) {
    const ssize_t size = ::read(fd.get(), record, sizeof record);
    if (size < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (size <= 0) break;
    log.append(record, static_cast<std::size_t>(size));
  }
  return log;
}

AllGpuFacts find_gpu_facts(bool speed, const std::vector<std::string>& in_files,
                           std::string_view log) {
  AllGpuFacts facts;
  auto figures = ask_nvml();
  if (!figures && figures.error().code != Errc::unsupported) {
    // Without a GPU there is no driver, but an image for many machines has the library all the
    // same.
    if (!in_files.empty()) facts.trouble = "NVML: " + figures.error().what;
    return facts;
  }
  if (figures) {
    add_missing(*figures, in_files);
    for (auto& gpu : visible_of(std::move(*figures))) {
      facts.gpus.push_back({.figures = std::move(gpu), .xid = 0, .test = {}});
    }
  }
  const auto xids = xids_in(log);
  auto tests = test_gpus_by_cuda(speed);
  const bool expected = !in_files.empty() || !facts.gpus.empty();
  if (!tests && tests.error().code != Errc::unsupported && expected)
    facts.trouble = "CUDA: " + tests.error().what;
  for (GpuFacts& gpu : facts.gpus) {
    for (const auto& [card, xid] : xids) {
      if (gpu.figures.bus.starts_with(card)) gpu.xid = xid;
    }
    if (!tests) continue;
    if (const auto test = tests->extract(gpu.figures.bus)) gpu.test = test.mapped();
  }
  if (!tests) return facts;
  for (const auto& [bus, test] : *tests) {  // GPUs that NVML does not list
    GpuFacts& gpu = facts.gpus.emplace_back();
    gpu.figures.bus = bus;
    gpu.test = test;
  }
  return facts;
}

std::string encode(const AllGpuFacts& facts) { return encode_record(facts, kGpuFactLimits); }

Result<AllGpuFacts> decode_gpu_facts(std::string_view bytes) {
  AllGpuFacts facts;
  if (decode_record(bytes, facts, kGpuFactLimits)) return facts;
  return Error{.code = Errc::protocol, .what = "malformed facts of GPUs"};
}

namespace {

// The driver's files also list GPUs that were given to others.
bool for_us(const GpuFiles& gpu) {
  const std::string device = "/dev/nvidia" + gpu.minor;
  const UniqueFd fd(::open(device.c_str(), O_RDWR | O_CLOEXEC));
  return fd || (errno != EPERM && errno != EACCES && errno != ENOENT);
}

}  // namespace

int run_gpu_test(bool speed) {
  std::vector<std::string> in_files;
  for (const auto& gpu : read_gpu_files()) {
    if (for_us(gpu)) in_files.push_back(gpu.bus);
  }
  const std::string bytes = encode(find_gpu_facts(speed, in_files, kernel_log()));
  return print_all(bytes) ? kExitOk : kExitSystem;
}

AllGpuFacts gpu_facts_of_host(bool speed, Duration limit) {
  const auto end = run_command({.argv = {"/proc/self/exe", kGpuTestWord, speed ? "speed" : "quick"},
                                .env = own_environment(),
                                .limit = limit});
  if (!end) return {.trouble = end.error().what, .gpus = {}};
  const std::string how = describe(*end, limit);
  if (!how.empty()) return {.trouble = "the test of the GPUs " + how, .gpus = {}};
  auto facts = decode_gpu_facts(end->text);
  return facts ? *facts : AllGpuFacts{.trouble = facts.error().what, .gpus = {}};
}

}  // namespace dlaunch
