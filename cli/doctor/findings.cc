#include "cli/doctor/findings.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text_table.h"
#include "base/units.h"
#include "cli/doctor/gpu_findings.h"
#include "cli/doctor/sites.h"

namespace dlaunch {
namespace {

constexpr std::uint64_t kMiB = 1 << 20, kGiB = 1 << 30;
// The limits from which a figure is reported.
constexpr double kClockApart_s = 1;
constexpr std::uint64_t kFewFiles = 4096;
constexpr std::uint64_t kSmallShm = kGiB;
constexpr double kSlowPair = 0.5;              // of the median pair
constexpr double kFarPair = 5, kFar_s = 1e-3;  // times the median pair, and at least that
constexpr double kBusy = 0.5;                  // of the CPUs that are ours
constexpr double kFullMemory = 0.1;            // free, of all
constexpr std::size_t kAllPairs = 8;           // up to so many hosts: one pair after the other

std::string size_text(std::uint64_t bytes) {
  if (bytes >= kGiB) return fmt::format("{:.4g} GiB", static_cast<double>(bytes) / kGiB);
  return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / kMiB);
}

// "host1, host2 and 5 more"
std::string names_text(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 4;
  if (names.size() <= kMost) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kMost, ", "),
                     names.size() - kMost);
}

class Examination {
 public:
  Examination(const std::vector<HostFacts>& hosts, const std::vector<PairFacts>& pairs)
      : hosts_(hosts), pairs_(pairs) {}

  std::vector<Finding> take() {
    look_at_clocks();
    look_at_hosts();
    look_at_differences();
    look_at_pairs();
    for (const auto& host : hosts_) {
      for (auto& finding : gpu_findings(host.host, host.gpu_facts)) {
        found_.push_back(std::move(finding));
      }
    }
    std::stable_partition(found_.begin(), found_.end(), [](const Finding& f) { return f.bad; });
    return std::move(found_);
  }

 private:
  using Is = std::function<bool(const HostFacts&)>;
  using Says = std::function<std::string(const HostFacts&)>;

  void find(bool bad, std::string what, std::string fix) {
    found_.push_back({bad, std::move(what), std::move(fix)});
  }
  // One finding for all hosts for which it is true, with the words for the first.
  void find_where(bool bad, const Is& is, const Says& says, const std::string& fix) {
    std::vector<std::string> names;
    std::string said;
    for (const auto& host : hosts_) {
      if (!is(host)) continue;
      if (names.empty()) said = says(host);
      names.push_back(host.host);
    }
    if (!names.empty()) find(bad, fmt::format("{}: {}", names_text(names), said), fix);
  }
  // Reports a value that should be the same on all hosts, with the hosts of each value. as_text:
  // "" if unknown.
  void find_difference(bool bad, const std::string& name, const Says& as_text,
                       const std::string& fix) {
    std::map<std::string, std::vector<std::string>> by_value;
    for (const auto& host : hosts_) {
      const auto value = as_text(host);
      if (!value.empty()) by_value[value].push_back(host.host);
    }
    if (by_value.size() < 2) return;
    std::vector<std::string> parts;
    parts.reserve(by_value.size());
    for (const auto& [value, names] : by_value) {
      parts.push_back(fmt::format("{} ({})", value, names_text(names)));
    }
    find(bad, fmt::format("{} differs: {}", name, fmt::join(parts, ", ")), fix);
  }

  void look_at_clocks();
  void look_at_hosts();
  void look_at_differences();
  std::vector<bool> find_slow_hosts();
  void look_at_pairs();
  void look_at_buffers(const PairFacts& pair);

  const std::vector<HostFacts>& hosts_;
  const std::vector<PairFacts>& pairs_;
  std::vector<Finding> found_;
};

