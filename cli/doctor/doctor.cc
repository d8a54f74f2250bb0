#include "cli/doctor/doctor.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/contract.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "cli/doctor/findings.h"
#include "cli/doctor/findings_json.h"
#include "cli/doctor/host_facts.h"
#include "cli/option_table.h"
#include "dlaunch/ring.hpp"

namespace dlaunch {
namespace {

constexpr const char* kBegan = contract::kDoctorBegan;  // host and time by its clock
constexpr const char* kAsJson = contract::kDoctorJson;
constexpr int kTries = 5;                                    // of a round trip
constexpr std::size_t kFirst = 256 << 10, kLarge = 8 << 20;  // bytes
constexpr double kSlow_s = 0.05;  // for kFirst: if slower, no more is sent
constexpr double kGiveUp_s = 60;  // of an operation
constexpr Duration kGpuTestsLimit = std::chrono::seconds(40);  // lower than kGiveUp_s

using Bytes = std::vector<std::uint8_t>;

double wall_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double seconds_since(TimePoint begin) { return to_seconds(steady_now() - begin); }

// One of the hosts.
class Examiner {
 public:
  Examiner(dl::Communicator& hosts, double ran_at) : hosts_(hosts), ran_at_(ran_at) {}

  // On rank 0: 1 if there are problems.
  int examine_all() {
    std::vector<HostFacts> facts = gather_facts();
    measure_clocks(facts);
    std::string broken;
    std::vector<PairFacts> pairs;
    try {
      pairs = measure_pairs();
    } catch (const dl::Error& error) {
      broken = error.what();
    }
    if (hosts_.rank() != 0) return kExitOk;
    auto findings = examine(facts, pairs);
    if (!broken.empty()) {
      findings.insert(findings.begin(), {true, "measuring the pairs failed: " + broken,
                                         "if a small packet passes and a large one does not, check "
                                         "the MTU; if neither passes, a firewall"});
    }
    const bool as_json = std::getenv(kAsJson) != nullptr;
    const auto report = as_json ? json_report_of : report_of;
    std::fputs(report(facts, pairs, findings).c_str(), stdout);
    std::fflush(stdout);
    return !findings.empty() && findings.front().bad ? 1 : kExitOk;
  }

