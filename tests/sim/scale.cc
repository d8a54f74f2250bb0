// Measures the cost of many hosts for the leader: a job in virtual time, with the real decisions of
// the leader and of each host's agent, and the real messages between them.
//
// usage: scale [--csv] [HOSTS...]     one worker on each; default: 10 100 1000 10000
//
// Prints a row for each number of hosts and each event in a job's life: messages and bytes to and
// from the leader, the event's duration if a message takes 0.1 ms and the start of a process 20 ms,
// and the processor time of the decisions. Exits with 1 if the job does not finish.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "elastic/job_driver.h"
#include "elastic/node_roster.h"
#include "launcher/node/node_driver.h"
#include "launcher/wire/node_message.h"

namespace dlaunch::sim {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kBegin(1000s);
constexpr Duration kWire = 100us, kBoot = 20ms;

struct Traffic {
  std::uint64_t to_leader = 0, from_leader = 0, bytes_to = 0, bytes_from = 0;
};

// Everything between the leader and the hosts, in order of time.
class Net {
 public:
  TimePoint now = kBegin;
  Traffic traffic;

  void at(TimePoint when, std::function<void()> what) {
    queue_.push({when, ++last_, std::move(what)});
  }
  void to_leader(const NodeMessage& message, std::function<void()> arrives) {
    ++traffic.to_leader;
    traffic.bytes_to += encode(message, now).size();
    at(now + kWire, std::move(arrives));
  }
  void from_leader(const NodeMessage& message, std::function<void()> arrives) {
    ++traffic.from_leader;
    traffic.bytes_from += encode(message, now).size();
    at(now + kWire, std::move(arrives));
  }
  bool step() {
    if (queue_.empty()) return false;
    const Item next = queue_.top();
    queue_.pop();
    now = next.when;
    next.what();
    return true;
  }

 private:
  struct Item {
    TimePoint when;
    std::uint64_t order;
    std::function<void()> what;
    bool operator<(const Item& other) const {
      return when != other.when ? when > other.when : order > other.order;
    }
  };
  std::priority_queue<Item> queue_;
  std::uint64_t last_ = 0;
};

// A host: its agent, and the one worker, which obeys.
class Host final : private NodeDriver::Effects {
 public:
  Host(Net& net, Slot slot, std::function<void(const JobCore::Event&)> leader)
      : net_(net), slot_(slot), leader_(std::move(leader)), driver_(1, 10s, pump_, effects()) {}

  void start(int round) { driver_.start(round, {{0, slot_}}); }
  void stop(int signal) { driver_.stop({0}, signal); }
  void fence() {
    if (runs_) ready();
  }
  void announce(int round) { round_ = round; }
  void die() {
    runs_ = false;
    round_ = 0;
    net_.to_leader(NodeEnded{}, [this] { leader_(JobCore::Ended{slot_, false}); });
    driver_.exited(0);
  }
  void lose() {
    runs_ = false;
    round_ = 0;
    lost_ = true;
  }
  void come_back() {
    lost_ = false;
    driver_.~NodeDriver();
    new (&driver_) NodeDriver(1, 10s, pump_, effects());
  }

 private:
  NodeDriver::Effects& effects() { return *this; }
  void ready() {
    net_.to_leader(NodeReady{0, round_, 1}, [this, left = round_] {
      leader_(JobCore::Ready{slot_, left, 1});
    });
  }
  TimePoint now() override { return net_.now; }
  SpawnError spawn(Slot, int, int) override {
    runs_ = true;
    net_.at(net_.now + kBoot, [this] {
      if (runs_) ready();
    });
    return {};
  }
  void perform(const AgentCore::SendSignal&) override {
    if (runs_) net_.at(net_.now, [this] { die(); });
  }
  void say(const NodeMessage& message) override {
    if (lost_ || !std::holds_alternative<NodeSpawned>(message)) return;
    net_.to_leader(message, [this] { leader_(JobCore::Spawned{slot_}); });
  }

  Net& net_;
  const Slot slot_;
  const std::function<void(const JobCore::Event&)> leader_;
  Pump pump_;
  NodeDriver driver_;
  bool runs_ = false, lost_ = false;
  int round_ = 0;
};

class Scale final : private JobDriver::Effects {
 public:
  explicit Scale(int hosts) : size_(hosts) {}

  bool run(bool csv);

 private:
  void gather();
  bool measure(const char* what, const std::function<void()>& happens, int size);

  TimePoint now() override { return net_.now; }
  void perform(const JobCore::StartWorkers& start) override;
  void perform(const JobCore::StopWorkers& stop) override;
  void perform(const JobCore::HandOn&) override {}
  void perform(const JobCore::Fence& fence) override;
  void perform(const JobCore::Announce& announce) override;
  void perform(const JobCore::AwaitEnd&) override {}
  void perform(const JobCore::Finish&) override { finished_ = true; }

  Host& host(Slot slot) { return *hosts_[static_cast<std::size_t>(slot)]; }
  bool here(Slot slot) const { return slot != lost_; }
  void settle(int size);
  void pass(TimePoint now);

