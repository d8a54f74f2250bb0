// A small elastic program for fault tests: trains on whole numbers, so that the result is exact and
// the same for any number of ranks, deaths and snapshots on the way.
//
// usage: elastic_worker [--steps N] [--size DOUBLES] [--shard DOUBLES] [--step-ms MS]
//                       [--commit-every N] [--die-at STEP:RANK[:all]]... [--snapshot DIR]
//                       [--log FILE]
//
// Each rank prints "rank R of N: step S, result HEX" at the end. --die-at: SIGKILL in the middle of
// that step to the process that began as that rank in round 1; all: in any round.
// --log gets a line from each process in each round, with the step that it goes on from: "round R
// rank R size N pid P step S".
#include <fcntl.h>
#include <signal.h>
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

namespace {

constexpr std::uint64_t kSamples = 1000, kBatch = 32;

struct Death {
  unsigned long step = 0;
  int rank = 0;
  bool all = false;
};

struct Options {
  unsigned long steps = 100, size = 1000, shard = 0, step_ms = 0;
  std::vector<Death> deaths;
  std::string snapshot, log;
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

class Worker {
 public:
  Worker(dl::Communicator& comm, const Options& options)
      : comm_(comm), options_(options), x_(options.size), sums_(options.size), shard_(my_part()) {
    state_.replicated("x", x_);
    state_.value("step", step_);
    if (options.shard > 0) state_.sharded("shard", shard_);
    if (!options.snapshot.empty()) state_.snapshots(options.snapshot, 10, 2);
  }

  void run() {
    dl::run_elastic(state_, [this] {
      if (logged_ != comm_.round()) log();
      if (step_ == options_.steps) return false;
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
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] = columns[i % 64];
    const auto& deaths = options_.deaths;
    const auto now = [this](const Death& death) { return death.step == step_; };
    // All have committed the steps before: what only the dead had committed is done again.
    if (std::any_of(deaths.begin(), deaths.end(), now)) comm_.barrier();
    for (const Death& death : deaths) {
      const bool meant = death.rank == first_rank_ && (death.all || first_round_ == 1);
      if (meant && now(death)) ::raise(SIGKILL);
    }
    if (options_.step_ms > 0) {
      const timespec pace{static_cast<time_t>(options_.step_ms / 1000),
                          static_cast<long>(options_.step_ms % 1000 * 1000000)};
      ::nanosleep(&pace, nullptr);
    }
    comm_.all_reduce(std::span(sums_));
    for (std::size_t i = 0; i < x_.size(); ++i) x_[i] += sums_[i];
    for (double& value : shard_) value += static_cast<double>(step_ % 7);
    ++step_;
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
    logged_ = comm_.round();
    if (options_.log.empty()) return;
    char line[160];
    const int n = std::snprintf(line, sizeof line, "round %llu rank %d size %d pid %d step %lu\n",
                                static_cast<unsigned long long>(comm_.round()), comm_.rank(),
                                comm_.size(), static_cast<int>(::getpid()), step_);
    const int fd = ::open(options_.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0 || ::write(fd, line, static_cast<std::size_t>(n)) != n) {
      throw std::runtime_error("cannot write " + options_.log);
    }
    ::close(fd);
  }

  dl::Communicator& comm_;
  const Options& options_;
  dl::State state_{comm_, options_.state};
  dl::ElasticSampler sampler_{state_, "samples", kSamples, kBatch, 1};
  std::vector<double> x_, sums_, shard_;
  unsigned long step_ = 0;
  const std::uint64_t first_round_ = comm_.round();
  const int first_rank_ = comm_.rank();
  std::uint64_t logged_ = 0;  // the last round that was
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

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
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
