#include "ring/stream/stream_plane.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "base/rank_set.h"
#include "ring/call/list_packer.h"
#include "ring/plan/program.h"
#include "ring/plan/schedule.h"
#include "ring/stream/frame.h"
#include "ring/stream/socket_count.h"
#include "ring/stream/stream_errors.h"

namespace dlaunch {
namespace {

static_assert(StreamPeer::kMaxBatch == kMostAtOnce);  // ring/plan/host_costs.cc counts so many

// Assumed until the round trip is known.
constexpr Duration kFar = std::chrono::seconds(1);

// The programs of the last calls: training repeats a few shapes for ever.
class ProgramCache {
 public:
  const Program& get(Shape shape, int rank, int ranks, const Tuning& tuning) {
    const auto known = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const auto& entry) { return entry.first == shape; });
    if (known != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, known);
      return kept_.front().second;
    }
    auto program = make_program(shape, rank, ranks, tuning);
    steps_ += program.steps.size();
    kept_.emplace_front(std::move(shape), std::move(program));
    while (kept_.size() > 1 && (kept_.size() > kMaxPrograms || steps_ > kMaxSteps)) {
      steps_ -= kept_.back().second.steps.size();
      kept_.pop_back();
    }
    return kept_.front().second;
  }

 private:
  static constexpr std::size_t kMaxPrograms = 64, kMaxSteps = 100000;  // of 56 bytes
  std::list<std::pair<Shape, Program>> kept_;                          // the last used first
  std::size_t steps_ = 0;
};

// Measures the bytes from each peer in one call. Reads the clock twice for a frame that takes
// several reads.
class LinkMeter {
 public:
  explicit LinkMeter(int ranks) : links_(static_cast<std::size_t>(ranks)) {}

  // Call it after a read from a peer: whether its frame was, and is, unfinished.
  void read(int peer, bool was_under_way, bool is_under_way) {
    if (was_under_way == is_under_way) return;
    Link& link = links_[static_cast<std::size_t>(peer)];
    const TimePoint now = steady_now();
    if (was_under_way) link.time += now - link.began;
    link.began = now;
  }
  void received(int peer, std::size_t bytes) {
    links_[static_cast<std::size_t>(peer)].bytes += bytes;
  }
  void tell(const LinkListener& listener) {
    for (std::size_t peer = 0; peer < links_.size(); ++peer) {
      Link& link = links_[peer];
      if (link.bytes > 0 && listener) listener(static_cast<int>(peer), link.bytes, link.time);
      link = {};
    }
  }

 private:
  struct Link {
    std::uint64_t bytes = 0;
    Duration time{};
    TimePoint began{};
  };
  std::vector<Link> links_;
};

class SocketPlane final : public StreamPlane {
 public:
  SocketPlane(std::unique_ptr<SocketGroup> sockets, CallRoll call_roll, PlanRules rules,
              bool all_sockets)
      : sockets_(std::move(sockets)),
        call_roll_(std::move(call_roll)),
        rules_(std::move(rules)),
        tuning_(sockets_->leaves_host()
                    ? tuning_between_hosts(kFar)
                    : tuning_within_host(sockets_->ranks(), sockets_->crowded())),
        rank_(sockets_->rank()),
        ranks_(sockets_->ranks()),
        all_sockets_(all_sockets),
        count_(sockets_->sockets_each(), 1) {
    if (all_sockets_) sockets_->use(sockets_->sockets_each());
  }

  const char* name() const override { return "tcp"; }
  Result<void> run(const Call& call) override;
  void close_in_child() override { sockets_->close_in_child(); }
  void plan_for(Duration round_trip, std::shared_ptr<const RankGroups> racks,
                bool several_on_host) override {
    if (sockets_->leaves_host()) tuning_ = tuning_between_hosts(round_trip);
    tuning_.racks = std::move(racks);
    tuning_.several_on_host = several_on_host;
    programs_ = ProgramCache();
    const std::size_t most = sockets_->sockets_each();
    const std::lock_guard lock(count_mutex_);
    // Between far hosts one socket's window is a tighter limit than its system calls.
    count_ = SocketCount(most, round_trip >= kFarAway ? most : 1);
  }
  void tell_links(LinkListener listener) override { link_listener_ = std::move(listener); }
  bool keeps_order(const Call& call) const override {
    const Shape shape = shape_of(call, ranks_);
    return dlaunch::keeps_order(algorithm_of(shape, taking_part(call), tuning_for(shape)));
  }
  bool passes_on(const Call& call) const override {
    const Shape shape = shape_of(call, ranks_);
    return dlaunch::passes_on(algorithm_of(shape, taking_part(call), tuning_for(shape)));
  }
  std::string explain(const Call& call) const override {
    const Shape shape = shape_of(call, ranks_);
    const Tuning tuning = tuning_for(shape);
    std::size_t used = sockets_->sockets_each();
    if (used > 1 && !all_sockets_) {
      const std::lock_guard lock(count_mutex_);
      used = count_.best(most_to_one(shape, rank_, ranks_, tuning));
    }
    return "tcp: " + describe_algorithm(algorithm_of(shape, taking_part(call), tuning), tuning) +
           (used > 1 ? fmt::format(", over {} sockets each", used) : "");
  }

