#include "launcher/node/node.h"

#include <signal.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"
#include "launcher/node/placement/topology.h"
#include "launcher/node/workers/worker_evidence.h"
#include "launcher/process/process_tree.h"

namespace dlaunch {
namespace {

constexpr int kRoundDirsKept = 3;

// Whether the node has each slot that a message names.
struct HasSlots {
  const int slots;

  bool has(Slot slot) const { return slot >= 0 && slot < slots; }
  bool operator()(const auto& message) const {
    if constexpr (requires { message.slot; }) return has(message.slot);
    if constexpr (requires { message.slots.begin(); }) {
      return std::ranges::all_of(message.slots, [this](Slot slot) { return has(slot); });
    }
    if constexpr (requires { message.places; }) {
      return std::ranges::all_of(message.places,
                                 [this](const NodePlace& place) { return has(place.slot); });
    }
    return true;
  }
};

}  // namespace

Node::Node(const Parts& parts, int slots, Duration grace, const WorkerPlace& common, Say say)
    : slots_(slots),
      job_dir_(parts.job_dir),
      starter_(parts.starter),
      mpi_(parts.mpi),
      say_(std::move(say)),
      driver_(slots, grace, parts.pump, *this),
      processes_(
          parts.loop, parts.hub, parts.starter, parts.helpers, slots,
          {.ended = [this](Slot slot, const WorkerEnd& end) { on_ended(slot, end); },
           .child_changed = [this] { on_child_changed(); },
           .never_ran = [this](Slot slot,
                               const SpawnError& error) { driver_.never_ran(slot, error); }}),
      monitor_(parts.loop, processes_, parts.helpers, say_),
      common_(common),
      hub_(parts.hub) {
  mpi_.on_abort([this](int worker, int exit_code) {
    if (const auto slot = processes_.slot_of_worker(worker)) processes_.abort(*slot, exit_code);
  });
  hub_.on_tail([this](int slot, std::uint64_t lost, std::vector<OutputTail::Line> lines) {
    tell_output(slot, lost, std::move(lines));
  });
  common_.usable_cores = usable_cpus().usable();
  common_.agent_socket = job_dir_.path() + "/" + kAgentSocket;
}

Result<std::unique_ptr<Node>> Node::open(const Parts& parts, int slots, Duration grace,
                                         const WorkerPlace& common, Say say) {
  std::unique_ptr<Node> made(new Node(parts, slots, grace, common, std::move(say)));
  Node* node = made.get();
  if (parts.starter.debugging().uses_terminal()) {
    auto terminal = Terminal::open();
    if (!terminal) return terminal.error();
    node->lender_.emplace(std::move(*terminal), node->processes_);
  }
  auto channel = WorkerChannel::open(
      parts.loop, node->common_.agent_socket,
      [node](int worker) { return node->processes_.slot_of_worker(worker).has_value(); },
      [node](const Ready& ready, pid_t pid) { node->on_ready(ready, pid); },
      [node](const ProgressNotice& progress) { node->on_progress(progress); },
      [node](int worker) { node->on_cut_off(worker); });
  if (!channel) return channel.error();
  node->channel_ = std::move(*channel);
  return made;
}

// -- Messages from workers

void Node::on_ready(const Ready& ready, pid_t pid) {
  const auto slot = processes_.slot_of_worker(ready.worker);
  if (!slot) return;
  processes_.set_program_pid(*slot, pid);
  processes_.set_waits(*slot, true);
  NodeReady said{*slot, ready.left, ready.version, ready.why};
  const WorkerPlace& place = processes_.place(*slot);
  if (const auto note = ready.left == place.round ? corrupt_note(place) : std::nullopt) {
    said.corrupt = true;
    said.corrupt_rank = note->rank;
    if (said.why.empty() && note->rank < 0) said.why = note->what;  // found in a group
  }
  say_(said);
}

void Node::on_progress(const ProgressNotice& progress) {
  const auto slot = processes_.slot_of_worker(progress.worker);
  if (slot) say_(NodeProgress{*slot, progress.version});
}

// A process on its way out closes its descriptors. A worker that goes on could not be informed of
// rounds, and the others would wait for it.
void Node::on_cut_off(int worker) {
  const auto slot = processes_.slot_of_worker(worker);
  if (!slot || is_ending(processes_.program_pid(*slot))) return;
  const int rank = processes_.place(*slot).rank;
  log_warn("{} (pid {}) runs, but has cut its connection to dlaunch: it is replaced",
           rank < 0 ? "a spare" : "rank " + std::to_string(rank), processes_.program_pid(*slot));
  say_(NodeReplace{*slot, FailureKind::lost});
}

// -- Orders from the leader

void Node::take(const NodeMessage& message) {
  if (!std::visit(HasSlots{slots_}, message)) {
    return log_warn("the leading dlaunch named a slot that this host does not have");
  }
  std::visit([this](const auto& what) { on(what); }, message);
}

void Node::on(const NodeStart& start) {
  common_.size = start.size;
  common_.local_size = start.local_size;
  common_.node_rank = start.node_rank;
  common_.nodes = start.nodes;
  common_.master_addr = start.master_addr;
  common_.master_port = start.master_port;
  common_.one_world = start.one_world;
  common_.peers = start.peers;
  common_.rack = start.rack;
  std::vector<JobCore::Place> places;
  for (const auto& place : start.places) {
    places.push_back({place.slot, place.rank});
    local_ranks_[place.slot] = place.local_rank;
    if (place.rank >= 0) shown_[place.rank] = place.local_rank;
  }
  hub_.set_local_ranks(shown_);
  driver_.start(start.round, places);
  if (start.one_world) drop_old_round_dirs();
}

void Node::on(const NodeHandOn& pass) {
  if (pass.signal == SIGTSTP) hub_.leave_rows();
  driver_.hand_on(pass.signal);
}

void Node::on(const NodeFence& fence) {
  for (const Slot slot : processes_.running_slots()) {
    channel_->send(processes_.place(slot).worker, FenceNotice{fence.round, fence.lost});
  }
}

void Node::on(const NodeAnnounce& announce) {
  const std::string dir = round_dir(announce.round);
  std::set<int> ranks;
  for (const auto& place : announce.places) {
    if (place.rank >= 0) ranks.insert(place.rank);
  }
  shown_.clear();
  for (const int rank : ranks) shown_[rank] = static_cast<int>(shown_.size());
  hub_.set_local_ranks(shown_);
  for (const auto& place : announce.places) {
    if (!processes_.running(place.slot)) continue;
    processes_.move(place.slot, place.rank, announce.round, dir);
    channel_->send(processes_.place(place.slot).worker,
                   RoundNotice{.round = announce.round,
                               .rank = place.rank,
                               .size = announce.size,
                               .local_cores = common_.usable_cores,
                               .store_url = common_.store_url,
                               .round_dir = dir});
  }
  drop_old_round_dirs();
}

void Node::grow(int slots) {
  slots_ = std::max(slots_, slots);
  driver_.grow(slots_);
  processes_.grow(slots_);
}

void Node::forget_rounds() {
  job_dir_.remove_round_dirs(std::exchange(last_round_dir_, 0));
  has_round_dir_ = false;
  mpi_.forget_rounds();
}

void Node::kill_all() {
  std::vector<Slot> all;
  for (const auto& [slot, local_rank] : local_ranks_) all.push_back(slot);
  driver_.stop(all, SIGKILL);
}

void Node::finish() {
  monitor_.stop();
  end_leftovers();
}

// "": there is none. It only holds evidence of failures; a round works without it.
std::string Node::round_dir(int round) {
  if (round != last_round_dir_) {
    last_round_dir_ = round;
    auto made = job_dir_.make_round_dir(round);
    has_round_dir_ = static_cast<bool>(made);
    if (!made) log_warn("{}; messages about this round's failures are lost", made.error().what);
  }
  return has_round_dir_ ? job_dir_.path() + "/" + std::to_string(round) : "";
}

// No process writes there now. Slow on some file systems: do not call it while workers wait for a
// round.
void Node::drop_old_round_dirs() { job_dir_.remove_round_dirs(last_round_dir_ - kRoundDirsKept); }

void Node::tell_output(Slot slot, std::uint64_t lost, std::vector<OutputTail::Line> lines) {
  NodeOutput output{.slot = slot, .lost = lost, .lines = {}};
  for (auto& line : lines) {
    output.lines.push_back({line.stream == OutputStream::err, line.end, std::move(line.text)});
  }
  say_(output);
}

// -- Work on this host

SpawnError Node::spawn(Slot slot, int rank, int round) {
  WorkerPlace place = common_;
  place.round = round;
  place.rank = rank;
  place.local_rank = local_ranks_[slot];
  place.appnum = starter_.program_of(rank);
  place.worker = ++last_worker_;
  place.round_dir = round_dir(round);
  place.error_file = job_dir_.path() + "/error." + std::to_string(place.worker) + ".json";
  const auto inherited = mpi_.invite(place);
  const SpawnError error = processes_.start(slot, place);
  if (error.stage != Stage::none) return error;
  if (starter_.debugging().stopped.has(rank)) show_stopped(slot);
  if (starter_.debugging().has_terminal(rank)) lender_->started(slot);
  return error;
}

// --quiet does not hide this line: without it nobody could let the worker continue.
void Node::show_stopped(Slot slot) const {
  const pid_t pid = processes_.pid(slot);
  hub_.own_line(
      fmt::format("dlaunch: rank {} (pid {} on {}) is stopped before its program begins: "
                  "'gdb -p {}' attaches a debugger, 'kill -CONT {}' lets it continue",
                  processes_.place(slot).rank, pid, starter_.host(), pid, pid));
}

void Node::perform(const AgentCore::SendSignal& send) {
  if (lender_ && send.number == SIGCONT) lender_->before_continue();
  processes_.signal(send.slot, send.number);
}

NodeStuck Node::look_at_stuck(Slot slot) {
  const pid_t pid = processes_.pid(slot);
  return {slot, processes_.place(slot).rank, pid, what_delays_end(pid)};
}

void Node::on_child_changed() {
  if (lender_) lender_->look();
  monitor_.look();
}

// The peer whose loss it reports may have ended before it, without our notice so far.
void Node::on_ended(Slot slot, const WorkerEnd& end) {
  const bool failed = has_failed(end);
  if (failed && end.peer_lost >= 0) {
    if (const auto blamed = processes_.slot_of_rank(end.peer_lost)) {
      processes_.reap_if_ended(*blamed);
    }
  }
  if (!failed) mpi_.ended_well(end.rank);
  if (lender_) lender_->ended(slot);
  driver_.exited(slot);
  monitor_.last_news(slot);
  say_(NodeEnded{slot, end});
}

}  // namespace dlaunch
