#include "ring/stream_plane.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/rank_set.h"
#include "base/units.h"
#include "ring/frame.h"
#include "ring/inbox.h"
#include "ring/program.h"
#include "ring/schedule.h"
#include "ring/stream_errors.h"
#include "ring/stream_peer.h"

namespace dlaunch {
namespace {

// How long a wait polls its sockets before it sleeps. A wait that the polling spared a sleep
// doubles the next one's time, one that slept all the same halves it: where peers come late, or
// other work needs the cores, polling only takes time from those that are waited for.
constexpr Duration kMaxSpin = std::chrono::microseconds(50);
constexpr Duration kMinSpin = std::chrono::microseconds(20);
// Ranks that all sleep make each other late; so one of so many sleepers tries the longest time
// again.
constexpr unsigned kRetrySpin = 8;
// After a failure here: time for the control thread to learn who was at its root. Ranks that fail
// because of another one close their connections too.
constexpr int kRootCauseMs = 5;

// The programs of the last calls: training repeats a few shapes for ever.
class ProgramCache {
 public:
  const Program& get(Shape shape, int rank, int ranks) {
    const auto known = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const auto& entry) { return entry.first == shape; });
    if (known != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, known);
      return kept_.front().second;
    }
    auto program = make_program(shape, rank, ranks, Tuning{});
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

class SocketPlane final : public StreamPlane {
 public:
  SocketPlane(int rank, int ranks, AbortFlag& abort, bool may_spin,
              std::vector<std::unique_ptr<StreamPeer>> peers, std::shared_ptr<UniqueFd> wake)
      : rank_(rank),
        ranks_(ranks),
        abort_(abort),
        may_spin_(may_spin),
        peers_(std::move(peers)),
        wake_(std::move(wake)),
        inbox_(ranks),
        sinks_(ranks),
        arrived_(ranks) {}

  const char* name() const override { return "tcp"; }
  Result<void> run(const Call& call) override;
  Result<void> transfer(const Message& message) override;

 private:
  // Where the payload that is coming in from a peer goes.
  enum class Sink : std::uint8_t { step, posted, inbox };

  Result<void> run_list(const Call& call);
  // The one blocking call in progress.
  Result<void> drive(TimePoint deadline);
  bool finished() const;
  bool expects(int peer) const;  // it cannot finish without a frame from this peer
  bool owes(int peer) const;     // it has something to send to this peer
  std::string activity() const;  // "all_reduce #17", "recv from rank 2 (tag 5)"

  Result<void> push(int peer, bool& moved);
  Result<void> pull(int peer, bool& moved);
  Result<bool> admit(int peer);
  Result<bool> admit_message(int peer, const FrameHeader& header);
  Result<bool> admit_collective(int peer, const FrameHeader& header);
  void received(int peer);
  Result<void> wait(TimePoint deadline);
  Result<void> sleep(TimePoint deadline);

  bool told();
  Error lost(int peer, int os_errno);
  Error timed_out(Duration waited);
  bool matches(const FrameHeader& sent) const;  // the message that is waited for
  Result<void> keep(Result<void> outcome);

  const int rank_, ranks_;
  AbortFlag& abort_;
  const bool may_spin_;
  std::vector<std::unique_ptr<StreamPeer>> peers_;  // null: this rank
  std::shared_ptr<UniqueFd> wake_;                  // readable once the flag is raised
  Inbox inbox_;
  std::vector<Sink> sinks_;
  std::optional<Error> failed_;

  const Call* call_ = nullptr;
  CallSignature signature_;
  ProgramCache programs_;
  ProgramRun run_;
  std::vector<std::byte> scratch_;
  std::vector<std::byte> packed_;  // a list's tensors
  std::vector<bool> arrived_;      // a frame of the call in progress has come from the peer

  const Message* message_ = nullptr;
  bool message_done_ = false;
  bool from_inbox_ = false;  // the message waited for is coming into the inbox already

