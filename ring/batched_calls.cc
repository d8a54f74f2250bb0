// Batches: calls that begin together at the end of their batch. Collectives run on the caller's
// thread, one after the other, or in the background; messages run beside them.
#include <utility>

#include <fmt/format.h>

#include "ring/communicator.h"
#include "ring/hosts/layered_plane.h"

namespace dlaunch {
namespace {

// For calls that cannot wait for the end of a batch.
Error batch_is_open() {
  return usage_error(
      "a batch is open: only blocking collectives, other than all_reduce_some, and blocking "
      "messages may be in it; end it first");
}

}  // namespace

Result<void> Communicator::refuse_in_batch() {
  if (!batch_) return {};
  return refused_in_batch(batch_is_open());
}

Error Communicator::refused_in_batch(Error why) {
  if (!batch_->refused) batch_->refused = why;
  return why;
}

Result<void> Communicator::begin_batch() {
  if (forked_) return forked_error();
  if (batch_)
    ++batch_->depth;
  else
    batch_.emplace();
  return {};
}

Result<void> Communicator::add_to_batch(Call call) {
  find_program_op(call);
  if (call.some != nullptr) return refuse_in_batch();
  if (auto ok = check(call); !ok) return refused_in_batch(ok.error());
  if (auto gpu = gpu_of(call); !gpu) return refused_in_batch(gpu.error());
  batch_->calls.emplace_back().collective.keep(call, job_.size);
  return {};
}

Result<void> Communicator::add_to_batch(const Message& message, int* source) {
  if (auto ok = check(message); !ok) return refused_in_batch(ok.error());
  BatchedCall& call = batch_->calls.emplace_back();
  call.is_message = true;
  call.message = message;
  call.source = source;
  return {};
}

// The calls of the batch that ends; none: it is within another one.
Result<std::optional<Batch>> Communicator::take_batch() {
  if (forked_) return forked_error();
  if (!batch_) return usage_error("no batch is open");
  if (--batch_->depth > 0) return std::optional<Batch>();
  std::optional<Batch> ended = std::exchange(batch_, std::nullopt);
  if (ended->refused) return *ended->refused;
  if (auto why = dependency_in(ended->calls, job_.rank, job_.size); !why.empty()) {
    return usage_error("batch: " + why);
  }
  return ended;
}

// Calls run(call) for each collective that the batch becomes, as long as none fails.
Result<void> Communicator::run_merged(const Batch& batch,
                                      const std::function<Result<void>(const Call&)>& run) {
  // A codec gives values that are near each other a common scale.
  const auto may_merge = [this](const Call& call) {
    const bool encoded = call.collective == Collective::all_reduce && has_codecs(call.dtype) &&
                         job_.codec != WireCodec::none;
    return !encoded && device_of(call.in) < 0;
  };
  for (const auto& places : merged(batch.calls, may_merge)) {
    Call call = batch.calls[places.front()].collective.call;
    TensorList list;
    if (places.size() > 1) {
      list = list_of(batch.calls, places);
      call.list = &list;
      call.layout = layout_of(list);
      call.count = list.ends.back();
      call.in = call.out = nullptr;
    }
    if (auto done = run(call); !done) return done;
  }
  return {};
}

Result<void> Communicator::start_messages(const Batch& batch, std::vector<StartedCall>& started) {
  for (const BatchedCall& call : batch.calls) {
    if (!call.is_message) continue;
    auto operation = start(call.message);
    if (!operation) return operation.error();
    started.push_back({std::move(*operation), call.source});
  }
  return {};
}

Result<void> Communicator::await(const std::vector<StartedCall>& started) {
  Result<void> first;
  for (const auto& [operation, source] : started) {
    auto done = wait(*operation);
    if (done && source != nullptr) *source = operation->message.source;
    if (!done && first) first = std::move(done);
  }
  return first;
}

Result<void> Communicator::end_batch() {
  const auto batch = take_batch();
  if (!batch) return batch.error();
  if (!*batch) return {};
  std::vector<StartedCall> messages;
  auto done = start_messages(**batch, messages);
  if (done) done = run_merged(**batch, [this](const Call& call) { return collective(call); });
  // Other ranks may be in the batch: whatever the error is, it ends the communicator, before this
  // rank waits for messages of ranks that wait for it.
  if (!done) done = finish(std::move(done));
  auto received = await(messages);
  return done ? finish(std::move(received)) : done;
}

Result<std::vector<Communicator::StartedCall>> Communicator::start_batch() {
  const auto batch = take_batch();
  if (!batch) return batch.error();
  std::vector<StartedCall> started;
  if (!*batch) return started;
  auto begun = start_messages(**batch, started);
  if (begun) {
    begun = run_merged(**batch, [&](const Call& call) -> Result<void> {
      auto operation = start(call);
      if (!operation) return operation.error();
      started.push_back({std::move(*operation), nullptr});
      return {};
    });
  }
  if (begun) return started;
  begun = finish(begun);
  (void)await(started);  // their buffers are the caller's again
  return begun.error();
}

Result<void> Communicator::fail_batch_end(const Error& why) {
  if (batch_) (void)refused_in_batch(why);
  const auto taken = take_batch();
  return taken ? why : taken.error();
}

}  // namespace dlaunch