 private:
  int taking_part(const Call& call) const {
    return call.members != nullptr ? static_cast<int>(call.members->size()) : ranks_;
  }
  Tuning tuning_for(const Shape& shape) const { return tuning_by(rules_, shape, ranks_, tuning_); }
  Result<void> carry_out(const Call& call);
  bool choose_sockets(std::size_t bytes);
  Result<void> drive();
  Result<void> push(int peer, bool& moved);
  Result<void> pull(int peer, bool& moved);
  Result<bool> admit(int peer);
  bool expects(int peer) const { return run_.next_recv(peer) != nullptr; }
  bool owes(int peer) const { return run_.sends_left(peer); }
  Error lost(int peer, int os_errno);
  Error timed_out();
  Error timed_out_as_seen();

  std::unique_ptr<SocketGroup> sockets_;
  const CallRoll call_roll_;
  const PlanRules rules_;
  Tuning tuning_;
  const int rank_, ranks_;
  const bool all_sockets_;
  SocketCount count_;
  mutable std::mutex count_mutex_;  // explain() may run during a call
  std::optional<Error> failed_;

  Call call_;  // the one in progress
  CallSignature signature_;
  ProgramCache programs_;
  ProgramRun run_;
  const std::vector<std::int16_t>* peers_ = nullptr;  // of the program
  std::vector<std::byte> scratch_;
  ListPacker packer_;
  std::vector<bool> arrived_;  // a frame of the call in progress has come from the peer

  LinkMeter meter_{ranks_};
  LinkListener link_listener_;
};

Result<void> SocketPlane::run(const Call& call) {
  if (failed_) return *failed_;
  if (call.list != nullptr) {
    return packer_.run(call, [this](const Call& packed) { return run(packed); });
  }
  auto outcome = without_exceptions_in(call, [&] { return carry_out(call); });
  meter_.tell(link_listener_);
  if (!outcome) failed_ = outcome.error();
  return outcome;
}

Result<void> SocketPlane::carry_out(const Call& call) {
  Shape shape = shape_of(call, ranks_);
  const Tuning tuning = tuning_for(shape);
  const Program& program = programs_.get(std::move(shape), rank_, ranks_, tuning);
  if (scratch_.size() < program.scratch_bytes) scratch_.resize(program.scratch_bytes);
  peers_ = &program.peers;
  run_.begin(program,
             {.in = static_cast<const std::byte*>(call.in),
              .out = static_cast<std::byte*>(call.out),
              .scratch = scratch_.data()},
             {.dtype = call.dtype, .op = call.op, .ranks = taking_part(call)});
  call_ = call;
  signature_ = signature_of(call, ranks_);
  arrived_.assign(static_cast<std::size_t>(ranks_), false);
  const bool timed = choose_sockets(program.most_to_one);
  const TimePoint begun = timed ? steady_now() : TimePoint();
  auto outcome = drive();
  if (outcome && timed) {
    const std::lock_guard lock(count_mutex_);
    count_.end(steady_now() - begun);
  }
  return outcome;
}

// Chooses the number of sockets for the call; true if end() needs its time.
bool SocketPlane::choose_sockets(std::size_t bytes) {
  const std::lock_guard lock(count_mutex_);
  if (!all_sockets_) sockets_->use(count_.begin(bytes));
  return count_.counts();
}

// Reads and writes as much as the sockets allow until the call is done.
Result<void> SocketPlane::drive() {
  sockets_->begin();
  for (const int peer : *peers_) {
    if (expects(peer) || owes(peer)) sockets_->reach(peer, owes(peer));
  }
  while (true) {
    if (sockets_->abort().raised()) return sockets_->abort().error();
    if (auto ok = sockets_->attach_new(); !ok) return ok;
    bool moved = false;
    for (const int peer : *peers_) {
      if (!sockets_->has(peer)) continue;
      if (auto pushed = push(peer, moved); !pushed) return pushed;
      if (auto pulled = pull(peer, moved); !pulled) return pulled;
    }
    if (run_.done()) {
      failpoint("stream.done");
      return {};
    }
    if (moved) sockets_->moved();
    // A step of a call that is already late may find all that it needs.
    const bool late = moved && sockets_->has_waited() && steady_now() >= call_.deadline;
    if (moved && !late) continue;
    if (run_.copy_own()) continue;
    if (late) return timed_out();
    const auto waited = sockets_->wait(call_.deadline, -1, [this](int peer) {
      return SocketGroup::Interest{.reads = expects(peer), .writes = owes(peer)};
    });
    if (!waited) return waited.error();
    if (*waited == SocketGroup::Waited::deadline) return timed_out();
  }
}

