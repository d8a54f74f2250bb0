#include "base/cpus.h"

#include <sched.h>

#include <bit>
#include <cerrno>

namespace dlaunch {

std::string own_cpus() {
  // The kernel wants room for the maximum number of CPUs of the machine.
  for (std::size_t bytes = sizeof(cpu_set_t); bytes <= kMostCpuBytes; bytes *= 2) {
    std::vector<unsigned long> words(bytes / sizeof(unsigned long));
    auto* const set = reinterpret_cast<cpu_set_t*>(words.data());
    if (::sched_getaffinity(0, bytes, set) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    std::string cpus(bytes, '\0');
    for (std::size_t cpu = 0; cpu < bytes * 8; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) cpus[cpu / 8] |= static_cast<char>(1 << cpu % 8);
    }
    return cpus.substr(0, cpus.find_last_not_of('\0') + 1);
  }
  return {};
}

std::string united(std::string a, std::string_view b) {
  if (a.size() < b.size()) a.resize(b.size());
  for (std::size_t i = 0; i < b.size(); ++i) a[i] |= b[i];
  return a;
}

std::vector<int> cpus_in(std::string_view set) {
  std::vector<int> cpus;
  for (std::size_t cpu = 0; cpu < set.size() * 8; ++cpu) {
    if ((set[cpu / 8] >> cpu % 8 & 1) != 0) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

std::string only_cpu(int cpu) {
  std::string set(static_cast<std::size_t>(cpu) / 8 + 1, '\0');
  set.back() = static_cast<char>(1 << cpu % 8);
  return set;
}

int run_on(std::string_view set) {
  std::vector<unsigned long> words(set.size() / sizeof(unsigned long) + 1);
  const std::size_t bytes = words.size() * sizeof(unsigned long);
  auto* const cpus = reinterpret_cast<cpu_set_t*>(words.data());
  for (const int cpu : cpus_in(set)) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, cpus);
  return ::sched_setaffinity(0, bytes, cpus) == 0 ? 0 : errno;
}

int count_cpus(std::string_view set) {
  int count = 0;
  for (const char byte : set) count += std::popcount(static_cast<unsigned char>(byte));
  return count;
}

}  // namespace dlaunch