void Examination::look_at_clocks() {
  find_where(
      false,
      [](const HostFacts& h) {
        return std::abs(h.clock_ahead_s) - h.clock_error_s > kClockApart_s;
      },
      [this](const HostFacts& h) {
        return fmt::format("its clock is {} {} that of {}",
                           format_seconds(std::abs(h.clock_ahead_s)),
                           h.clock_ahead_s > 0 ? "ahead of" : "behind", hosts_.front().host);
      },
      "let chrony or systemd-timesyncd set it: you cannot compare log files, and certificates may "
      "not be valid there");
}

void Examination::look_at_hosts() {
  find_where(
      true, [](const HostFacts& h) { return h.open_files < kFewFiles; },
      [](const HostFacts& h) {
        return fmt::format(
            "a process may open {} files, and a rank needs one or more for each other rank",
            h.open_files);
      },
      fmt::format("ulimit -Hn {}, or nofile in /etc/security/limits.conf", 65536));
  find_where(
      true,
      [](const HostFacts& h) {
        return static_cast<double>(h.memory_free) < kFullMemory * static_cast<double>(h.memory);
      },
      [](const HostFacts& h) {
        return fmt::format("{} of {} of memory are free", size_text(h.memory_free),
                           size_text(h.memory));
      },
      "end what uses it, or ask for more");
  find_where(
      false, [](const HostFacts& h) { return h.shared_memory < kSmallShm; },
      [](const HostFacts& h) {
        return fmt::format(
            "/dev/shm has {}; dlaunch does not use it, but NCCL and loaders of data do",
            size_text(h.shared_memory));
      },
      "docker run --shm-size 8g, an emptyDir of medium Memory, or mount -o remount,size=8g "
      "/dev/shm");
  find_where(
      false, [](const HostFacts& h) { return h.load > kBusy * h.cpus; },
      [](const HostFacts& h) {
        return fmt::format(
            "other programs are running there: {:.1f} processes wanted its {} CPUs in the last "
            "minute",
            h.load, h.cpus);
      },
      "end them, or expect a straggler");
  find_where(
      false, [](const HostFacts& h) { return h.cpu_quota > 0 && h.cpu_quota < h.cpus; },
      [](const HostFacts& h) {
        return fmt::format("it has {} CPUs, and a quota for {:g} of them", h.cpus, h.cpu_quota);
      },
      "--nproc auto keeps to it; programs that count CPUs do not: --omp-threads");
  find_where(
      false, [this](const HostFacts& h) { return hosts_.size() > 1 && h.named_loopback; },
      [](const HostFacts&) {
        return std::string(
            "its own name has no address that others can reach: dlaunch needs none, but Gloo and "
            "others do");
      },
      "put its address beside its name in /etc/hosts, or set GLOO_SOCKET_IFNAME");
  find_where(
      false, [](const HostFacts& h) { return h.infiniband && h.locked_memory != ~0ULL; },
      [](const HostFacts& h) {
        return fmt::format("it has InfiniBand, but a process may lock only {} of memory",
                           size_text(h.locked_memory));
      },
      "ulimit -l unlimited, or memlock in /etc/security/limits.conf");
}

void Examination::look_at_differences() {
  const auto count = [](int number) { return number > 0 ? std::to_string(number) : ""; };
  find_difference(
      true, "the MTU", [&](const HostFacts& h) { return count(h.mtu); },
      "set one MTU on all hosts' interfaces and on everything between them, or large packets are "
      "lost");
  find_difference(
      false, "the number of CPUs", [&](const HostFacts& h) { return count(h.cpus); },
      "give the smaller hosts fewer workers (host:N in --hosts), or they delay all others");
  find_difference(
      false, "the number of GPUs", [](const HostFacts& h) { return std::to_string(h.gpus); },
      "use host:N in --hosts, or find out why a GPU is missing (nvidia-smi, dmesg)");
  find_difference(
      true, "the GPU driver", [](const HostFacts& h) { return h.gpu_driver; },
      "install one version on all hosts");
  find_difference(
      false, "transparent huge pages", [](const HostFacts& h) { return h.huge_pages; },
      "set the same value in /sys/kernel/mm/transparent_hugepage/enabled");
}

