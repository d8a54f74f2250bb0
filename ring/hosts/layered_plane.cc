#include "ring/hosts/layered_plane.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ring/call/background.h"
#include "ring/call/list_packer.h"
#include "ring/hosts/encoded_slice.h"
#include "ring/kernels/copy.h"
#include "ring/kernels/reduce.h"
#include "ring/stream/stream_errors.h"

namespace dlaunch {
namespace {

constexpr std::size_t kSmallBytes = 32 << 10;
// For all ranks of a host together. Large enough to hide the hosts' latency, small enough that the
// first and the last block, which overlap with nothing, do not matter.
constexpr std::size_t kLayeredBlock = 4 << 20;
constexpr std::size_t kBroadcastBytes = 1 << 20;

const char* at(const void* base, std::size_t element, dl_dtype dtype) {
  return static_cast<const char*>(base) + element * dtype_bytes(dtype);
}
char* at(void* base, std::size_t element, dl_dtype dtype) {
  return static_cast<char*>(base) + element * dtype_bytes(dtype);
}

class LayeredPlane final : public Plane {
 public:
  LayeredPlane(int rank, const RankGroups& hosts, std::unique_ptr<Plane> local,
               std::unique_ptr<Plane> between, AbortFlag& abort, WireCodec codec,
               CallRoll call_roll)
      : hosts_(hosts),
        place_(hosts.place_of(rank)),
        row_(hosts.group_of(rank)),
        column_(hosts.column(place_)),
        local_(std::move(local)),
        between_(std::move(between)),
        abort_(abort),
        codec_(codec),
        call_roll_(std::move(call_roll)) {}

  const char* name() const override { return local_ ? "shm+tcp" : "tcp"; }
  Result<void> run(const Call& call) override;
  std::string explain(const Call& call) const override;
  void close_in_child() override { between_->close_in_child(); }
  // A host's ranks need not be neighbours.
  bool keeps_order(const Call& call) const override {
    return !sums_in_layers(call) && between_->keeps_order(call);
  }
  bool passes_on(const Call& call) const override {
    const bool in_layers =
        sums_in_layers(call) || (call.collective == Collective::broadcast && local_);
    return in_layers || between_->passes_on(call);
  }

 private:
  std::size_t locals() const { return hosts_.ranks_of(0).size(); }
  int ranks() const { return hosts_.groups() * static_cast<int>(locals()); }

  // Steps of a call.
  Call step(const Call& of, Collective collective, const void* in, void* out, std::size_t count,
            int root = -1) const;
  Result<void> on_host(Call call);
  Result<void> over_sockets(Call call, const std::vector<int>* members);
  void leave_out_sockets() { ++between_seq_; }

  Result<void> all_reduce(const Call& call);
  Result<void> all_reduce_small(const Call& call);
  Result<void> all_reduce_blocks(const Call& call);
  // A part of an all_reduce.
  struct Block {
    std::size_t from = 0, count = 0;
    std::size_t slot = 0;
    void* slice = nullptr;
    bool encoded = false;
    std::shared_ptr<Operation> exchange;  // while it is under way
  };
  Result<void> begin(const Call& call, Block& block);
  Result<void> turn(const Call& call, Block& block);
  Result<void> push(const Call& exchange, Block& block);
  Result<void> finish(Block& block);
  Result<void> end(const Call& call, Block& block);
  Result<void> broadcast(const Call& call);
  Call move(const Call& of, Collective collective, EncodedSlice& encoded) const;
  bool encodes(const Call& call) const;
  bool sums_in_layers(const Call& call) const {
    return call.collective == Collective::all_reduce && (local_ || encodes(call));
  }

  const RankGroups hosts_;
  const int place_;  // of this rank among those of its host
  const int row_;    // its host
  const std::vector<int> column_;
  const std::unique_ptr<Plane> local_, between_;
  AbortFlag& abort_;
  const WireCodec codec_;
  const CallRoll call_roll_;

