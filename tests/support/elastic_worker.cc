// A small elastic program for fault tests: trains on whole numbers, so that the result is exact and
// the same for any number of ranks, deaths and snapshots on the way.
//
// usage: elastic_worker [--steps N] [--size DOUBLES] [--shard DOUBLES] [--step-ms MS]
//                       [--commit-every N] [--die-at STEP:RANK[:all]]... [--death HOW]
//                       [--snapshot DIR] [--log FILE] [--log-steps 1] [--until FILE]
//                       [--alarm-us US] [--trusts-sums 1]
//
// Each rank prints "rank R of N: step S, result HEX" at the end. --die-at: in the middle of that
// step the process that began as that rank in round 1 dies; all: in any round. --death, as in
// worker_death.h: kill.
// --until: the last step is the first that finds that file. --alarm-us: a signal at this interval,
// whose handler interrupts system calls.
// --log gets lines from each process:
//   start pid P                            main() has begun
//   dies pid P                             by --die-at
//   round R rank R size N pid P step S     in that round it goes on from that step
//   members R rank R pids P,P...           all of that round, as that rank knows them
//   step R rank R done S                   with --log-steps, after each
// Exits with 66 if a sum is wrong, unless it trusts them, with 67 if a committed step is lost.
#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <dlaunch/elastic.hpp>

#include "worker_death.h"

namespace {

constexpr std::uint64_t kSamples = 1000, kBatch = 32;

struct Death {
  unsigned long step = 0;
  int rank = 0;
  bool all = false;
};

struct Options {
  unsigned long steps = 100, size = 1000, shard = 0, step_ms = 0;
  unsigned long alarm_us = 0, log_steps = 0, trusts_sums = 0;
  std::vector<Death> deaths;
  std::string death = "kill", snapshot, log, until;
  dl::StateOptions state;
};

// FNV-1a, 64 bits (Fowler, Noll, Vo).
std::uint64_t hash(std::span<const double> values) {
  std::uint64_t h = 14695981039346656037u;
  for (const std::byte byte : std::as_bytes(values)) {
    h = (h ^ static_cast<std::uint64_t>(byte)) * 1099511628211u;
  }
  return h;
}

// One write, so that lines of several processes do not mix.
void append(const std::string& file, const std::string& line) {
  if (file.empty()) return;
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0 || ::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    throw std::runtime_error("cannot write " + file);
  }
  ::close(fd);
}

class Worker {
 public:
  Worker(dl::Communicator& comm, const Options& options)
      : comm_(comm),
        options_(options),
        x_(options.size),
        sums_(options.size + kWitnesses),
        shard_(my_part()) {
    state_.replicated("x", x_);
    state_.value("step", step_);
    state_.value("last", last_);
    if (options.shard > 0) state_.sharded("shard", shard_);
    if (!options.snapshot.empty()) state_.snapshots(options.snapshot, 10, 2);
  }

  void run() {
    dl::run_elastic(state_, [this] {
      // A commit with a lost shard is made again.
      const unsigned long redone = options_.shard > 0 ? 1 : 0;
      if (options_.state.commit_every <= 1 && step_ + redone < committed_) {
        std::fprintf(stderr, "step %lu was committed; now it is %lu\n", committed_, step_);
        ::_exit(67);
      }
      committed_ = step_;
      if (logged_ != comm_.round()) log();
      if (step_ == options_.steps || last_ != 0) return false;
      step();
      return true;
    });
    std::uint64_t result = hash(x_);
    if (options_.shard > 0) result ^= hash(whole_shard());
    std::printf("rank %d of %d: step %lu, result %016llx\n", comm_.rank(), comm_.size(), step_,
                static_cast<unsigned long long>(result));
  }

 private:
  std::vector<double> my_part() const {
    std::uint64_t first = 0, last = 0;
    dl_even_share(options_.shard, comm_.rank(), comm_.size(), &first, &last);
    std::vector<double> part(last - first);
    std::iota(part.begin(), part.end(), static_cast<double>(first));
    return part;
  }

  void step() {
    // Each sample adds to one of 64 columns.
    std::vector<double> columns(64);
    for (const std::uint32_t sample : sampler_.next().mine) {
      columns[sample % 64] += static_cast<double>(sample * 7919u % 1009);
    }
    for (std::size_t i = 0; i < x_.size(); ++i) sums_[i] = columns[i % 64];
    double* const witness = &sums_[x_.size()];
    witness[0] = comm_.rank() + 1;
    witness[1] = static_cast<double>(comm_.round());
    witness[2] = static_cast<double>(step_);
    witness[3] = !options_.until.empty() && ::access(options_.until.c_str(), F_OK) == 0 ? 1 : 0;
    const auto& deaths = options_.deaths;
    const auto now = [this](const Death& death) { return death.step == step_; };
    // All have committed the steps before: steps that only dead ranks had committed are done again.
    if (std::any_of(deaths.begin(), deaths.end(), now)) comm_.barrier();
    for (const Death& death : deaths) {
      const bool meant = death.rank == first_rank_ && (death.all || first_round_ == 1);
      if (!meant || !now(death)) continue;
      append(options_.log, "dies pid " + std::to_string(::getpid()) + "\n");
      die(options_.death);
    }
    if (options_.step_ms > 0) {
      const timespec pace{static_cast<time_t>(options_.step_ms / 1000),
                          static_cast<long>(options_.step_ms % 1000 * 1000000)};
      ::nanosleep(&pace, nullptr);
    }
    comm_.all_reduce(std::span(sums_));
    if (options_.trusts_sums == 0) check_sums();
    last_ = witness[3] > 0 ? 1 : 0;
    for (std::size_t i = 0; i < x_.size(); ++i) x_[i] += sums_[i];
    for (double& value : shard_) value += static_cast<double>(step_ % 7);
    ++step_;
    if (options_.log_steps == 0) return;
    append(options_.log, "step " + std::to_string(comm_.round()) + " rank " +
                             std::to_string(comm_.rank()) + " done " + std::to_string(step_) +
                             "\n");
  }

