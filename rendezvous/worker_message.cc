#include "rendezvous/worker_message.h"

#include "base/codec.h"

namespace dlaunch {
namespace {

enum class Kind : std::uint8_t { ready = 1, round = 2, fence = 3, progress = 4, goodbye = 5 };

constexpr std::size_t kMaxWorkerText = 4096;

void put(Writer& out, const Ready& ready) {
  out.put(static_cast<std::uint8_t>(Kind::ready));
  out.put(ready.worker);
  out.put(ready.left);
  out.put(ready.version);
  out.put_string(std::string_view(ready.why).substr(0, kMaxWorkerText));
}

void put(Writer& out, const RoundNotice& notice) {
  out.put(static_cast<std::uint8_t>(Kind::round));
  for (const auto number : {notice.round, notice.rank, notice.size, notice.local_cores}) {
    out.put(number);
  }
  out.put_string(notice.store_url);
  out.put_string(notice.round_dir);
}

void put(Writer& out, const FenceNotice& notice) {
  out.put(static_cast<std::uint8_t>(Kind::fence));
  out.put(notice.round);
  out.put(notice.lost);
}

void put(Writer& out, const ProgressNotice& progress) {
  out.put(static_cast<std::uint8_t>(Kind::progress));
  out.put(progress.worker);
  out.put(progress.version);
}

void put(Writer& out, const Goodbye& goodbye) {
  out.put(static_cast<std::uint8_t>(Kind::goodbye));
  out.put(goodbye.worker);
}

Ready get_ready(Reader& in) {
  Ready ready;
  ready.worker = in.get<std::int32_t>();
  ready.left = in.get<std::int32_t>();
  ready.version = in.get<std::uint64_t>();
  ready.why = in.get_string(kMaxWorkerText);
  return ready;
}

RoundNotice get_round(Reader& in) {
  RoundNotice notice;
  notice.round = in.get<std::int32_t>();
  notice.rank = in.get<std::int32_t>();
  notice.size = in.get<std::int32_t>();
  notice.local_cores = in.get<std::int32_t>();
  notice.store_url = in.get_string(kMaxWorkerText);
  notice.round_dir = in.get_string(kMaxWorkerText);
  return notice;
}

FenceNotice get_fence(Reader& in) {
  FenceNotice notice;
  notice.round = in.get<std::int32_t>();
  notice.lost = in.get<std::int32_t>();
  return notice;
}

ProgressNotice get_progress(Reader& in) {
  ProgressNotice progress;
  progress.worker = in.get<std::int32_t>();
  progress.version = in.get<std::uint64_t>();
  return progress;
}

bool makes_sense(const WorkerMessage& message) {
  const auto* notice = std::get_if<RoundNotice>(&message);
  if (notice == nullptr) return true;
  return notice->round > 0 && notice->rank >= 0 && notice->rank < notice->size &&
         notice->local_cores >= 0;
}

}  // namespace

std::string encode(const WorkerMessage& message) {
  Writer out;
  std::visit([&](const auto& what) { put(out, what); }, message);
  return out.take();
}

Result<WorkerMessage> decode_worker_message(std::string_view packet) {
  Reader in(packet);
  WorkerMessage message;
  switch (static_cast<Kind>(in.get<std::uint8_t>())) {
    case Kind::ready:
      message = get_ready(in);
      break;
    case Kind::round:
      message = get_round(in);
      break;
    case Kind::fence:
      message = get_fence(in);
      break;
    case Kind::progress:
      message = get_progress(in);
      break;
    case Kind::goodbye:
      message = Goodbye{in.get<std::int32_t>()};
      break;
    default:
      return Error{.code = Errc::protocol, .what = "a message of an unknown kind"};
  }
  if (!in.done() || !makes_sense(message)) {
    return Error{.code = Errc::protocol, .what = "a malformed message"};
  }
  return message;
}

}  // namespace dlaunch