void Examination::look_at_buffers(const PairFacts& pair) {
  for (const auto& [from, to] : {std::pair(pair.a, pair.b), std::pair(pair.b, pair.a)}) {
    const auto& sender = hosts_[static_cast<std::size_t>(from)];
    const auto& receiver = hosts_[static_cast<std::size_t>(to)];
    const auto room = std::min(sender.send_buffer, receiver.recv_buffer);
    const double needed = pair.round_trip_s * pair.slower();
    if (room == 0 || needed < 0.7 * static_cast<double>(room)) continue;
    return find(
        false,
        fmt::format(
            "{} to {}: at that speed and distance {} are in flight, but a socket may hold only {}",
            sender.host, receiver.host, size_text(static_cast<std::uint64_t>(needed)),
            size_text(room)),
        "raise the third number in net.ipv4.tcp_wmem and net.ipv4.tcp_rmem");
  }
}

// A host that is slow with all others is one finding, and does not count for the other pairs.
std::vector<bool> Examination::find_slow_hosts() {
  std::vector<double> best(hosts_.size(), 0);
  for (const auto& pair : pairs_) {
    for (const int h : {pair.a, pair.b}) {
      auto& its = best[static_cast<std::size_t>(h)];
      its = std::max(its, pair.slower());
    }
  }
  const double usual = upper_median(best);
  std::vector<bool> slow(hosts_.size(), false);
  for (std::size_t h = 0; h < hosts_.size(); ++h) {
    slow[h] = best[h] < kSlowPair * usual;
    if (!slow[h]) continue;
    find(true,
         fmt::format("{}: {} at best to any other host; the median host has {}", hosts_[h].host,
                     format_rate(best[h]), format_rate(usual)),
         "check its cable, port, duplex and interface (--interface chooses another)");
  }
  return slow;
}

void Examination::look_at_pairs() {
  if (pairs_.empty()) return;
  const auto slow_hosts = find_slow_hosts();
  std::vector<PairFacts> pairs;
  std::copy_if(pairs_.begin(), pairs_.end(), std::back_inserter(pairs), [&](const PairFacts& p) {
    return !slow_hosts[static_cast<std::size_t>(p.a)] && !slow_hosts[static_cast<std::size_t>(p.b)];
  });
  if (pairs.empty()) return;
  std::vector<double> rates, trips;
  for (const auto& pair : pairs) {
    rates.push_back(pair.slower());
    trips.push_back(pair.round_trip_s);
  }
  const double rate = upper_median(rates), trip = upper_median(trips);
  for (const auto& pair : pairs) {
    const auto name = fmt::format("{} and {}", hosts_[static_cast<std::size_t>(pair.a)].host,
                                  hosts_[static_cast<std::size_t>(pair.b)].host);
    look_at_buffers(pair);
    if (pair.round_trip_s > std::max(kFarPair * trip, kFar_s)) {
      find(false,
           fmt::format("{} are far apart: a round trip of {}; the median pair has {}", name,
                       format_seconds(pair.round_trip_s), format_seconds(trip)),
           "use hosts of one rack or zone");
    }
    if (pair.slower() >= kSlowPair * rate) continue;
    find(true,
         fmt::format("{}: {} and {} back; the median pair has {}", name,
                     format_rate(pair.bytes_per_s), format_rate(pair.bytes_per_s_back),
                     format_rate(rate)),
         "check what is between these two (switch, route)");
  }
}