  // All contributions are of one round and one step, each once; and whole, since columns repeat.
  void check_sums() const {
    const double n = comm_.size();
    const double* const witness = &sums_[x_.size()];
    bool good = witness[0] == n * (n + 1) / 2 &&
                witness[1] == n * static_cast<double>(comm_.round()) &&
                witness[2] == n * static_cast<double>(step_);
    for (std::size_t i = 64; i < x_.size(); ++i) good = good && sums_[i] == sums_[i - 64];
    if (good) return;
    std::fprintf(stderr, "wrong sum in round %llu, step %lu: %g %g %g of %g ranks\n",
                 static_cast<unsigned long long>(comm_.round()), step_, witness[0], witness[1],
                 witness[2], n);
    ::_exit(66);
  }

  std::vector<double> whole_shard() {
    std::vector<std::size_t> counts;
    for (int rank = 0; rank < comm_.size(); ++rank) {
      std::uint64_t first = 0, last = 0;
      dl_even_share(options_.shard, rank, comm_.size(), &first, &last);
      counts.push_back(last - first);
    }
    std::vector<double> whole(options_.shard);
    comm_.all_gather_v(std::span<const double>(shard_), std::span(whole), counts);
    return whole;
  }

  void log() {
    if (options_.log.empty()) return;
    const auto round = std::to_string(comm_.round()), rank = std::to_string(comm_.rank());
    append(options_.log, "round " + round + " rank " + rank + " size " +
                             std::to_string(comm_.size()) + " pid " + std::to_string(::getpid()) +
                             " step " + std::to_string(step_) + "\n");
    const std::int32_t mine[] = {::getpid()};
    std::vector<std::int32_t> pids(static_cast<std::size_t>(comm_.size()));
    comm_.all_gather(std::span<const std::int32_t>(mine), std::span(pids));
    std::string members;
    for (const std::int32_t pid : pids)
      members += (members.empty() ? "" : ",") + std::to_string(pid);
    append(options_.log, "members " + round + " rank " + rank + " pids " + members + "\n");
    logged_ = comm_.round();
  }

  static constexpr std::size_t kWitnesses = 4;  // at the end of the sums

  dl::Communicator& comm_;
  const Options& options_;
  dl::State state_{comm_, options_.state};
  dl::ElasticSampler sampler_{state_, "samples", kSamples, kBatch, 1};
  std::vector<double> x_, sums_, shard_;
  unsigned long step_ = 0;
  unsigned long last_ = 0;       // 1: that was the last step
  unsigned long committed_ = 0;  // as this process knows
  const std::uint64_t first_round_ = comm_.round();
  const int first_rank_ = comm_.rank();
  std::uint64_t logged_ = 0;  // the last round logged
};

unsigned long number(const std::string& text) {
  char* end = nullptr;
  const unsigned long value = std::strtoul(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0') throw std::invalid_argument("not a number: " + text);
  return value;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--steps") {
      o.steps = number(value);
    } else if (flag == "--size") {
      o.size = number(value);
    } else if (flag == "--shard") {
      o.shard = number(value);
    } else if (flag == "--step-ms") {
      o.step_ms = number(value);
    } else if (flag == "--commit-every") {
      o.state.commit_every = static_cast<int>(number(value));
    } else if (flag == "--die-at") {
      Death death;
      int used = 0;
      std::sscanf(value.c_str(), "%lu:%d%n", &death.step, &death.rank, &used);
      death.all = value.substr(static_cast<std::size_t>(used)) == ":all";
      if (used == 0 || (!death.all && value.size() != static_cast<std::size_t>(used))) {
        throw std::invalid_argument("--die-at needs STEP:RANK or STEP:RANK:all");
      }
      o.deaths.push_back(death);
    } else if (flag == "--death") {
      o.death = value;
    } else if (flag == "--until") {
      o.until = value;
    } else if (flag == "--alarm-us") {
      o.alarm_us = number(value);
    } else if (flag == "--trusts-sums") {
      o.trusts_sums = number(value);
    } else if (flag == "--log-steps") {
      o.log_steps = number(value);
    } else if (flag == "--snapshot") {
      o.snapshot = value;
    } else if (flag == "--log") {
      o.log = value;
    } else {
      throw std::invalid_argument("unknown flag " + flag);
    }
  }
  if (argc % 2 == 0) throw std::invalid_argument("a flag without its value");
  return o;
}

void raise_alarms(unsigned long every_us) {
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};  // no SA_RESTART
  ::sigaction(SIGALRM, &nothing, nullptr);
  const timeval interval{static_cast<time_t>(every_us / 1000000),
                         static_cast<suseconds_t>(every_us % 1000000)};
  const itimerval timer{interval, interval};
  if (::setitimer(ITIMER_REAL, &timer, nullptr) != 0) throw std::runtime_error("setitimer failed");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    append(options.log, "start pid " + std::to_string(::getpid()) + "\n");
    if (options.alarm_us > 0) raise_alarms(options.alarm_us);
    dl::Options joining;
    joining.elastic = 1;
    auto comm = dl::Communicator::init(nullptr, joining);
    Worker(comm, options).run();
    return 0;
  } catch (const std::invalid_argument& e) {
    std::fprintf(stderr, "elastic_worker: %s\n", e.what());
    return 64;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "elastic_worker: %s\n", e.what());
    return 1;
  }
}
