#include "rendezvous/worker_message.h"

#include "base/record.h"

namespace dlaunch {
namespace {

constexpr RecordLimits kWorkerLimits{.text = 4096, .items = 0};

bool makes_sense(const WorkerMessage& message) {
  const auto* notice = std::get_if<RoundNotice>(&message);
  if (notice == nullptr) return true;
  return notice->round > 0 && notice->rank >= 0 && notice->rank < notice->size &&
         notice->local_cores >= 0;
}

}  // namespace

std::string encode(const WorkerMessage& message) {
  RecordWriter out(kWorkerLimits);
  write_message(out, message);
  return out.take();
}

Result<WorkerMessage> decode_worker_message(std::string_view packet) {
  return decode_message(RecordReader(packet, kWorkerLimits), makes_sense);
}

}  // namespace dlaunch
