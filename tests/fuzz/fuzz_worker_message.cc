#include <string_view>

#include "fuzz.h"
#include "rendezvous/worker_message.h"

static int fuzz_worker_message(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const std::string_view packet(reinterpret_cast<const char*>(data), size);
  const auto message = decode_worker_message(packet);
  // What is accepted is written again in the same bytes.
  if (message && encode(*message) != packet) __builtin_trap();
  return message ? 0 : -1;
}

static std::vector<std::string> worker_message_examples() {
  using namespace dlaunch;
  const RoundNotice notice{.round = 4,
                           .rank = 1,
                           .size = 3,
                           .local_cores = 8,
                           .store_url = "tcp://127.0.0.1:5",
                           .round_dir = "/tmp/x"};
  return one_of_each<WorkerMessage>(
      {Ready{.worker = 7, .left = 3, .version = 41, .why = "a peer was lost"}, notice},
      [](const WorkerMessage& message) { return encode(message); });
}

static const FuzzTarget worker_message_target("worker_message", fuzz_worker_message,
                                              worker_message_examples);
