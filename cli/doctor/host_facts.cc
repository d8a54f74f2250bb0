#include "cli/doctor/host_facts.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/interfaces.h"
#include "base/record.h"
#include "base/small_file.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "cli/machine.h"
#include "launcher/node/placement/gpus.h"
#include "launcher/node/placement/topology.h"

namespace dlaunch {
namespace {

namespace fs = std::filesystem;

constexpr RecordLimits kFactLimits{.text = 4096, .items = 4096, .escapes = true};

// A file's only number; ~0: there is none, or no limit ("max").
std::uint64_t number_in(const char* path) {
  const std::string line = first_line_of(path);
  char* end = nullptr;
  const auto number = std::strtoull(line.c_str(), &end, 10);
  return end == line.c_str() ? ~0ULL : number;
}

// The third of "4096 87380 6291456"; 0: there is none.
std::uint64_t most_of(const char* path) {
  std::istringstream words(first_line_of(path));
  std::uint64_t least = 0, usual = 0, most = 0;
  words >> least >> usual >> most;
  return most;
}

// The word in brackets of "always [madvise] never".
std::string chosen_in(const char* path) {
  const std::string line = first_line_of(path);
  const auto begin = line.find('['), end = line.find(']');
  return begin == line.npos || end == line.npos ? "" : line.substr(begin + 1, end - begin - 1);
}

void find_memory(HostFacts& facts) {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (std::uint64_t kib = 0; file >> name >> kib; std::getline(file, unit)) {
    if (name == "MemTotal:") facts.memory = kib * 1024;
    if (name == "MemAvailable:") facts.memory_free = kib * 1024;
  }
  // The paths of a container's own cgroup, by version 2 and 1.
  const std::pair<const char*, const char*> limits[] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
       "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
  for (const auto& [limit, used] : limits) {
    const std::uint64_t most = number_in(limit), now = number_in(used);
    if (most >= facts.memory || now == ~0ULL) continue;
    facts.memory = most;
    facts.memory_free = std::min(facts.memory_free, most - std::min(most, now));
  }
}

void find_limits(HostFacts& facts) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.open_files = limit.rlim_max;
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) facts.locked_memory = limit.rlim_cur;
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) facts.shared_memory = shm.f_blocks * shm.f_frsize;
  facts.send_buffer = most_of("/proc/sys/net/ipv4/tcp_wmem");
  facts.recv_buffer = most_of("/proc/sys/net/ipv4/tcp_rmem");
  facts.huge_pages = chosen_in("/sys/kernel/mm/transparent_hugepage/enabled");
}

bool leads_to_loopback(const std::string& name) {
  const auto address = this_machine().local_address(name);
  return address && (address->starts_with("127.") || *address == "::1");
}

int mtu_of(const std::string& interface) {
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq asked{};
  interface.copy(asked.ifr_name, sizeof asked.ifr_name - 1);
  return fd && ::ioctl(fd.get(), SIOCGIFMTU, &asked) == 0 ? asked.ifr_mtu : 0;
}

void find_way(HostFacts& facts, const std::string& towards) {
  const auto address = this_machine().address_towards(towards);
  if (!address) return;
  facts.address = *address;
  for (const HostAddress& own : host_addresses()) {
    if (own.address == *address) facts.interface = own.interface;
  }
  if (!facts.interface.empty()) facts.mtu = mtu_of(facts.interface);
}

void find_gpus(HostFacts& facts) {
  facts.gpus = static_cast<int>(read_gpu_files().size());
  std::istringstream words(first_line_of("/proc/driver/nvidia/version"));
  for (std::string word; words >> word;) {
    const bool version = word.find('.') != word.npos && std::isdigit(word[0]) != 0;
    if (version && facts.gpu_driver.empty()) facts.gpu_driver = word;
  }
}

}  // namespace

HostFacts find_host_facts(const std::string& towards) {
  HostFacts facts;
  utsname system{};
  if (::uname(&system) == 0) facts.host = system.nodename;
  facts.named_loopback = leads_to_loopback(facts.host);
  const UsableCpus cpus = usable_cpus();
  facts.cpus = cpus.affinity;
  facts.cpu_quota = cpus.quota;
  double load[1] = {};
  if (::getloadavg(load, 1) == 1) facts.load = load[0];
  find_memory(facts);
  find_limits(facts);
  if (!towards.empty()) find_way(facts, towards);
  std::error_code none;
  facts.infiniband =
      fs::exists("/sys/class/infiniband", none) && !fs::is_empty("/sys/class/infiniband", none);
  find_gpus(facts);
  return facts;
}

std::string encode(const HostFacts& facts) { return encode_record(facts, kFactLimits); }

Result<HostFacts> decode_host_facts(std::string_view bytes) {
  HostFacts facts;
  if (decode_record(bytes, facts, kFactLimits)) return facts;
  return Error{.code = Errc::protocol, .what = "malformed facts of a host"};
}

}  // namespace dlaunch
