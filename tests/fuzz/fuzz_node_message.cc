#include <string_view>

#include "fuzz.h"
#include "launcher/wire/node_message.h"

static int fuzz_node_message(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const TimePoint now(std::chrono::hours(24 * 3650));
  (void)join_of_another_build(fuzz_text(data, size));
  const auto message = decode_node_message(fuzz_text(data, size), now);
  if (!message) return -1;
  // What is accepted means the same once it was written again.
  const std::string frame = encode(*message, now);
  const auto again = decode_node_message(std::string_view(frame).substr(4), now);
  if (!again || encode(*again, now) != frame) __builtin_trap();
  return 0;
}

static std::vector<std::string> node_message_examples() {
  using namespace dlaunch;
  NodeJoin join{.host = "b", .job = "--nnodes 2", .master_addr = "10.0.0.2", .run = "0123"};
  join.found.push_back({.slot = 1, .linked = true, .in_round = 2, .round = 2, .version = 9});
  join.ports = {29501, 29502};
  join.rack = "s0.s1";
  NodeStart start{.round = 3, .size = 4, .local_size = 2, .nodes = 2, .master_addr = "10.0.0.1"};
  start.places = {{0, 2, 0}, {1, 3, 1}};
  start.peers = {"10.0.0.1:29501"};
  const NodeAnnounce announce{.round = 3, .size = 4, .places = {{0, 2, 0}, {1, 3, 1}}};
  NodeEnded ended{.slot = 1, .end = {}};
  ended.end.host = "b";
  ended.end.signal = 9;
  ended.end.stderr_tail = {"Traceback", "E: x"};
  ended.end.flight = {{"all_reduce #1", FlightState::failed, {}, {}}};
  const NodeLogIn log_in{.login = 3,
                         .number = 4,
                         .nproc = 2,
                         .host = "c",
                         .user = "u",
                         .port = 22,
                         .binary = "/usr/bin/dlaunch",
                         .proof = std::string(32, 'p')};
  return one_of_each<NodeMessage>(
      {join, start, announce, ended, NodeCut{.look = 1, .first = 3, .last = 9}, log_in},
      [](const NodeMessage& message) {
        return encode(message, TimePoint(std::chrono::hours(24 * 3650))).substr(4);
      });
}

static const FuzzTarget node_message_target("node_message", fuzz_node_message,
                                            node_message_examples);
