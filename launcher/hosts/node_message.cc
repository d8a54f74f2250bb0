#include "launcher/hosts/node_message.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/codec.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMaxText = 1 << 20;  // an error file
constexpr std::size_t kMaxItems = 16384;   // as many workers as a job may have

constexpr Duration kYear = std::chrono::hours(24 * 365);

// One list of fields serves both directions.
class Out {
 public:
  explicit Out(TimePoint origin) : origin_(origin) {}
  template <std::integral T>
  void operator()(const T& value) {
    writer_.put(value);
  }
  void operator()(const bool& value) { writer_.put(static_cast<std::uint8_t>(value)); }
  void operator()(const std::string& text) {
    writer_.put_string(std::string_view(text).substr(0, kMaxText));
  }
  void operator()(const Duration& time) { writer_.put(time.count()); }
  void operator()(const TimePoint& time) { writer_.put((time - origin_).count()); }
  template <class T>
  void optional(const std::optional<T>& value) {
    (*this)(value.has_value());
    if (value) fields(*this, *value);
  }
  template <class T>
  void list(const std::vector<T>& items) {
    const auto size = std::min(items.size(), kMaxItems);
    writer_.put(static_cast<std::uint32_t>(size));
    for (std::size_t i = 0; i < size; ++i) fields(*this, items[i]);
  }
  std::string take() { return writer_.take(); }

 private:
  const TimePoint origin_;
  Writer writer_;
};

class In {
 public:
  In(std::string_view bytes, TimePoint origin) : origin_(origin), reader_(bytes) {}
  template <std::integral T>
  void operator()(T& value) {
    value = reader_.get<T>();
  }
  void operator()(bool& value) { value = reader_.get<std::uint8_t>() != 0; }
  void operator()(std::string& text) { text = reader_.get_string(kMaxText); }
  // Not so long that sums overflow.
  void operator()(Duration& time) {
    time = std::clamp<Duration>(Duration(reader_.get<Duration::rep>()), Duration::zero(), kYear);
  }
  void operator()(TimePoint& time) {
    const auto since = Duration(reader_.get<Duration::rep>());
    time = origin_ + std::clamp<Duration>(since, -kYear, kYear);
  }
  template <class T>
  void optional(std::optional<T>& value) {
    bool has_value = false;
    (*this)(has_value);
    if (has_value) fields(*this, value.emplace());
  }
  template <class T>
  void list(std::vector<T>& items) {
    const auto size = reader_.get<std::uint32_t>();
    if (size > kMaxItems) fits_ = false;
    for (std::uint32_t i = 0; i < size && fits_ && reader_.ok(); ++i) {
      fields(*this, items.emplace_back());
    }
  }
  bool done() const { return fits_ && reader_.done(); }

 private:
  const TimePoint origin_;
  Reader reader_;
  bool fits_ = true;
};

// Above the last it is taken for the last.
template <class A, class Enum>
void as_byte(A& a, Enum& value, std::remove_const_t<Enum> last) {
  auto byte = static_cast<std::uint8_t>(value);
  a(byte);
  if constexpr (!std::is_const_v<Enum>) {
    value = static_cast<Enum>(std::min(byte, static_cast<std::uint8_t>(last)));
  }
}