  TimePoint idle_since_{};  // of the call in progress; zero while it moves
  bool slept_ = false;      // since then
  Duration spin_ = kMaxSpin;
  unsigned sleeps_ = 0;
  TimePoint started_{};
  std::vector<pollfd> poll_;
};

Result<void> SocketPlane::keep(Result<void> outcome) {
  call_ = nullptr;
  message_ = nullptr;
  if (!outcome) failed_ = outcome.error();
  return outcome;
}

// Over sockets a list is packed: beside the copies that the kernel makes, one more is cheap.
Result<void> SocketPlane::run_list(const Call& call) {
  const std::size_t element = dtype_bytes(call.dtype);
  packed_.resize(std::max(packed_.size(), call.count * element));
  const auto each = [&](auto move) {
    for (std::size_t i = 0, begin = 0; i < call.list->ends.size(); begin = call.list->ends[i++]) {
      move(i, packed_.data() + begin * element, (call.list->ends[i] - begin) * element);
    }
  };
  each([&](std::size_t i, std::byte* at, std::size_t bytes) {
    std::memcpy(at, call.list->in[i], bytes);
  });
  Call contiguous = call;
  contiguous.list = nullptr;
  contiguous.in = contiguous.out = packed_.data();
  if (auto done = run(contiguous); !done) return done;
  each([&](std::size_t i, const std::byte* at, std::size_t bytes) {
    std::memcpy(call.list->out[i], at, bytes);
  });
  return {};
}

Result<void> SocketPlane::run(const Call& call) {
  if (failed_) return *failed_;
  if (call.list != nullptr) return run_list(call);
  const Program& program = programs_.get(shape_of(call, ranks_), rank_, ranks_);
  if (scratch_.size() < program.scratch_bytes) scratch_.resize(program.scratch_bytes);
  const void* in = call.in != nullptr ? call.in : call.out;
  run_.begin(program,
             {.in = static_cast<const std::byte*>(in),
              .out = static_cast<std::byte*>(call.out),
              .scratch = scratch_.data()},
             {.dtype = call.dtype, .op = call.op, .ranks = ranks_});
  call_ = &call;
  signature_ = signature_of(call, ranks_);
  arrived_.assign(ranks_, false);
  return keep(drive(call.deadline));
}

Result<void> SocketPlane::transfer(const Message& message) {
  if (failed_) return *failed_;
  message_ = &message;
  message_done_ = false;
  from_inbox_ = false;
  if (message.is_send) return keep(drive(message.deadline));

  const Inbox::Message* queued = inbox_.find(message.peer, message.tag);
  if (queued == nullptr) return keep(drive(message.deadline));
  if (!matches(queued->header)) return keep(message_mismatch(rank_, message, queued->header));
  if (!queued->complete) {
    from_inbox_ = true;
    if (auto outcome = drive(message.deadline); !outcome) return keep(outcome);
  }
  if (queued->header.bytes > 0) {
    std::memcpy(message.recv, queued->payload.get(), queued->header.bytes);
  }
  inbox_.drop(message.peer, message.tag);
  return keep({});
}

bool SocketPlane::finished() const { return call_ != nullptr ? run_.done() : message_done_; }

bool SocketPlane::expects(int peer) const {
  if (call_ != nullptr) return run_.next_recv(peer) != nullptr;
  return !message_->is_send && peer == message_->peer && !message_done_;
}

bool SocketPlane::owes(int peer) const {
  if (call_ != nullptr) return run_.sends_left(peer);
  return message_->is_send && peer == message_->peer && !message_done_;
}

bool SocketPlane::matches(const FrameHeader& sent) const {
  return sent.count == message_->count && sent.message_dtype() == message_->dtype;
}

std::string SocketPlane::activity() const {
  return call_ != nullptr ? activity_of(*call_) : activity_of(*message_);
}

// Reads and writes whatever the sockets allow until the call is done. All peers are read, also
// those that the call does not need: one of them may be stuck in a send to this rank.
Result<void> SocketPlane::drive(TimePoint deadline) {
  started_ = idle_since_ = {};
  slept_ = false;
  for (int d = 1; d < ranks_; ++d) {
    const int peer = (rank_ + d) % ranks_;
    if (expects(peer) || owes(peer)) peers_[peer]->mark(true, false);
  }
  while (true) {
    if (abort_.raised()) return abort_.error();
    bool moved = false;
    for (int d = 1; d < ranks_; ++d) {
      const int peer = (rank_ + d) % ranks_;
      if (auto pushed = push(peer, moved); !pushed) return pushed;
      if (auto pulled = pull(peer, moved); !pulled) return pulled;
    }
    if (finished()) return {};
    if (moved) {
      if (idle_since_ != TimePoint{} && !slept_) spin_ = std::min(2 * spin_, kMaxSpin);
      idle_since_ = {};
      slept_ = false;
      continue;
    }
    if (call_ != nullptr && run_.copy_own()) continue;
    if (auto waited = wait(deadline); !waited) return waited;
  }
}

Result<void> SocketPlane::push(int peer, bool& moved) {
  StreamPeer& to = *peers_[peer];
  if (!to.writable() || !owes(peer)) return {};
  OutFrame frames[StreamPeer::kMaxBatch];
  std::size_t count = 0;
  if (call_ != nullptr) {
    const Step* steps[StreamPeer::kMaxBatch];
    count = run_.next_sends(peer, steps);
    for (std::size_t i = 0; i < count; ++i) {
      frames[i] = {collective_frame(signature_, steps[i]->bytes), run_.at(steps[i]->place)};
    }
  } else {
    frames[count++] = {message_frame(message_->count, message_->dtype, message_->tag),
                       message_->send};
  }
  if (count == 0) return {};
  const auto sent = to.send({frames, count});
  if (!sent) return lost(peer, sent.error().os_errno);
  moved |= *sent > 0;
  if (call_ == nullptr) {
    message_done_ = *sent == 1;
  } else {
    for (std::size_t i = 0; i < *sent; ++i) run_.sent(peer);
  }
  return {};
}

Result<void> SocketPlane::pull(int peer, bool& moved) {
  StreamPeer& from = *peers_[peer];
  while (true) {
    if (from.has_header()) {
      const auto admitted = admit(peer);
      if (!admitted) return admitted.error();
      if (!*admitted) return {};
    }
    const auto got = from.receive();
    if (!got) return bad_frame(peer, got.error().what);
    if (*got == StreamPeer::Got::nothing) break;
    moved = true;
    if (*got == StreamPeer::Got::payload) {
      received(peer);
      break;  // what it completed may be sent on before more is read
    }
  }
  if (from.ended() && (expects(peer) || owes(peer))) return lost(peer, from.os_errno());
  return {};
}

// Whether the frame whose header has come can be taken in now; then its place is set.
Result<bool> SocketPlane::admit(int peer) {
  const FrameHeader& header = peers_[peer]->header();
  return header.kind == FrameKind::message ? admit_message(peer, header)
                                           : admit_collective(peer, header);
}

Result<bool> SocketPlane::admit_message(int peer, const FrameHeader& header) {
  const bool wanted =
      message_ != nullptr && !from_inbox_ && expects(peer) && header.message_tag() == message_->tag;
  if (wanted) {
    if (!matches(header)) return message_mismatch(rank_, *message_, header);
    peers_[peer]->accept(message_->recv);
    sinks_[peer] = Sink::posted;
    return true;
  }
  if (const Inbox::Message* queued = inbox_.add(peer, header)) {
    peers_[peer]->accept(queued->payload.get());
    sinks_[peer] = Sink::inbox;
    return true;
  }
  // Only this thread could make room, and it is waiting for what comes after this message.
  if (expects(peer)) return inbox_full(peer, activity(), header);
  return false;
}

Result<bool> SocketPlane::admit_collective(int peer, const FrameHeader& header) {
  const CallSignature theirs = header.signature();
  if (call_ == nullptr) {
    if (!expects(peer)) return false;
    // Its frames come in order: the message would have come before this one.
    return message_overtaken(rank_, *message_, theirs.seq);
  }
  const Step* const step = run_.next_recv(peer);
  if (theirs != signature_) {
    // A peer that owes nothing to this call may be in the next one already.
    if (step == nullptr && theirs.seq != signature_.seq) return false;
    return call_mismatch(rank_, signature_, peer, theirs);
  }
  if (step == nullptr || header.bytes != step->bytes) {
    return wrong_length(peer, activity(), header.bytes, step == nullptr ? 0 : step->bytes);
  }
  arrived_[peer] = true;
  if (!run_.may_start(*step)) return false;
  peers_[peer]->accept(run_.at(step->place));
  sinks_[peer] = Sink::step;
  return true;
}

void SocketPlane::received(int peer) {
  switch (sinks_[peer]) {
    case Sink::step:
      run_.received(peer);
      break;
    case Sink::posted:
      message_done_ = true;
      break;
    case Sink::inbox:
      inbox_.complete(peer);
      if (from_inbox_ && message_ != nullptr && peer == message_->peer) {
        message_done_ |= inbox_.find(peer, message_->tag)->complete;
      }
      break;
  }
}

Result<void> SocketPlane::wait(TimePoint deadline) {
  if (!may_spin_) return sleep(deadline);
  const TimePoint now = steady_now();
  if (idle_since_ == TimePoint{}) idle_since_ = now;
  if (now - idle_since_ > spin_) {
    if (!slept_) spin_ = ++sleeps_ % kRetrySpin == 0 ? kMaxSpin : std::max(spin_ / 2, kMinSpin);
    slept_ = true;
    return sleep(deadline);
  }
  for (int r = 0; r < ranks_; ++r) {
    if (r != rank_ && expects(r)) peers_[r]->mark(true, false);
  }
  return {};
}

Result<void> SocketPlane::sleep(TimePoint deadline) {
  const TimePoint now = steady_now();
  if (started_ == TimePoint{}) started_ = now;
  if (now >= deadline) return timed_out(now - started_);
  poll_.assign(ranks_, {.fd = -1, .events = 0, .revents = 0});
  for (int r = 0; r < ranks_; ++r) {
    if (r == rank_) continue;
    const StreamPeer& peer = *peers_[r];
    short events = 0;
    // A header that could not be admitted stays; reading on behind it would not help.
    if (!peer.has_header() && !peer.ended()) events |= POLLIN;
    if (!peer.writable() && owes(r)) events |= POLLOUT;
    if (events != 0) poll_[r] = {.fd = peer.fd(), .events = events, .revents = 0};
  }
  poll_[rank_] = {.fd = wake_->get(), .events = POLLIN, .revents = 0};
  if (poll(poll_.data(), poll_.size(), poll_timeout_ms(now, deadline)) < 0 && errno != EINTR) {
    return errno_error("poll", errno);
  }
  for (int r = 0; r < ranks_; ++r) {
    if (r == rank_ || poll_[r].fd < 0) continue;
    const bool broken = (poll_[r].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
    peers_[r]->mark(broken || (poll_[r].revents & POLLIN) != 0,
                    broken || (poll_[r].revents & POLLOUT) != 0);
  }
  return {};
}

// Whether the control thread knows better what has happened.
bool SocketPlane::told() {
  pollfd wake{.fd = wake_->get(), .events = POLLIN, .revents = 0};
  return poll(&wake, 1, kRootCauseMs) > 0 && abort_.raised();
}

Error SocketPlane::lost(int peer, int os_errno) {
  return told() ? abort_.error() : connection_lost(peer, activity(), os_errno);
}

Error SocketPlane::timed_out(Duration waited) {
  // A rank that hears from all the others says it better than one that hears from few.
  if (told()) return abort_.error();
  if (call_ == nullptr) {
    return Error{.code = Errc::timeout,
                 .what = fmt::format("{} timed out after {}", activity(), format_duration(waited))};
  }
  RankSet arrived{rank_}, missing, unfinished;
  bool hearsay = false;  // a rank that this one has nothing to do with in this call
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
  if (hearsay) waiting += " or whom that waits for";
  return op_timeout_error(*call_, waited, waiting, format_rank_set(arrived));
}

int cores_of_this_process() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

Result<std::unique_ptr<StreamPlane>> make_stream_plane(int rank, int ranks, std::uint64_t round,
                                                       std::vector<UniqueFd> sockets,
                                                       AbortFlag& abort,
                                                       const StreamOptions& options) {
  DL_ASSERT(rank >= 0 && rank < ranks && sockets.size() == static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<StreamPeer>> peers(ranks);
  for (int r = 0; r < ranks; ++r) {
    if (r == rank) continue;
    const int fd = sockets[r].get();
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
      return errno_error(fmt::format("make the socket to rank {} non-blocking", r), errno);
    }
    // Fails on AF_UNIX, which does not delay anyway.
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    peers[r] = std::make_unique<StreamPeer>(std::move(sockets[r]), round);
  }
  // Shared with the flag, which keeps its wakers for ever.
  auto wake = std::make_shared<UniqueFd>(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!*wake) return errno_error("eventfd", errno);
  abort.on_raise([wake] { eventfd_write(wake->get(), 1); });

  const int local_ranks = options.local_ranks > 0 ? options.local_ranks : ranks;
  const int cores = options.usable_cores > 0 ? options.usable_cores : cores_of_this_process();
  return std::unique_ptr<StreamPlane>(std::make_unique<SocketPlane>(
      rank, ranks, abort, local_ranks <= cores, std::move(peers), std::move(wake)));
}

}  // namespace dlaunch
