// The messages by which the leader and the agent of a node monitor the workers there: kinds of
// NodeMessage; launcher/wire/node_message.h has the rest. Each question or order has at most one
// answer, except that a node sends NodeBooks by itself, and NodeOutput for a while. A worker of a
// program without libdlring costs nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/flight.h"
#include "base/flight_rate.h"
#include "base/nccl_record.h"
#include "base/run_progress.h"
#include "elastic/agent_core.h"
#include "elastic/goodput_ledger.h"
#include "elastic/hang_finder.h"

namespace dlaunch {

// -- To a node
struct NodePing {
  Duration sent{};  // since the connection was opened, by the sender's clock
};
struct NodeLook {  // at how far your workers have come
  std::uint32_t look = 0;
};
struct NodeCut {  // of what you saw then, send the times of these collectives
  std::uint32_t look = 0;
  std::uint64_t first = 0, last = 0;
};
struct NodeDump {  // the stacks of a worker
  std::uint32_t request = 0;
  Slot slot = 0;
  Duration limit{};  // take no longer, and send the innermost frames only; 0: the usual limits
};
// Where a worker's process groups stand, by PyTorch's Flight Recorder, by NCCL's record and by
// NCCL's RAS service.
struct NodeAskRecorder {
  std::uint32_t request = 0;
  Slot slot = 0;
  bool in_haste = false;  // leave the Flight Recorder out
};
struct NodeHung {  // the worker is about to be killed as hung; `why` goes into its WorkerEnd
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
  bool gpus = false;  // also the GPUs that they use, as of the last query, and their tallies
};
struct NodeTail {  // pass on the last lines of that worker's output, and for so long those that
                   // come
  Slot slot = 0;
  Duration lasts{};
  bool again = false;  // only those that come
};

// -- From a node
struct NodePong {
  Duration sent{};   // as in the ping
  Duration since{};  // age of the connection, by the node's own clock
};
struct NodePosition {  // in a group; as ProgressSample
  std::uint32_t group = 0;
  std::uint64_t seq = 0;
  bool inside = false;
  std::uint8_t what = 0;
  Duration still{};  // for how long its node has seen it so
};
struct NodeRank {  // how far a worker has come
  std::int32_t rank = 0;
  std::int32_t round = 0;  // its current round
  std::int32_t pid = 0;
  ProcessState state = ProcessState::running;
  bool left = false;   // it waits for the next round
  bool moves = false;  // it no longer stands still
  std::vector<NodePosition> positions;
  std::optional<Duration> beat;  // since its last heartbeat, 0: little; nullopt: it has sent none
  // The same for its last output and its last use of CPU time; nullopt: there is a better sign.
  std::optional<Duration> quiet;
};
struct NodeSeen {
  std::vector<NodeRank> ranks;
};
struct NodeThrew {  // it has printed a traceback, still runs, and has shown nothing since
  Slot slot = 0;
  std::int32_t pid = 0;
  TimePoint threw{};
  bool over = false;  // it has gone on: the earlier message no longer holds
};
struct NodeGaveUp {  // it has printed the time-out of a wait for other ranks, and still runs
  Slot slot = 0;
};
struct NodeSpans {  // the collectives whose times are known for all workers there
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
  std::vector<NodeRankTimes> ranks = {};
  std::vector<NodeReceived> links = {};
};
struct NodeBooks {  // for the ledger of goodput: of the ranks there that use libdlring
  std::vector<RankSpans> ranks;
};
struct NodeTrace {  // for --trace: all operations of ranks there since the last such message
  std::vector<RankSpans> ranks;
};
struct NodeLine {
  bool err = false;       // of stderr
  std::uint64_t end = 0;  // the number of bytes until its end, of all that came from the slot
  std::string text;
};
struct NodeOutput {  // of the worker there, or of those that were there before it
  Slot slot = 0;
  std::uint64_t lost = 0;  // so many bytes came too fast
  std::vector<NodeLine> lines;
};
struct NodeRunProgress {  // of the lowest rank there that reports any, at most once a second
  std::int32_t rank = 0;
  RunProgress progress;
};
struct NodeStacks {
  std::uint32_t request = 0;
  Slot slot = 0;
  std::int32_t pid = 0;
  std::vector<std::string> lines;
};
struct NodeRecorded {
  std::uint32_t request = 0;
  std::vector<NodePosition> positions;  // PyTorch's; none: there is no such recorder
  std::vector<NcclProgress> nccl;
  std::vector<NcclProgress> ras;  // where the ranks of a communicator differ, and RAS names it
  bool ras_silent = false;        // its RAS thread does not answer those of other processes
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
  std::int32_t round = 0;    // the last round it was informed of
  Duration cpu{};            // CPU time of its process so far
  std::uint64_t memory = 0;  // bytes
  bool in_ring = false;      // it has called dl_init()
  bool has_spoken = false;   // it has written to its stdout or stderr
  FlightRate rate;
  bool gpus_known = false;
  std::vector<NodeGpu> gpus;
  std::vector<FlightEntry> operations;  // the last one, if it has made any
  std::vector<TallySums> tallies;       // of its collectives in this round; if GPUs were asked for
};
struct NodeWorkers {
  std::uint32_t request = 0;
  std::vector<NodeWorker> workers;
};

}  // namespace dlaunch
