// What the leading dlaunch and the agent of a node tell each other to look after the workers there:
// kinds of NodeMessage, of which launcher/hosts/node_message.h has the rest. Each question or order
// has at most one answer. A worker that moves on, and one that has stood still and was told of,
// cost nothing; nor do those of programs without libdlring.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/flight.h"
#include "base/flight_rate.h"
#include "elastic/agent_core.h"
#include "elastic/hang_finder.h"

namespace dlaunch {

// -- To a node
struct NodePing {
  Duration sent{};  // since the connection was there, by the clock of who sends it
};
struct NodeLook {  // at how far your workers have come
  std::uint32_t look = 0;
};
struct NodeCut {  // of what you saw then, tell the times of these collectives
  std::uint32_t look = 0;
  std::uint64_t first = 0, last = 0;
};
struct NodeDump {  // the stacks of a worker
  std::uint32_t request = 0;
  Slot slot = 0;
};
struct NodeHung {  // it is about to be killed for that; stands in what is told of its end
  Slot slot = 0;
  std::int32_t pid = 0;
  std::string why;
};
struct NodeInject {  // for --chaos
  Slot slot = 0;
  std::int32_t signal = 0;
  Duration stands{};  // after SIGSTOP: then you continue it
};
struct NodeSurvey {  // how are your workers?
  std::uint32_t request = 0;
  bool gpus = false;  // and the GPUs that they use: as they were when that was asked last
};

// -- From a node
struct NodePong {
  Duration sent{};   // as in the ping
  Duration since{};  // it has had the connection, by its own clock
};
struct NodePosition {  // in a group; as ProgressSample
  std::uint32_t group = 0;
  std::uint64_t seq = 0;
  bool inside = false;
  std::uint8_t what = 0;
  Duration still{};  // that its node has seen it so
};
struct NodeRank {  // how far a worker has come
  std::int32_t rank = 0;
  std::int32_t round = 0;  // that it is in
  std::int32_t pid = 0;
  ProcessState state = ProcessState::running;
  bool left = false;   // it waits for the next round
  bool moves = false;  // it does not stand still any more
  std::vector<NodePosition> positions;
};
struct NodeSeen {
  std::vector<NodeRank> ranks;
};
struct NodeThrew {  // it has printed a traceback, still runs, and has shown nothing since
  Slot slot = 0;
  std::int32_t pid = 0;
  TimePoint threw{};
  bool over = false;  // what was told of it is over: it has gone on
};
struct NodeSpans {  // the collectives whose times are known of all workers there
  std::uint32_t look = 0;
  std::uint64_t first = 0, last = 0;
};
struct NodeRankTimes {  // means over the collectives after the first
  std::int32_t rank = 0;
  TimePoint entered{};
  Duration in_op{}, step{};
};
struct NodeReceived {             // over a link since the round began
  std::int32_t from = 0, to = 0;  // ranks
  std::uint64_t bytes = 0;
  Duration time{};
};
struct NodeTimes {
  std::uint32_t look = 0;
  std::vector<NodeRankTimes> ranks;
  std::vector<NodeReceived> links;
};
struct NodeStacks {
  std::uint32_t request = 0;
  Slot slot = 0;
  std::int32_t pid = 0;
  std::vector<std::string> lines;
};
struct NodeGpu {                                    // numbers below 0: not known
  std::int32_t number = 0;                          // on its host, in the order of the bus
  std::int32_t instance = -1;                       // of MIG, there
  std::int32_t utilisation = -1, temperature = -1;  // percent, °C
  std::uint64_t memory_used = 0, memory_total = 0;  // bytes
  std::int64_t ecc_errors = -1;                     // uncorrected
};
struct NodeWorker {
  Slot slot = 0;
  std::int32_t pid = 0;
  TimePoint started{};
  ProcessState state = ProcessState::running;
  std::int32_t round = 0;    // that it was told of last
  Duration cpu{};            // its process's time so far
  std::uint64_t memory = 0;  // bytes
  bool in_ring = false;      // it has called dl_init()
  bool has_spoken = false;   // it has written to its stdout or stderr
  FlightRate rate;
  bool gpus_known = false;
  std::vector<NodeGpu> gpus;
  std::vector<FlightEntry> operations;  // the last one, if it has made any
};
struct NodeWorkers {
  std::uint32_t request = 0;
  std::vector<NodeWorker> workers;
};

}  // namespace dlaunch