// Of launcher/hosts/care_message.h.
template <class A, class M>
void care_fields(A& a, M& m) {
  using T = std::remove_const_t<M>;
  if constexpr (std::is_same_v<T, NodePing>) {
    a(m.sent);
  } else if constexpr (std::is_same_v<T, NodePong>) {
    a(m.sent), a(m.since);
  } else if constexpr (std::is_same_v<T, NodeLook>) {
    a(m.look);
  } else if constexpr (std::is_same_v<T, NodeCut> || std::is_same_v<T, NodeSpans>) {
    a(m.look), a(m.first), a(m.last);
  } else if constexpr (std::is_same_v<T, NodeRankTimes>) {
    a(m.rank), a(m.entered), a(m.in_op), a(m.step);
  } else if constexpr (std::is_same_v<T, NodeReceived>) {
    a(m.from), a(m.to), a(m.bytes), a(m.time);
  } else if constexpr (std::is_same_v<T, NodeTimes>) {
    a(m.look), a.list(m.ranks), a.list(m.links);
  } else if constexpr (std::is_same_v<T, NodePosition>) {
    a(m.group), a(m.seq), a(m.inside), a(m.what), a(m.still);
  } else if constexpr (std::is_same_v<T, NodeRank>) {
    a(m.rank), a(m.round), a(m.pid);
    as_byte(a, m.state, ProcessState::traced);
    a(m.left), a(m.moves), a.list(m.positions);
  } else if constexpr (std::is_same_v<T, NodeSeen>) {
    a.list(m.ranks);
  } else if constexpr (std::is_same_v<T, NodeThrew>) {
    a(m.slot), a(m.pid), a(m.threw), a(m.over);
  } else if constexpr (std::is_same_v<T, NodeDump>) {
    a(m.errand), a(m.slot);
  } else if constexpr (std::is_same_v<T, NodeStacks>) {
    a(m.errand), a(m.slot), a(m.pid), a.list(m.lines);
  } else if constexpr (std::is_same_v<T, NodeHung>) {
    a(m.slot), a(m.pid), a(m.why);
  } else if constexpr (std::is_same_v<T, NodeHurt>) {
    a(m.slot), a(m.signal), a(m.stands);
  } else if constexpr (std::is_same_v<T, NodeSurvey>) {
    a(m.errand), a(m.gpus);
  } else if constexpr (std::is_same_v<T, NodeGpu>) {
    a(m.number), a(m.instance), a(m.utilisation), a(m.temperature), a(m.memory_used);
    a(m.memory_total), a(m.ecc_errors);
  } else if constexpr (std::is_same_v<T, NodeWorker>) {
    a(m.slot), a(m.pid), a(m.started);
    as_byte(a, m.state, ProcessState::traced);
    a(m.round), a(m.cpu), a(m.memory), a(m.in_ring), a(m.has_spoken), a(m.rate.operations),
        a(m.rate.bytes), a(m.rate.over);
    a(m.gpus_known), a.list(m.gpus), a.list(m.operations);
  } else if constexpr (std::is_same_v<T, NodeWorkers>) {
    a(m.errand), a.list(m.workers);
  } else {
    a(m.slot);  // NodeSpawned, NodeNotStarted, NodeUnkillable
  }
}