std::string hosts_text(const std::vector<HostFacts>& hosts) {
  const auto or_none = [](const std::string& text) { return text.empty() ? "-" : text; };
  std::vector<std::vector<std::string>> rows = {{"host", "address", "interface", "mtu", "cpus",
                                                 "memory free", "of", "files", "/dev/shm",
                                                 "huge pages", "gpus", "clock", "started after"}};
  for (const auto& h : hosts) {
    rows.push_back(
        {h.host, or_none(h.address), or_none(h.interface), h.mtu > 0 ? std::to_string(h.mtu) : "-",
         h.cpu_quota > 0 ? fmt::format("{} ({:g})", h.cpus, h.cpu_quota) : std::to_string(h.cpus),
         size_text(h.memory_free), size_text(h.memory), std::to_string(h.open_files),
         size_text(h.shared_memory), or_none(h.huge_pages), std::to_string(h.gpus),
         fmt::format("{:+.3g} ms ± {:.2g}", 1e3 * h.clock_ahead_s, 1e3 * h.clock_error_s),
         h.started_s < 0 ? "-" : format_seconds(h.started_s)});
  }
  return text_table(rows);
}

std::string pairs_text(const std::vector<HostFacts>& hosts, const std::vector<PairFacts>& pairs) {
  if (pairs.empty()) return "";
  std::vector<PairFacts> shown = pairs;
  std::sort(shown.begin(), shown.end(),
            [](const PairFacts& x, const PairFacts& y) { return x.slower() < y.slower(); });
  constexpr std::size_t kMost = 28;
  std::string more;
  if (shown.size() > kMost) {
    more = fmt::format("and {} pairs that are faster\n", shown.size() - kMost);
    shown.resize(kMost);
  }
  std::vector<std::vector<std::string>> rows = {{"between", "and", "round trip", "there", "back"}};
  for (const auto& pair : shown) {
    rows.push_back({hosts[static_cast<std::size_t>(pair.a)].host,
                    hosts[static_cast<std::size_t>(pair.b)].host, format_seconds(pair.round_trip_s),
                    format_rate(pair.bytes_per_s), format_rate(pair.bytes_per_s_back)});
  }
  return "\n" + text_table(rows) + more;
}

}  // namespace

double upper_median(std::vector<double> of) {
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

std::vector<Finding> examine(const std::vector<HostFacts>& hosts,
                             const std::vector<PairFacts>& pairs) {
  return Examination(hosts, pairs).take();
}

std::vector<std::vector<std::pair<int, int>>> pair_rounds(int hosts) {
  std::vector<std::vector<std::pair<int, int>>> rounds;
  if (hosts <= static_cast<int>(kAllPairs)) {
    for (int a = 0; a < hosts; ++a) {
      for (int b = a + 1; b < hosts; ++b) rounds.push_back({{a, b}});
    }
    return rounds;
  }
  const int seats = hosts + hosts % 2;  // with an odd number of hosts the last is empty
  for (int round = 0; round < seats - 1; ++round) {
    auto& now = rounds.emplace_back();
    const auto at = [&](int seat) { return seat == 0 ? 0 : 1 + (seat - 1 + round) % (seats - 1); };
    for (int seat = 0; seat < seats / 2; ++seat) {
      const auto [a, b] = std::minmax({at(seat), at(seats - 1 - seat)});
      if (b < hosts) now.emplace_back(a, b);
    }
  }
  return rounds;
}

std::string report_of(const std::vector<HostFacts>& hosts, const std::vector<PairFacts>& pairs,
                      const std::vector<Finding>& findings) {
  std::string text = hosts_text(hosts) + pairs_text(hosts, pairs) + sites_text(hosts, pairs) + "\n";
  for (const auto& finding : findings) {
    text += fmt::format("{}  {}\n{:9}{}\n", finding.bad ? "PROBLEM" : "warning", finding.what, "",
                        finding.fix);
  }
  const auto bad = static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(), [](const Finding& f) { return f.bad; }));
  const auto count = [](std::size_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  return text + count(bad, "problem") + ", " + count(findings.size() - bad, "warning") + "\n";
}

}  // namespace dlaunch