 private:
  template <class T>
  std::vector<T> gather(const T& own) {
    std::vector<T> all(static_cast<std::size_t>(hosts_.size()));
    hosts_.all_gather(as_bytes(std::span(&own, 1)), as_bytes(std::span(all)));
    return all;
  }
  std::vector<std::string> gather_texts(const std::string& own) {
    const auto sizes = gather(own.size());
    Bytes all(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
    hosts_.all_gather_v(std::span<const std::uint8_t>(
                            reinterpret_cast<const std::uint8_t*>(own.data()), own.size()),
                        std::span(all), sizes);
    std::vector<std::string> texts;
    const char* at = reinterpret_cast<const char*>(all.data());
    for (const auto size : sizes) {
      texts.emplace_back(at, size);
      at += size;
    }
    return texts;
  }
  template <class T>
  static std::span<const std::uint8_t> as_bytes(std::span<const T> of) {
    return {reinterpret_cast<const std::uint8_t*>(of.data()), of.size_bytes()};
  }
  template <class T>
  static std::span<std::uint8_t> as_bytes(std::span<T> of) {
    return {reinterpret_cast<std::uint8_t*>(of.data()), of.size_bytes()};
  }

  std::vector<HostFacts> gather_facts();
  void measure_clocks(std::vector<HostFacts>& facts);
  std::vector<PairFacts> measure_pairs();
  PairFacts measure(int peer);
  void answer(int peer);
  double send_s(int peer, std::size_t bytes);
  void take(int peer, std::size_t bytes);

  dl::Communicator& hosts_;
  double ran_at_;
};

// Looks for the way to the leader; the first host looks for the way to the second instead.
std::vector<HostFacts> Examiner::gather_facts() {
  const char* leader = std::getenv("MASTER_ADDR");
  std::string towards = leader != nullptr && hosts_.size() > 1 && hosts_.rank() > 0 ? leader : "";
  HostFacts own = find_host_facts(towards);
  const auto addresses = gather_texts(own.address);
  if (hosts_.rank() == 0 && hosts_.size() > 1) own = find_host_facts(addresses[1]);
  own.gpu_facts = gpu_facts_of_host(true, kGpuTestsLimit);
  std::vector<HostFacts> all;
  for (const auto& text : gather_texts(encode(own))) {
    auto facts = decode_host_facts(text);
    all.push_back(facts ? *facts : HostFacts{});
  }
  return all;
}

// Of rank 0's questions and answers, the quickest is the most exact.
void Examiner::measure_clocks(std::vector<HostFacts>& facts) {
  double told[2] = {};  // the time there, and when its worker started
  for (int rank = 1; rank < hosts_.size(); ++rank) {
    double least = 1e9;
    for (int i = 0; i < kTries; ++i) {
      if (hosts_.rank() == rank) {
        hosts_.recv(std::span(told, 1), 0);
        told[0] = wall_s();
        told[1] = ran_at_;
        hosts_.send(std::span<const double>(told), 0);
      } else if (hosts_.rank() == 0) {
        const double before = wall_s();
        const TimePoint begin = steady_now();
        hosts_.send(std::span<const double>(told, 1), rank);
        hosts_.recv(std::span<double>(told), rank);
        const double took = seconds_since(begin);
        if (took >= least) continue;
        least = took;
        auto& host = facts[static_cast<std::size_t>(rank)];
        host.clock_ahead_s = told[0] - (before + took / 2);
        host.clock_error_s = took / 2;
        host.started_s = told[1] - host.clock_ahead_s;
      }
    }
  }
  if (hosts_.rank() != 0) return;
  facts[0].started_s = ran_at_;
  const char* began = std::getenv(kBegan);
  const std::string text = began != nullptr ? began : "";
  const auto blank = text.find(' ');
  // Only its own clock tells how long ago that was.
  const bool here = blank != text.npos && text.substr(0, blank) == facts[0].host;
  const double began_at = here ? std::atof(text.c_str() + blank) : 0;
  for (auto& host : facts) host.started_s = here ? std::max(0.0, host.started_s - began_at) : -1;
}

double Examiner::send_s(int peer, std::size_t bytes) {
  const Bytes data(bytes, 1);
  std::uint8_t arrived = 0;
  const TimePoint begin = steady_now();
  hosts_.send(std::span<const std::uint8_t>(data), peer);
  hosts_.recv(std::span(&arrived, 1), peer);
  return seconds_since(begin);
}

void Examiner::take(int peer, std::size_t bytes) {
  Bytes data(bytes);
  const std::uint8_t arrived = 1;
  hosts_.recv(std::span(data), peer);
  hosts_.send(std::span(&arrived, 1), peer);
}

// Called by the lower rank of a pair: round trips, then the throughput each way. A quick first
// message is followed by a larger one, so that neither a slow start nor a slow link takes too
// long.
PairFacts Examiner::measure(int peer) {
  PairFacts pair{.a = hosts_.rank(), .b = peer, .round_trip_s = 1e9};
  for (int i = 0; i < kTries; ++i) {
    pair.round_trip_s = std::min(pair.round_trip_s, send_s(peer, 1));
  }
  const auto rate = [](std::size_t bytes, double took) {
    return static_cast<double>(bytes) / took;
  };
  std::size_t bytes = kFirst;
  double took = send_s(peer, bytes);
  if (took < kSlow_s) bytes = kLarge;
  const std::uint64_t agreed = bytes;
  hosts_.send(std::span(&agreed, 1), peer);
  if (bytes == kLarge) took = std::min(send_s(peer, bytes), send_s(peer, bytes));
  pair.bytes_per_s = rate(bytes, took);
  for (const int again : {0, 1}) {
    if (again == 1 && bytes != kLarge) continue;
    const TimePoint begin = steady_now();
    take(peer, bytes);
    pair.bytes_per_s_back = std::max(pair.bytes_per_s_back, rate(bytes, seconds_since(begin)));
  }
  return pair;
}

void Examiner::answer(int peer) {
  for (int i = 0; i < kTries; ++i) take(peer, 1);
  take(peer, kFirst);
  std::uint64_t bytes = 0;
  hosts_.recv(std::span(&bytes, 1), peer);
  const int times = bytes == kLarge ? 2 : 1;
  for (int i = 0; i < times && bytes == kLarge; ++i) take(peer, bytes);
  for (int i = 0; i < times; ++i) send_s(peer, bytes);
}

std::vector<PairFacts> Examiner::measure_pairs() {
  std::string own;
  for (const auto& round : pair_rounds(hosts_.size())) {
    for (const auto& [a, b] : round) {
      if (hosts_.rank() == b) answer(a);
      if (hosts_.rank() != a) continue;
      const PairFacts pair = measure(b);
      own.append(reinterpret_cast<const char*>(&pair), sizeof pair);
    }
    hosts_.barrier();
  }
  std::vector<PairFacts> pairs;
  for (const auto& text : gather_texts(own)) {
    for (std::size_t at = 0; at + sizeof(PairFacts) <= text.size(); at += sizeof(PairFacts)) {
      text.copy(reinterpret_cast<char*>(&pairs.emplace_back()), sizeof(PairFacts), at);
    }
  }
  return pairs;
}

}  // namespace

std::vector<std::string> doctor_words(const std::vector<std::string>& words) {
  std::vector<std::string> all = {
      "--env", fmt::format("{}={} {:.6f}", kBegan, find_host_facts("").host, wall_s())};
  for (const auto& word : words) {
    if (word == "--json") {
      all.insert(all.end(), {"--env", fmt::format("{}=1", kAsJson)});
    } else {
      all.push_back(word);
    }
  }
  // Each host's own dlaunch, wherever it is installed.
  all.insert(all.end(), {"--", "/proc/self/exe", kDoctorWorkerWord});
  return all;
}

Options doctor_options(Options options) {
  constexpr std::string_view kTimes[] = {"grace", "timeout", "join-timeout"};
  for (const OptionRow& row : option_table()) {
    const bool of_a_job = row.group == Group::output || row.group == Group::failure;
    const bool time = std::find(std::begin(kTimes), std::end(kTimes), row.name) != std::end(kTimes);
    if (of_a_job && !time) std::visit([&](auto option) { options.*option = {}; }, row.target);
  }
  options.output = {"raw", "doctor"};
  options.module = options.no_python = {};
  options.journal = options.health_check = options.topology = options.rack = {};
  return options;
}

Result<void> check_doctor(const Options& options) {
  if (options.emit) {
    return Error{.code = Errc::usage,
                 .what = fmt::format("doctor checks hosts that exist now: leave out '{}'",
                                     options.emit.source)};
  }
  const auto& program = options.program;
  if (program.size() == 2 && program[1] == kDoctorWorkerWord) return {};
  return Error{.code = Errc::usage,
               .what = fmt::format("doctor takes only options: leave out '{}'",
                                   program.empty() ? "" : program[0])};
}

int run_doctor_worker() {
  const double ran_at = wall_s();
  try {
    dl::Options options;
    options.op_timeout_s = kGiveUp_s;
    auto all = dl::Communicator::init(nullptr, options);
    const char* local_rank = std::getenv("LOCAL_RANK");
    const bool first_here = local_rank == nullptr || std::string_view(local_rank) == "0";
    auto hosts = all.split(first_here ? 0 : 1, all.rank());
    return first_here ? Examiner(hosts, ran_at).examine_all() : kExitOk;
  } catch (const dl::Error& error) {
    log_error("doctor: {}", error.what());
    return kExitInternal;
  }
}

}  // namespace dlaunch
