// NodeMessage: the messages between the leader of a job on several hosts and the dlaunch of another
// host, over a connection that both have proven (rendezvous/handshake.h). Slots are the node's own,
// from 0. Durations cross the wire, never points in time: a TimePoint is sent as the time since the
// sender's origin. The receiver must know where that origin lies on its own clock
// (launcher/wire/host_clock.h).
//
// A frame: u32 size, then u8 kind and the fields in order; strings with a u32 length. An empty
// frame says only that its sender is alive: each end sends one every kBeat, and considers the other
// lost when nothing has come for a lease, --host-timeout. Pure; fuzzed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/secret.h"
#include "elastic/job_core.h"
#include "launcher/wire/monitor_message.h"
#include "launcher/wire/worker_end.h"

namespace dlaunch {

inline constexpr Duration kBeat = std::chrono::milliseconds(500);
inline const std::string kBeatFrame(4, '\0');  // of no bytes
// A beat that late is our own fault, not the others': this process, or its machine, has slept.
inline bool stood_still(TimePoint beat_due) {
  return beat_due != kNever && steady_now() > beat_due + 2 * kBeat;
}

// -- From a node
struct NodeFound {  // a process that still runs there, or has ended well
  Slot slot = 0;
  bool done = false, linked = false, ready = false;  // as in JobCore::Found
  std::int32_t in_round = 0, round = 0;
  std::uint64_t version = 0;
};
struct NodeJoin {
  // Another build of dlaunch reads the members up to `build`, too: they stay as they are.
  std::string host;
  std::int32_t number = -1;  // --node-rank; -1: any
  std::int32_t nproc = 1;
  std::string job;          // the settings that must be equal on all hosts, in words
  std::uint64_t build = 0;  // wire_fingerprint()
  std::string master_addr;  // MASTER_ADDR of the workers if rank 0 runs here
  std::int32_t master_port = 0;
  std::string run;  // the job that it was in before; "": none
  std::vector<NodeFound> found;
  std::int32_t login = 0;           // the leader's login that started it (ssh_talk.h); 0: none
  std::vector<std::int32_t> ports;  // held there for ranks, by local rank
  std::string rack = {};            // elastic/rack_order.h; "": the host does not know
};
// What JobCore learns from a node: its events, here with the node's slots.
using NodeSpawned = JobCore::Spawned;
using NodeStuck = JobCore::Stuck;
using NodeReady = JobCore::Ready;
using NodeProgress = JobCore::Progress;
using NodeReplace = JobCore::Replace;  // the worker hangs, or has left without ending
struct NodeStartFailed {
  Slot slot = 0;
  SpawnError error;
};
struct NodeNotStarted {  // it was stopped before its turn came
  Slot slot = 0;
};
struct NodeEnded {
  Slot slot = 0;
  WorkerEnd end;
};
struct NodeSignal {  // sent by the user to that dlaunch
  std::int32_t number = 0;
};
struct NodeTested {  // answer to NodeTest
  std::string why;   // why the host cannot have workers; "": it can
};
struct NodeLoginEnded {  // answer to NodeLogIn, unless the dlaunch there has called the leader
  std::int32_t login = 0;
  std::int32_t exit_code = 1;
  bool reached = false;  // the dlaunch there says why it cannot take part
  std::string why;
};
struct NodeInputWanted {  // wants the next piece of stdin, or none until further notice
  bool wants = false;
};

// -- To a node
struct NodeWelcome {
  std::int32_t number = 0;  // of the node
  std::int32_t slots = 1;   // number of its slots
  std::string run;          // "": no journal, the job ends with its leader
  std::string led_by;       // the leader's host
  Duration still_after{};   // report a worker that has not moved for this long; max: none
};
struct NodeClear {};  // end all workers, and join again
struct NodeTest {};   // test your host before you join: the job has begun
// Log in to a host by ssh, and start a dlaunch there. The ssh command is in the order that the node
// got through ssh. A link without TLS does not protect its messages, but this one has a proof.
struct NodeLogIn {
  std::int32_t login = 0, number = 0, nproc = 0;  // as in its order (ssh_talk.h)
  std::string host, user;                         // user "": ssh's own choice
  std::int32_t port = 0;                          // 0: the same
  std::string binary;                             // the path of our program
  std::string proof;                              // see proof_of()
};
struct NodeForgetLogIn {  // end it, if the dlaunch there has not called the leader
  std::int32_t login = 0;
};
struct NodeRefused {
  std::string why;
};
struct NodePlace {
  Slot slot = 0;
  std::int32_t rank = -1;  // -1: a spare
  std::int32_t local_rank = -1;
};
struct NodeStart {
  std::int32_t round = 0;
  std::int32_t size = 1;        // of the job
  std::int32_t local_size = 1;  // members on this node
  std::int32_t node_rank = 0;   // among the nodes that have members, by their lowest ranks
  std::int32_t nodes = 1;       // number of those nodes
  std::string master_addr;      // of rank 0's host
  std::int32_t master_port = 0;
  std::vector<NodePlace> places;
  bool one_world = false;  // all ranks are started now, here or elsewhere, and form one world
  std::vector<std::string> peers;  // host:port held for each rank; empty: some ranks have none
  std::string rack = {};           // of this node (elastic/rack_order.h); "": unknown
};
struct NodeStop {
  std::vector<Slot> slots;
  std::int32_t signal = 0;
};
struct NodeHandOn {
  std::int32_t signal = 0;
};
struct NodeFence {
  std::int32_t round = 0;
  std::int32_t lost = -1;
};
struct NodeAnnounce {
  std::int32_t round = 0;
  std::int32_t size = 1;
  std::vector<NodePlace> places;
};
struct NodeInput {    // of the leading dlaunch's stdin
  std::string bytes;  // "": its end
};
struct NodeFinish {  // the job is over
  std::int32_t exit_code = 0;
  std::string why;  // one line; "": it went well
};

// -- From dlaunchctl on any machine, over a connection of its own, and back
struct NodeAsks {
  std::string request;  // as in control_request.h
};
struct NodeAnswers {  // a part of the answer; the connection closes after the last one
  std::string part;
  bool last = false;
};

template <class Message, class... Others>
inline constexpr bool is_one_of = (std::is_same_v<Message, Others> || ...);

using NodeMessage =
    std::variant<NodeJoin, NodeSpawned, NodeStartFailed, NodeNotStarted, NodeStuck, NodeReady,
                 NodeProgress, NodeReplace, NodeEnded, NodeSignal, NodeWelcome, NodeRefused,
                 NodeStart, NodeStop, NodeHandOn, NodeFence, NodeAnnounce, NodeFinish, NodeClear,
                 NodePing, NodeLook, NodeCut, NodeDump, NodeHung, NodeInject, NodeSurvey, NodePong,
                 NodeSeen, NodeSpans, NodeTimes, NodeStacks, NodeWorkers, NodeInputWanted,
                 NodeInput, NodeTest, NodeTested, NodeThrew, NodeGaveUp, NodeAsks, NodeAnswers,
                 NodeBooks, NodeTrace, NodeAskRecorder, NodeRecorded, NodeTail, NodeOutput,
                 NodeRunProgress, NodeLogIn, NodeForgetLogIn, NodeLoginEnded>;

// Who takes a kind of message. A new kind that nobody takes does not compile.
template <class Message>
inline constexpr bool kIsFromMonitor =  // at the leader its JobMonitor takes it
    is_one_of<Message, NodeSeen, NodeSpans, NodeTimes, NodeStacks, NodeWorkers, NodeThrew,
              NodeGaveUp, NodeBooks, NodeTrace, NodeRecorded, NodeOutput, NodeRunProgress>;
template <class Message>
inline constexpr bool kIsForMonitor =  // the node's NodeMonitor takes it
    is_one_of<Message, NodeLook, NodeCut, NodeDump, NodeHung, NodeInject, NodeSurvey,
              NodeAskRecorder>;
template <class Message>
inline constexpr bool kIsForNode =
    is_one_of<Message, NodeStart, NodeStop, NodeHandOn, NodeFence, NodeAnnounce, NodeTail>;
template <class Message>
inline constexpr bool kIsForSession =  // or for the agent that has the session
    is_one_of<Message, NodeWelcome, NodeRefused, NodeFinish, NodeClear, NodePing, NodeInput,
              NodeTest, NodeAnswers, NodeLogIn, NodeForgetLogIn>;
template <class Message>
inline constexpr bool kIsFromLeader =
    kIsForMonitor<Message> || kIsForNode<Message> || kIsForSession<Message>;
template <class Message>
inline constexpr bool kIsFromStranger =  // what the leader takes also from a host that is none yet
    is_one_of<Message, NodeJoin, NodeAsks, NodeTested, NodePong>;

// The proof that the holder of the job's secret has sent `what`, except for its own proof, to the
// dlaunch of that start (ssh_talk.h): nobody else on the way can make one, or use it elsewhere. A
// dlaunch must take each login once only.
std::string proof_of(NodeLogIn what, int to_login, const Secret& secret);

// A hash of the structure of all these messages: builds with the same one understand each other.
std::uint64_t wire_fingerprint();
// What a host of another build says first, up to NodeJoin::build, in the payload of a frame that
// this build may be unable to decode. nullopt: the frame is something else. The leader refuses such
// a host in words: NodeRefused stays as it is, too.
std::optional<NodeJoin> join_of_another_build(std::string_view frame);

// With the frame's size in front. origin: the sender's.
std::string encode(const NodeMessage& message, TimePoint origin);
// Decodes the payload of a frame. origin: the sender's, by the receiver's clock. Errc::protocol:
// something does not fit exactly. Slots and ranks are not checked against their numbers.
Result<NodeMessage> decode_node_message(std::string_view frame, TimePoint origin);

}  // namespace dlaunch