  const int size_;
  bool csv_ = false;
  Net net_;
  Pump pump_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::unique_ptr<JobDriver> job_;
  int announced_ = 0;  // the size of the last round
  Slot lost_ = -1;
  bool finished_ = false;
};

// All hosts connect and get their numbers.
void Scale::gather() {
  NodeRoster roster(net_.now, {.min_nodes = size_ - 1, .max_nodes = size_}, {0, "host0", 1});
  for (int n = 1; n < size_; ++n) {
    const NodeJoin join{.host = fmt::format("host{}", n),
                        .job = "dlaunch 0.1.0, --nnodes 9999:10000",
                        .build = wire_fingerprint(),
                        .master_addr = "10.77.100.100",
                        .master_port = 43210};
    net_.to_leader(join, [&roster, this, n, join] {
      const NodeRoster::Join asks{static_cast<NodeRoster::Link>(n), join.host, -1, 1};
      if (roster.step(net_.now, asks).empty()) return;
      for (int node = 1; node < size_; ++node) {
        net_.from_leader(NodeWelcome{node, 1, "0123456789abcdef"}, [] {});
      }
    });
  }
  while (net_.step()) continue;
}

void Scale::perform(const JobCore::StartWorkers& start) {
  for (const auto& place : start.places) {
    const NodeStart to{.round = start.round,
                       .size = job_->core().size(),
                       .nodes = size_,
                       .master_addr = "10.77.100.100",
                       .master_port = 43210,
                       .places = {{0, place.rank, 0}}};
    net_.from_leader(to, [this, place, round = start.round] { host(place.slot).start(round); });
  }
}

void Scale::perform(const JobCore::StopWorkers& stop) {
  for (const Slot slot : stop.slots) {
    net_.from_leader(NodeStop{{0}, stop.signal},
                     [this, slot, signal = stop.signal] { host(slot).stop(signal); });
  }
}

void Scale::perform(const JobCore::Fence& fence) {
  for (Slot slot = 0; slot < size_; ++slot) {
    if (here(slot)) {
      net_.from_leader(NodeFence{fence.round, fence.lost}, [this, slot] { host(slot).fence(); });
    }
  }
}

void Scale::perform(const JobCore::Announce& announce) {
  announced_ = static_cast<int>(announce.slots.size());
  for (int rank = 0; rank < announced_; ++rank) {
    const Slot slot = announce.slots[static_cast<std::size_t>(rank)];
    net_.from_leader(NodeAnnounce{announce.round, announced_, {{0, rank, 0}}},
                     [this, slot, round = announce.round] { host(slot).announce(round); });
  }
}

// Runs until all of a round of that size know it.
void Scale::settle(int size) {
  announced_ = 0;
  while (true) {
    if (net_.step()) {
      pass(net_.now);
      continue;
    }
    const TimePoint due = job_->core().deadline().value_or(kNever);
    if (announced_ == size || due > net_.now + 1h) return;
    net_.now = std::max(net_.now, due);
    pass(due);
  }
}

// The leader's timer.
void Scale::pass(TimePoint now) {
  if (job_->core().deadline().value_or(kNever) <= now) job_->feed(JobCore::Clock{});
}

bool Scale::measure(const char* what, const std::function<void()>& happens, int size) {
  net_.traffic = {};
  const TimePoint begun = net_.now;
  const std::clock_t cpu = std::clock();
  happens();
  if (job_) settle(size);
  const Traffic& t = net_.traffic;
  const double ms = std::chrono::duration<double, std::milli>(net_.now - begun).count();
  const double cpu_ms = 1000.0 * static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  if (csv_) {
    fmt::print("{},{},{},{},{},{},{:.1f},{:.1f}\n", size_, what, t.to_leader, t.bytes_to,
               t.from_leader, t.bytes_from, ms, cpu_ms);
  } else {
    fmt::print("{:>6} {:<22} {:>8} {:>10} {:>8} {:>10} {:>9.1f} {:>9.1f}\n", size_, what,
               t.to_leader, t.bytes_to, t.from_leader, t.bytes_from, ms, cpu_ms);
  }
  std::fflush(stdout);
  if (!job_ || announced_ == size) return true;
  fmt::print(stderr, "{} hosts, {}: the last round is of {}, not {}\n", size_, what, announced_,
             size);
  return false;
}

bool Scale::run(bool csv) {
  csv_ = csv;
  JobConfig config{.size = size_, .min_size = size_ - 1, .max_size = size_};
  config.restarts.limit.restarts = 10;
  for (int node = 0; node < size_; ++node) {
    config.nodes.push_back(node);
    hosts_.push_back(std::make_unique<Host>(
        net_, node, [this](const JobCore::Event& event) { job_->feed(event); }));
  }
  measure(
      "hosts meet", [this] { gather(); }, 0);
  JobDriver::Effects& effects = *this;
  job_ = std::make_unique<JobDriver>(config, pump_, effects);
  const Slot victim = size_ / 2;
  return measure(
             "first round", [&] { job_->feed(JobCore::Start{}); }, size_) &&
         measure(
             "a worker is replaced", [&] { host(victim).die(); }, size_) &&
         measure(
             "a host is lost",
             [&] {
               lost_ = victim;
               host(victim).lose();
               job_->feed(JobCore::NodeLost{victim});
             },
             size_ - 1) &&
         measure(
             "it comes back",
             [&] {
               lost_ = -1;
               host(victim).come_back();
               job_->feed(JobCore::NodeBack{victim});
             },
             size_);
}

}  // namespace
}  // namespace dlaunch::sim

int main(int argc, char** argv) {
  bool csv = false;
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) {
    const int size = std::atoi(argv[i]);
    if (std::strcmp(argv[i], "--csv") == 0) {
      csv = true;
    } else if (size >= 3 && size <= 100'000) {
      sizes.push_back(size);
    } else {
      std::fputs("usage: scale [--csv] [HOSTS...]: 3 to 100000\n", stderr);
      return 64;
    }
  }
  if (sizes.empty()) sizes = {10, 100, 1000, 10'000};
  if (!csv) {
    std::puts(
        " hosts what happens           messages      bytes messages      bytes   virtual       "
        "CPU\n"
        "                                   to the leader       from the leader        ms        "
        "ms");
  }
  bool well = true;
  for (const int size : sizes) well = dlaunch::sim::Scale(size).run(csv) && well;
  return well ? 0 : 1;
}