Result<void> SocketPlane::push(int peer, bool& moved) {
  StreamPeer& to = (*sockets_)[peer];
  if (!to.writable() || !owes(peer)) return {};
  OutFrame frames[StreamPeer::kMaxBatch];
  const Step* steps[StreamPeer::kMaxBatch];
  const std::size_t count = run_.next_sends(peer, steps);
  for (std::size_t i = 0; i < count; ++i) {
    frames[i] = {collective_frame(signature_, steps[i]->bytes), run_.at(steps[i]->location)};
  }
  if (count == 0) return {};
  const auto sent = to.send({frames, count});
  if (!sent) return lost(peer, sent.error().os_errno);
  moved |= *sent > 0;
  for (std::size_t i = 0; i < *sent; ++i) run_.sent(peer);
  return {};
}

Result<void> SocketPlane::pull(int peer, bool& moved) {
  const auto received = [&]() -> Result<bool> {
    failpoint("stream.granule");
    if constexpr (kHasFailpoints) {
      if (const Step* const step = run_.next_recv(peer)) {
        failpoint_data("stream.taken_data", run_.at(step->location), step->bytes);
      }
    }
    meter_.received(peer, (*sockets_)[peer].header().bytes);
    run_.received(peer);
    return false;  // send what it completed before reading more
  };
  const StreamPeer& from = (*sockets_)[peer];
  const bool was_under_way = from.awaits_payload();
  auto read = sockets_->read(
      peer, moved, [&] { return admit(peer); }, received);
  if (!read) return read;
  meter_.read(peer, was_under_way, from.awaits_payload());
  if (from.ended() && !from.has_header() && (expects(peer) || owes(peer))) {
    return lost(peer, from.os_errno());
  }
  return {};
}

// Whether the frame of the present header can be taken in now; then sets its place.
Result<bool> SocketPlane::admit(int peer) {
  const FrameHeader& header = (*sockets_)[peer].header();
  if (header.kind != FrameKind::collective) return bad_frame(peer, "a message's frame");
  const CallSignature theirs = header.signature();
  const Step* const step = run_.next_recv(peer);
  if (theirs != signature_) {
    // A peer that owes this call nothing may already be in the next one.
    if (step == nullptr && theirs.seq != signature_.seq) return false;
    return call_mismatch(rank_, signature_, peer, theirs);
  }
  if (step == nullptr || header.bytes != step->bytes) {
    return wrong_length(peer, activity_of(call_), header.bytes, step == nullptr ? 0 : step->bytes);
  }
  arrived_[static_cast<std::size_t>(peer)] = true;
  if (!run_.may_start(*step)) return false;
  (*sockets_)[peer].accept(run_.at(step->location));
  return true;
}

Error SocketPlane::lost(int peer, int os_errno) {
  return sockets_->told_of_loss(peer) ? sockets_->abort().error()
                                      : connection_failed(peer, activity_of(call_), os_errno);
}

Error SocketPlane::timed_out() {
  if (!call_roll_) return timed_out_as_seen();
  const RollCall roll = call_roll_(users_call(call_).seq);
  if (sockets_->abort().raised()) return sockets_->abort().error();
  const auto error = timed_out_by_roll(roll, call_, waited_in(call_, steady_now()), ranks_);
  return error ? *error : timed_out_as_seen();
}

Error SocketPlane::timed_out_as_seen() {
  // The error of a rank that hears from all others is better than that of one that hears from few.
  if (sockets_->abort().told(AbortFlag::kBetterReason)) return sockets_->abort().error();
  RankSet arrived{rank_}, missing, unfinished;
  bool hearsay = false;  // a rank that this one exchanges nothing with in this call
  for (int r = 0; r < ranks_; ++r) {
    if (r == rank_) continue;
    if (expects(r) || owes(r)) unfinished.insert(r);
    if (arrived_[r]) {
      arrived.insert(r);
    } else {
      hearsay |= !expects(r);
      if (expects(r)) missing.insert(r);
    }
  }
  // All have begun: then those that stopped in the middle.
  if (missing.empty()) missing = unfinished;
  for (const int r : missing) arrived.erase(r);
  std::string waiting = format_rank_set(missing);
  if (hearsay) waiting += " or a rank for which that one waits";
  Error error =
      op_timeout_error(call_, waited_in(call_, steady_now()), waiting, format_rank_set(arrived));
  if (!missing.empty()) error.rank = *missing.begin();
  return error;
}

}  // namespace

std::unique_ptr<StreamPlane> make_stream_plane(std::unique_ptr<SocketGroup> sockets,
                                               CallRoll call_roll, PlanRules rules,
                                               bool all_sockets) {
  return std::make_unique<SocketPlane>(std::move(sockets), std::move(call_roll), std::move(rules),
                                       all_sockets);
}

}  // namespace dlaunch