  std::uint64_t local_seq_ = 0, between_seq_ = 0;
  static constexpr std::size_t kBlocks = 3;  // at once
  std::vector<std::byte> slices_[kBlocks];
  EncodedSlice encoded_[kBlocks];
  ListPacker packer_;
  Completions completions_;
  // Exchanges one slice between hosts while this rank's own thread works on others.
  Background exchanger_{[this](OperationQueue& queue) {
    while (auto operation = queue.take()) {
      const Call& call = operation->call;
      operation->finish(without_exceptions_in(call, [&] { return over_sockets(call, &column_); }));
    }
  }};
};

Result<void> LayeredPlane::run(const Call& call) {
  if (call.list != nullptr) {
    return packer_.run(call, [this](const Call& packed) { return run(packed); });
  }
  if (sums_in_layers(call) && call.count > 0) return all_reduce(call);
  if (call.collective == Collective::broadcast && call.count > 0 && local_) return broadcast(call);
  Call flat = call;
  flat.step_of = &users_call(call);
  return over_sockets(flat, nullptr);
}

std::string LayeredPlane::explain(const Call& call) const {
  const bool sums = sums_in_layers(call);
  if (!sums && (call.collective != Collective::broadcast || !local_))
    return between_->explain(call);
  const auto hosts = fmt::format("{} hosts x {} ranks: ", hosts_.groups(), locals());
  if (!sums) return hosts + "broadcast between hosts (tcp), then on each (shm)";
  const std::size_t bytes = call.count * dtype_bytes(call.dtype);
  if (bytes <= kSmallBytes) {
    return hosts +
           "reduce on each (shm), all_reduce between their first ranks (tcp), broadcast (shm)";
  }
  const std::string codec =
      encodes(call) ? fmt::format(", {}", word_of(kWireCodecWords, codec_)) : "";
  return hosts + fmt::format(
                     "{} blocks: reduce_scatter on each (shm), all_reduce of slices between "
                     "hosts (tcp{}), all_gather (shm)",
                     (bytes + kLayeredBlock - 1) / kLayeredBlock, codec);
}

// -- Steps

// An average is divided once, at the end. The sum of float16 over many ranks may be out of its
// range, so the average over each host comes first, then the average of these; all hosts are equal.
// (The communicator composes averages of 8-bit floats of other calls.)
bool divides_at_end(const Call& call) { return call.op == DL_AVG && !sums_may_overflow(call); }

Call LayeredPlane::step(const Call& of, Collective collective, const void* in, void* out,
                        std::size_t count, int root) const {
  return {.collective = collective,
          .in = in,
          .out = out,
          .count = count,
          .dtype = of.dtype,
          .op = divides_at_end(of) ? DL_SUM : of.op,
          .root = root,
          .seq = 0,
          .deadline = of.deadline,
          .step_of = &users_call(of)};
}

Result<void> LayeredPlane::on_host(Call call) {
  if (!local_) return {};
  call.seq = ++local_seq_;
  auto done = local_->run(call);
  if (done || done.error().code != Errc::timeout || !call_roll_) return done;
  // A missing rank of this host may be waiting for another host.
  const RollCall roll = call_roll_(users_call(call).seq);
  if (abort_.raised()) return abort_.error();
  const auto error = timed_out_by_roll(roll, call, waited_in(call, steady_now()), ranks());
  return error ? *error : done;
}

// members null: all ranks. All ranks count alike, even those that skip a step.
Result<void> LayeredPlane::over_sockets(Call call, const std::vector<int>* members) {
  call.seq = ++between_seq_;
  call.members = members;
  return between_->run(call);
}

// -- all_reduce

Result<void> LayeredPlane::all_reduce(const Call& call) {
  const std::size_t bytes = call.count * dtype_bytes(call.dtype);
  const bool whole_slices = call.count >= locals();
  auto done =
      bytes <= kSmallBytes || !whole_slices ? all_reduce_small(call) : all_reduce_blocks(call);
  if (!done || !divides_at_end(call)) return done;
  const void* const operand[] = {call.out};
  reduce(operand, call.out, call.count, call.dtype, DL_AVG, ranks());
  return done;
}

Result<void> LayeredPlane::all_reduce_small(const Call& call) {
  const std::size_t bytes = call.count * dtype_bytes(call.dtype);
  if (!local_) {
    return over_sockets(step(call, Collective::all_reduce, call.in, call.out, call.count), nullptr);
  }
  auto& sum = slices_[0];
  sum.resize(std::max(sum.size(), bytes));
  auto done = on_host(step(call, Collective::reduce, call.in, sum.data(), call.count, 0));
  if (!done) return done;
  if (place_ == 0) {
    auto exchanged = over_sockets(
        step(call, Collective::all_reduce, sum.data(), call.out, call.count), &column_);
    if (!exchanged) return exchanged;
  } else {
    leave_out_sockets();
  }
  return on_host(step(call, Collective::broadcast, call.out, call.out, call.count, 0));
}

// Elements that do not fill a whole slice for each rank of a host go the small way.
Result<void> LayeredPlane::all_reduce_blocks(const Call& call) {
  const std::size_t n = locals(), element = dtype_bytes(call.dtype);
  const std::size_t sliced = call.count / n * n;
  const std::size_t most = std::max<std::size_t>(kLayeredBlock / element / n, 1) * n;
  // One block is exchanged while the next is prepared. Encoded blocks cross twice, and are added up
  // in between while another one crosses.
  Block blocks[kBlocks];
  const std::size_t count = (sliced + most - 1) / most, lag = encodes(call) ? 2 : 1;
  const auto advance = [&](std::size_t i) -> Result<void> {
    Result<void> done;
    if (i < count) {
      Block& block = blocks[i % kBlocks];
      block = {.from = i * most, .count = std::min(most, sliced - i * most), .slot = i % kBlocks};
      done = begin(call, block);
    }
    if (done && i >= 1 && i <= count) done = turn(call, blocks[(i - 1) % kBlocks]);
    if (done && i >= lag) done = end(call, blocks[(i - lag) % kBlocks]);
    return done;
  };
  Result<void> done;
  for (std::size_t i = 0; done && i < count + lag; ++i) {
    done = without_exceptions_in(call, [&] { return advance(i); });
  }
  if (!done) {
    // Pending exchanges must end before their memory is reused.
    abort_.raise(done.error());
    for (auto& block : blocks) (void)finish(block);
    return done;
  }
  if (sliced == call.count) return done;
  Call rest = call;
  rest.in = at(call.in, sliced, call.dtype);
  rest.out = at(call.out, sliced, call.dtype);
  rest.count = call.count - sliced;
  rest.step_of = &users_call(call);
  return all_reduce_small(rest);
}

// Sums over this host, and then exchanges with others in the background.
Result<void> LayeredPlane::begin(const Call& call, Block& block) {
  const std::size_t element = dtype_bytes(call.dtype), count = block.count / locals();
  const void* const in = at(call.in, block.from, call.dtype);
  // Without shared memory the slice is the block, at its place in the user's output.
  block.slice = at(call.out, block.from, call.dtype);
  if (local_) {
    auto& memory = slices_[block.slot];
    memory.resize(std::max(memory.size(), count * element));
    block.slice = memory.data();
    auto summed = on_host(step(call, Collective::reduce_scatter, in, block.slice, count));
    if (!summed) return summed;
  } else if (in != block.slice) {
    copy_cached(block.slice, in, count * element);
  }
  const Call exchange = step(call, Collective::all_reduce, block.slice, block.slice, count);
  block.encoded = encodes(exchange);
  if (!block.encoded) return push(exchange, block);
  auto& encoded = encoded_[block.slot];
  encoded.encode(codec_, static_cast<const float*>(block.slice), count * element / sizeof(float),
                 column_.size());
  return push(move(call, Collective::all_to_all, encoded), block);
}

// All hosts' values of this host's part are here: sends its sums to all.
Result<void> LayeredPlane::turn(const Call& call, Block& block) {
  if (!block.encoded) return {};
  if (auto exchanged = finish(block); !exchanged) return exchanged;
  auto& encoded = encoded_[block.slot];
  encoded.add_up(static_cast<std::size_t>(row_));
  return push(move(call, Collective::all_gather, encoded), block);
}

Result<void> LayeredPlane::push(const Call& exchange, Block& block) {
  auto operation = std::make_shared<Operation>(completions_);
  operation->call = exchange;
  if (auto pushed = exchanger_.push(operation); !pushed) {
    operation->finish(pushed);
    return pushed;
  }
  block.exchange = std::move(operation);
  return {};
}

Result<void> LayeredPlane::finish(Block& block) {
  if (!block.exchange) return {};
  const auto exchange = std::exchange(block.exchange, nullptr);
  Completions::wait([&] { return exchange->done(); });
  return exchange->outcome();
}

// The block has come back from the other hosts: shares it with the ranks of this host.
Result<void> LayeredPlane::end(const Call& call, Block& block) {
  if (!block.exchange) return {};
  if (auto exchanged = finish(block); !exchanged) return exchanged;
  if (block.encoded) encoded_[block.slot].decode(static_cast<float*>(block.slice));
  return on_host(step(call, Collective::all_gather, block.slice,
                      at(call.out, block.from, call.dtype), block.count / locals()));
}

// -- Between hosts

bool LayeredPlane::encodes(const Call& call) const {
  return codec_ != WireCodec::none && has_codecs(call.dtype) &&
         (call.op == DL_SUM || call.op == DL_AVG) &&
         call.count * dtype_bytes(call.dtype) > kSmallBytes;
}

Call LayeredPlane::move(const Call& of, Collective collective, EncodedSlice& encoded) const {
  Call call = step(of, collective, encoded.given(), encoded.taken(), encoded.bytes());
  call.dtype = DL_UINT8;
  return call;
}

// -- broadcast

Result<void> LayeredPlane::broadcast(const Call& call) {
  const int roots_place = hosts_.place_of(call.root);
  const std::size_t block = std::max<std::size_t>(kBroadcastBytes / dtype_bytes(call.dtype), 1);
  for (std::size_t from = 0; from < call.count; from += block) {
    void* const buffer = at(call.out, from, call.dtype);
    const std::size_t count = std::min(block, call.count - from);
    if (place_ == roots_place) {
      auto sent = over_sockets(step(call, Collective::broadcast, buffer, buffer, count, call.root),
                               &column_);
      if (!sent) return sent;
    } else {
      leave_out_sockets();
    }
    auto shared = on_host(step(call, Collective::broadcast, buffer, buffer, count, roots_place));
    if (!shared) return shared;
  }
  return {};
}

}  // namespace

std::unique_ptr<Plane> make_layered_plane(int rank, const RankGroups& hosts,
                                          std::unique_ptr<Plane> local,
                                          std::unique_ptr<Plane> between, AbortFlag& abort,
                                          WireCodec codec, CallRoll call_roll) {
  return std::make_unique<LayeredPlane>(rank, hosts, std::move(local), std::move(between), abort,
                                        codec, std::move(call_roll));
}

}  // namespace dlaunch