// A message or a part of one: M is it, const where it is written.
template <class A, class M>
void fields(A& a, M& m) {
  using T = std::remove_const_t<M>;
  if constexpr (std::is_same_v<T, std::string> || std::is_integral_v<T>) {
    a(m);
  } else if constexpr (std::is_same_v<T, NodePlace>) {
    a(m.slot), a(m.rank), a(m.local_rank);
  } else if constexpr (std::is_same_v<T, SpawnError>) {
    as_byte(a, m.stage, Stage::exec);
    a(m.os_errno), a(m.what);
  } else if constexpr (std::is_same_v<T, FlightEntry>) {
    a(m.what);
    as_byte(a, m.state, FlightState::failed);
    a(m.started), a(m.ended);
  } else if constexpr (std::is_same_v<T, Traceback>) {
    a(m.begun), a.list(m.lines), a.list(m.behind), a(m.error);
    a.list(m.first), a(m.first_error), a(m.between);
  } else if constexpr (std::is_same_v<T, WorkerEnd>) {
    a(m.rank), a(m.local_rank), a(m.pid), a(m.started), a(m.ended), a(m.exit_code), a(m.signal);
    a(m.core_dumped), a(m.hung), a(m.signal_we_sent), a(m.oom_evidence), a(m.oom_text);
    a.list(m.stderr_tail), a(m.error_file), a.list(m.flight), a(m.peer_lost), a(m.host);
    a(m.by_chaos), a(m.stderr_log), a.optional(m.traceback), a(m.silent_since_traceback);
  } else if constexpr (std::is_same_v<T, NodeFound>) {
    a(m.slot), a(m.done), a(m.linked), a(m.ready), a(m.in_round), a(m.round), a(m.version);
  } else if constexpr (std::is_same_v<T, NodeJoin>) {
    a(m.host), a(m.number), a(m.nproc), a(m.job), a(m.master_addr), a(m.master_port);
    a(m.run), a.list(m.found), a(m.login), a.list(m.ports);
  } else if constexpr (std::is_same_v<T, NodeClear>) {
  } else if constexpr (std::is_same_v<T, NodeStartFailed>) {
    a(m.slot), fields(a, m.error);
  } else if constexpr (std::is_same_v<T, NodeReady>) {
    a(m.slot), a(m.left), a(m.version), a(m.why);
  } else if constexpr (std::is_same_v<T, NodeProgress>) {
    a(m.slot), a(m.version);
  } else if constexpr (std::is_same_v<T, NodeReplace>) {
    a(m.slot);
    as_byte(a, m.kind, FailureKind::voluntary);
  } else if constexpr (std::is_same_v<T, NodeEnded>) {
    a(m.slot), fields(a, m.end);
  } else if constexpr (std::is_same_v<T, NodeSignal>) {
    a(m.number);
  } else if constexpr (std::is_same_v<T, NodeWelcome>) {
    a(m.number), a(m.slots), a(m.run), a(m.led_by), a(m.still_after);
  } else if constexpr (std::is_same_v<T, NodeRefused>) {
    a(m.why);
  } else if constexpr (std::is_same_v<T, NodeStart>) {
    a(m.round), a(m.size), a(m.local_size), a(m.node_rank), a(m.nodes);
    a(m.master_addr), a(m.master_port), a.list(m.places), a(m.one_world), a.list(m.peers);
  } else if constexpr (std::is_same_v<T, NodeStop>) {
    a.list(m.slots), a(m.signal);
  } else if constexpr (std::is_same_v<T, NodeHandOn>) {
    a(m.signal);
  } else if constexpr (std::is_same_v<T, NodeFence>) {
    a(m.round), a(m.lost);
  } else if constexpr (std::is_same_v<T, NodeAnnounce>) {
    a(m.round), a(m.size), a.list(m.places);
  } else if constexpr (std::is_same_v<T, NodeFinish>) {
    a(m.exit_code), a(m.why);
  } else if constexpr (std::is_same_v<T, NodeInputWanted>) {
    a(m.wants);
  } else if constexpr (std::is_same_v<T, NodeInput>) {
    a(m.bytes);
  } else if constexpr (std::is_same_v<T, NodeTest>) {
  } else if constexpr (std::is_same_v<T, NodeTested>) {
    a(m.why);
  } else {
    care_fields(a, m);
  }
}

// The message of that kind, empty: kinds are numbered as the variant has them.
template <std::size_t... I>
NodeMessage of_kind(std::size_t kind, std::index_sequence<I...>) {
  NodeMessage message;
  ((kind == I ? void(message.emplace<I>()) : void()), ...);
  return message;
}

bool makes_sense(const NodeMessage& message) {
  if (const auto* join = std::get_if<NodeJoin>(&message)) {
    return join->nproc > 0 && join->nproc <= static_cast<int>(kMaxItems);
  }
  if (const auto* welcome = std::get_if<NodeWelcome>(&message)) {
    return welcome->slots > 0 && welcome->slots <= static_cast<int>(kMaxItems);
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

std::string encode(const NodeMessage& message, TimePoint origin) {
  Out out(origin);
  out(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& what) { fields(out, what); }, message);
  const std::string body = out.take();
  Writer frame;
  frame.put_string(body);
  return frame.take();
}

Result<NodeMessage> decode_node_message(std::string_view frame, TimePoint origin) {
  In in(frame, origin);
  std::uint8_t kind = 0;
  in(kind);
  constexpr auto kKinds = std::variant_size_v<NodeMessage>;
  if (frame.empty() || kind >= kKinds) {
    return Error{.code = Errc::protocol, .what = "a message of an unknown kind"};
  }
  NodeMessage message = of_kind(kind, std::make_index_sequence<kKinds>());
  std::visit([&](auto& what) { fields(in, what); }, message);
  if (!in.done() || !makes_sense(message)) {
    return Error{.code = Errc::protocol, .what = "a malformed message"};
  }
  return message;
}

}  // namespace dlaunch
