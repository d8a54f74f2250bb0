#include "cli/check_build.h"

#include <dlfcn.h>

#include <algorithm>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "base/version.h"
#include "launcher/node/workers/worker_env.h"
#include "launcher/process/installed_file.h"

namespace dlaunch {
namespace {

struct Feature {
  std::string_view what;
  std::string_view libraries;  // one of these is needed; "": built in
};

constexpr Feature kControllers[] = {{"dlaunch's own store, by TCP or a shared folder", ""},
                                    {"MPI programs of MPICH's kin, by PMI-1", ""},
                                    {"MPI programs of Open MPI, by PMIx", "libpmix.so.2"},
                                    {"etcd", "libcurl.so.4 libcurl-gnutls.so.4"}};
constexpr Feature kOperations[] = {{"shared memory", ""},
                                   {"TCP", ""},
                                   {"NCCL, for memory on GPUs", "libnccl.so.2"},
                                   {"CUDA", "libcuda.so.1"}};
constexpr Feature kServices[] = {{"--tls", "libssl.so.3 libssl.so.1.1"},
                                 {"--bind", "libhwloc.so.15"},
                                 {"stacks of workers", "libdw.so.1"},
                                 {"figures of GPUs", "libnvidia-ml.so.1"}};

bool can_load(std::string_view libraries) {
  while (!libraries.empty()) {
    const auto end = std::min(libraries.find(' '), libraries.size());
    if (void* found = ::dlopen(std::string(libraries.substr(0, end)).c_str(), RTLD_LAZY)) {
      ::dlclose(found);
      return true;
    }
    libraries.remove_prefix(std::min(end + 1, libraries.size()));
  }
  return false;
}

// A plug-in that dlaunch brings itself.
std::string nccl_record_line() {
  const bool there = !find_installed(kNcclProfilerFile, "ring/profiler").empty();
  return there ? "    [X] --nccl-record\n"
               : fmt::format(
                     "    [ ] --nccl-record: {} is not here, or other users may write to it\n",
                     kNcclProfilerFile.substr(1));
}

std::string section(std::string_view title, std::span<const Feature> features) {
  std::string text = fmt::format("\n{}:\n", title);
  for (const Feature& feature : features) {
    const bool there = feature.libraries.empty() || can_load(feature.libraries);
    text += fmt::format("    [{}] {}", there ? 'X' : ' ', feature.what);
    const auto first = feature.libraries.substr(0, feature.libraries.find(' '));
    text += there ? "\n" : fmt::format(": {} is not here\n", first);
  }
  return text;
}

}  // namespace

std::string build_text() {
  return "dlaunch " DLAUNCH_VERSION ":\n" + section("Available controllers", kControllers) +
         section("Available operations between workers", kOperations) +
         section("Available for dlaunch itself", kServices) + nccl_record_line();
}

}  // namespace dlaunch
