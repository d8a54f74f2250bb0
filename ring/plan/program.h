// Program: one rank's part in a collective as plain data: what it sends to each peer, what it
// receives from each peer, what it reduces or copies, and which step waits for which.
// ring/plan/schedule.h makes programs, ProgramRun tracks the execution of one. Both are pure: the
// stream plane moves the bytes between sockets, the tests between arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dlaunch/ring.h"

namespace dlaunch {

enum class Region : std::uint8_t { in, out, scratch };

struct Location {
  Region region = Region::in;
  std::size_t offset = 0;  // bytes
};

enum class StepKind : std::uint8_t {
  send,    // place -> peer
  recv,    // peer -> place
  reduce,  // operands, left to right -> place; without operands: joins the steps before it
  copy,    // the one operand -> place
};

inline constexpr std::int32_t kNoStep = -1;
// Sends to one peer that leave in one system call.
inline constexpr std::size_t kMostAtOnce = 8;

struct Step {
  StepKind kind = StepKind::send;
  bool last = false;             // reduce: all ranks' operands are included now (AVG divides)
  std::int16_t peer = -1;        // send, recv
  std::int32_t needs = kNoStep;  // send, recv: must not start before that step is done
  std::int32_t then = kNoStep;   // the reduce that waits, among others, for this step
  std::int32_t pending = 0;      // reduce: steps with it as `then`; runs when all are done
  std::uint32_t first_operand = 0;
  std::uint32_t operand_count = 0;
  Location location;
  std::size_t bytes = 0;
};

struct Program {
  std::vector<Step> steps;
  std::vector<Location> operands;
  // Step numbers by peer, in the order in which they go over the socket.
  std::vector<std::vector<std::int32_t>> sends;
  std::vector<std::vector<std::int32_t>> recvs;
  std::vector<std::int16_t> peers;  // all others: first those with sends, in the order of the steps
  std::size_t scratch_bytes = 0;
  std::size_t most_to_one = 0;  // bytes sent to one peer
};

// The places of a program's regions during one call.
struct Buffers {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::byte* scratch = nullptr;  // Program::scratch_bytes
};

// The arithmetic of a program's reduce steps.
struct Arithmetic {
  dl_dtype dtype = DL_UINT8;
  dl_op op = DL_SUM;
  int ranks = 1;
};

// The progress of one program. The caller does what next_sends() and next_recv() offer, in that
// order for each peer, and reports it by sent() and received(); reductions happen inside these two.
class ProgramRun {
 public:
  // The program and the buffers must live until done().
  void begin(const Program& program, const Buffers& buffers, const Arithmetic& arithmetic);

  // The sends to `peer` that may leave now, in order, at most as many as fit `sends`; returns their
  // number.
  std::size_t next_sends(int peer, std::span<const Step*> sends) const;
  void sent(int peer);  // the first outstanding one has left; its place may be overwritten
  bool sends_left(int peer) const;

  // The outstanding recv that the next bytes from `peer` belong to; null if none is expected.
  const Step* next_recv(int peer) const;
  bool may_start(const Step& step) const;  // its place is free
  void received(int peer);

  // Copies this rank's own data, which needs no peer: all at once when the caller has time. Other
  // steps may wait for these copies, so call it before each wait. False if no copy was left.
  bool copy_own();

  bool done() const { return left_ == 0; }
  std::byte* at(const Location& location) const;

 private:
  bool is_done(std::int32_t step) const { return step == kNoStep || state_[step].done; }
  void complete(std::int32_t step);
  void perform(const Step& step);

  struct State {
    std::int32_t pending = 0;
    bool done = false;
  };
  const Program* program_ = nullptr;
  Buffers buffers_;
  Arithmetic arithmetic_;
  std::vector<State> state_;
  std::vector<std::size_t> send_at_, recv_at_;  // by peer: the first outstanding one
  std::vector<const void*> operands_;
  std::size_t left_ = 0;
  bool copies_left_ = false;
};

}  // namespace dlaunch
