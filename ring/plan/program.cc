#include "ring/plan/program.h"

#include "base/check.h"
#include "base/failpoint.h"
#include "ring/call/plane.h"
#include "ring/kernels/copy.h"
#include "ring/kernels/reduce.h"

namespace dlaunch {

void ProgramRun::begin(const Program& program, const Buffers& buffers,
                       const Arithmetic& arithmetic) {
  program_ = &program;
  buffers_ = buffers;
  arithmetic_ = arithmetic;
  const std::size_t steps = program.steps.size();
  state_.resize(steps);
  copies_left_ = false;
  for (std::size_t i = 0; i < steps; ++i) {
    state_[i] = {.pending = program.steps[i].pending, .done = false};
    copies_left_ |= program.steps[i].kind == StepKind::copy;
  }
  left_ = steps;
  send_at_.assign(program.sends.size(), 0);
  recv_at_.assign(program.recvs.size(), 0);
}

std::byte* ProgramRun::at(const Location& location) const {
  switch (location.region) {
    case Region::in:
      // Only read: schedules name `in` as a source.
      return const_cast<std::byte*>(buffers_.in) + location.offset;
    case Region::out:
      return buffers_.out + location.offset;
    case Region::scratch:
      break;
  }
  return buffers_.scratch + location.offset;
}

std::size_t ProgramRun::next_sends(int peer, std::span<const Step*> sends) const {
  const auto& queue = program_->sends[peer];
  std::size_t count = 0;
  for (std::size_t i = send_at_[peer]; i < queue.size() && count < sends.size(); ++i) {
    const Step& step = program_->steps[queue[i]];
    if (!may_start(step)) break;
    sends[count++] = &step;
  }
  return count;
}

bool ProgramRun::sends_left(int peer) const {
  return send_at_[peer] < program_->sends[peer].size();
}

const Step* ProgramRun::next_recv(int peer) const {
  const auto& queue = program_->recvs[peer];
  return recv_at_[peer] < queue.size() ? &program_->steps[queue[recv_at_[peer]]] : nullptr;
}

bool ProgramRun::may_start(const Step& step) const { return is_done(step.needs); }

void ProgramRun::sent(int peer) { complete(program_->sends[peer][send_at_[peer]++]); }

void ProgramRun::received(int peer) { complete(program_->recvs[peer][recv_at_[peer]++]); }

bool ProgramRun::copy_own() {
  if (!copies_left_) return false;
  copies_left_ = false;
  for (std::size_t i = 0; i < program_->steps.size(); ++i) {
    if (program_->steps[i].kind != StepKind::copy) continue;
    perform(program_->steps[i]);
    complete(static_cast<std::int32_t>(i));
  }
  return true;
}

void ProgramRun::complete(std::int32_t step) {
  while (step != kNoStep) {
    DL_ASSERT(!state_[step].done && left_ > 0);
    state_[step].done = true;
    --left_;
    step = program_->steps[step].then;
    if (step == kNoStep || --state_[step].pending > 0) return;
    perform(program_->steps[step]);
  }
}

void ProgramRun::perform(const Step& step) {
  if (step.bytes == 0) return;
  std::byte* const target = at(step.location);
  if (step.kind == StepKind::copy) {
    const std::byte* const source = at(program_->operands[step.first_operand]);
    if (source != target) copy_cached(target, source, step.bytes);
    return;
  }
  operands_.clear();
  for (std::uint32_t i = 0; i < step.operand_count; ++i) {
    operands_.push_back(at(program_->operands[step.first_operand + i]));
  }
  reduce(operands_, target, step.bytes / dtype_bytes(arithmetic_.dtype), arithmetic_.dtype,
         arithmetic_.op, step.last ? arithmetic_.ranks : 0);
  failpoint_data("program.reduced_data", target, step.bytes);
}

}  // namespace dlaunch
