#include "launcher/wire/node_message.h"

#include "base/record.h"
#include "base/record_shape.h"

namespace dlaunch {

template <>
inline constexpr Stage kLastOf<Stage> = Stage::exec;
template <>
inline constexpr FlightState kLastOf<FlightState> = kLastFlightState;
template <>
inline constexpr FailureKind kLastOf<FailureKind> = FailureKind::corrupt;
template <>
inline constexpr SpanKind kLastOf<SpanKind> = SpanKind::wait;
template <>
inline constexpr ProcessState kLastOf<ProcessState> = ProcessState::traced;

namespace {

constexpr RecordLimits kNodeLimits;

bool makes_sense(const NodeMessage& message) {
  constexpr int kMostSlots = static_cast<int>(kNodeLimits.items);
  if (const auto* join = std::get_if<NodeJoin>(&message)) {
    return join->nproc > 0 && join->nproc <= kMostSlots;
  }
  if (const auto* welcome = std::get_if<NodeWelcome>(&message)) {
    return welcome->slots > 0 && welcome->slots <= kMostSlots;
  }
  if (const auto* log_in = std::get_if<NodeLogIn>(&message)) {
    return log_in->login > 0 && log_in->number >= 0 && log_in->nproc >= 0 && log_in->port >= 0 &&
           log_in->port <= 65535 && !log_in->host.empty();
  }
  if (const auto* ended = std::get_if<NodeLoginEnded>(&message)) {
    return ended->exit_code > 0 && ended->exit_code < 256;
  }
  if (const auto* start = std::get_if<NodeStart>(&message)) {
    return start->round > 0 && start->size > 0 && start->nodes > 0;
  }
  if (const auto* cut = std::get_if<NodeCut>(&message)) return cut->first < cut->last;
  if (const auto* spans = std::get_if<NodeSpans>(&message)) return spans->first <= spans->last;
  const auto* announce = std::get_if<NodeAnnounce>(&message);
  return announce == nullptr || (announce->round > 0 && announce->size > 0);
}

}  // namespace

std::string proof_of(NodeLogIn what, int to_login, const Secret& secret) {
  what.proof.clear();
  const std::string head = "log in, start " + std::to_string(to_login) + ": ";
  const Mac mac = secret.mac(head + encode(what, TimePoint{}));
  return {mac.begin(), mac.end()};
}

std::uint64_t wire_fingerprint() {
  static const std::uint64_t kFingerprint = shape_of<NodeMessage>();
  return kFingerprint;
}

std::optional<NodeJoin> join_of_another_build(std::string_view frame) {
  RecordReader in(frame, kNodeLimits);
  std::uint8_t kind = 0;
  NodeJoin join;
  in(kind), in(join.host), in(join.number), in(join.nproc), in(join.job), in(join.build);
  const bool is_join = in.ok() && kind == NodeMessage(join).index();
  return is_join && join.build != wire_fingerprint() ? std::optional(join) : std::nullopt;
}

std::string encode(const NodeMessage& message, TimePoint origin) {
  RecordWriter out(kNodeLimits, origin);
  write_message(out, message);
  Writer frame;
  frame.put_string(out.bytes());
  return frame.take();
}

Result<NodeMessage> decode_node_message(std::string_view frame, TimePoint origin) {
  return decode_message(RecordReader(frame, kNodeLimits, origin), makes_sense);
}

}  // namespace dlaunch
