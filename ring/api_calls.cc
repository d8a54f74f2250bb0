// The C API's collectives and messages, and the requests of background calls.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include <climits>

#include "base/even_share.h"
#include "ring/api.h"

using dlaunch::Call;
using dlaunch::Collective;
using dlaunch::Communicator;
using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Message;
using dlaunch::Result;
using dlaunch::with;

struct dl_request {
  std::vector<Communicator::StartedCall> calls;  // more than one for a batch
  dl_comm* comm;
  std::uint64_t rejoined;  // dl_comm::rejoined when it was started
  // In a forked child no thread carries the operation out, not even in a world of one.
  const pid_t process = ::getpid();
  bool forked() const { return process != ::getpid(); }
  // dl_wait() would not wait.
  bool over() const {
    return forked() || std::all_of(calls.begin(), calls.end(),
                                   [](const auto& call) { return call.operation->done(); });
  }
};

struct dl_persistent {
  std::unique_ptr<const dlaunch::KeptCall> call;
  dl_comm* comm;
  std::uint64_t rejoined;  // dl_comm::rejoined when it was made
};

namespace {

// How each collective's plain form handles its call, and how its background twin does.
struct Now {
  dl_comm* comm;
  Result<void> operator()(Communicator& impl, const Call& call) const {
    return impl.in_batch() ? impl.add_to_batch(call) : impl.collective(call);
  }
  Result<void> operator()(Communicator& impl, Message message, int* source = nullptr) const {
    if (impl.in_batch()) return impl.add_to_batch(message, source);
    auto done = impl.transfer(message);
    if (done && source != nullptr) *source = message.source;
    return done;
  }
};
struct Later {
  // A refused call leaves a null handle.
  Later(dl_comm* of, dl_request** to) : comm(of), request(to) {
    if (request != nullptr) *request = nullptr;
  }
  dl_comm* const comm;
  dl_request** const request;
  template <class What>
  Result<void> operator()(Communicator& impl, const What& what, int* source = nullptr) const {
    if (auto ok = can_begin(impl); !ok) return ok;
    auto started = impl.start(what);
    if (!started) return started.error();
    *request = new dl_request{{{std::move(*started), source}}, comm, comm->rejoined};
    return {};
  }
  // All calls of the batch that ends.
  Result<void> operator()(Communicator& impl) const {
    if (request == nullptr) return impl.fail_batch_end(null_request());
    auto started = impl.start_batch();
    if (!started) return started.error();
    if (!started->empty()) *request = new dl_request{std::move(*started), comm, comm->rejoined};
    return {};
  }

 private:
  static Error null_request() { return {.code = Errc::usage, .what = "request is null"}; }
  Result<void> can_begin(Communicator& impl) const {
    return request == nullptr ? impl.refuse(null_request()) : impl.refuse_in_batch();
  }
};

struct Often {
  Often(dl_comm* of, dl_persistent** to) : comm(of), made(to) {
    if (made != nullptr) *made = nullptr;
  }
  dl_comm* const comm;
  dl_persistent** const made;
  Result<void> operator()(Communicator& impl, const Call& call) const {
    if (made == nullptr) return Error{.code = Errc::usage, .what = "call is null"};
    auto prepared = impl.prepare(call);
    if (!prepared) return prepared.error();
    *made = new dl_persistent{std::move(*prepared), comm, comm->rejoined};
    return {};
  }
};

template <class How>
dl_result collective(const How& how, const Call& call) {
  return with(how.comm, [&](Communicator& impl) { return how(impl, call); });
}

template <class How>
dl_result with_counts(const How& how, Call call, const size_t* counts) {
  return with(how.comm, [&](Communicator& impl) -> Result<void> {
    if (counts == nullptr) return impl.refuse({.code = Errc::usage, .what = "counts is null"});
    call.counts = counts;
    call.count = counts[impl.rank()];
    return how(impl, call);
  });
}

template <class How>
dl_result with_splits(const How& how, Call call, const size_t* in_counts,
                      const size_t* out_counts) {
  return with(how.comm, [&](Communicator& impl) -> Result<void> {
    if (in_counts == nullptr || out_counts == nullptr) {
      return impl.refuse({.code = Errc::usage, .what = "counts is null"});
    }
    const auto own = static_cast<std::size_t>(impl.rank());
    if (in_counts[own] != out_counts[own]) {
      return impl.refuse(
          {.code = Errc::usage,
           .what =
               "all_to_all_v: this rank gives itself another number of elements than it takes"});
    }
    const dlaunch::Splits splits{.rank = impl.rank(),
                                 .given = dlaunch::parts_of(in_counts, impl.size()),
                                 .taken = dlaunch::parts_of(out_counts, impl.size()),
                                 .from = {}};
    call.splits = &splits;
    call.count = splits.average();
    return how(impl, call);
  });
}

template <class How>
dl_result with_list(const How& how, Call call, size_t tensors, const void* const* in,
                    void* const* out, const size_t* counts) {
  return with(how.comm, [&](Communicator& impl) -> Result<void> {
    auto list = dlaunch::make_tensor_list(tensors, in, out, counts);
    if (!list) return impl.refuse(list.error());
    call.list = &*list;
    call.layout = dlaunch::layout_of(*list);
    call.count = list->ends.empty() ? 0 : list->ends.back();
    return how(impl, call);
  });
}

bool are_shards(int shards) { return shards >= 1 && shards <= DL_MOST_SHARDS; }

template <class How>
dl_result with_shards(const How& how, Call call, int shards, const void* const* in) {
  return with(how.comm, [&](Communicator& impl) -> Result<void> {
    const auto wrong = [&](const std::string& what) {
      return impl.refuse({.code = Errc::usage, .what = "all_reduce_shards: " + what});
    };
    if (!are_shards(shards)) return wrong("shards is not 1 to " + std::to_string(DL_MOST_SHARDS));
    const auto own = dlaunch::shard_range(shards, impl.rank(), impl.size());
    const auto some = static_cast<std::size_t>(own.last - own.first);
    if (some > 0 && in == nullptr && call.count > 0) return wrong("in is null");
    dlaunch::ShardInput input{.shards = shards, .in = {}};
    input.in.resize(some);
    if (in != nullptr) std::copy_n(in, some, input.in.begin());
    call.shards = &input;
    call.layout = dlaunch::layout_of(input, call.count, call.op);
    return how(impl, call);
  });
}

template <class How>
dl_result with_codec(const How& how, const float* in, float* out, size_t count, dl_codec codec,
                     float* residual, std::uint64_t common = 0) {
  return with(how.comm, [&](Communicator& impl) -> Result<void> {
    if (codec < DL_CODEC_NONE || codec > DL_CODEC_TOPK) {
      return impl.refuse(
          {.code = Errc::usage, .what = "compressed_average: codec is not a dl_codec"});
    }
    const dlaunch::Compression compression{static_cast<dlaunch::WireCodec>(codec), residual,
                                           common};
    Call call{Collective::compressed_average, in, out, count, DL_FLOAT32, DL_AVG};
    call.compression = &compression;
    call.layout = dlaunch::layout_of(compression, count);
    return how(impl, call);
  });
}

template <class How>
dl_result transfer(const How& how, const Message& message, int* source = nullptr) {
  return with(how.comm, [&](Communicator& impl) { return how(impl, message, source); });
}

Message to(const void* buf, size_t count, dl_dtype dtype, int peer, int tag) {
  return {.send = buf, .is_send = true, .count = count, .dtype = dtype, .peer = peer, .tag = tag};
}
Message from(void* buf, size_t count, dl_dtype dtype, int peer, int tag) {
  return {.recv = buf, .count = count, .dtype = dtype, .peer = peer, .tag = tag};
}
// For dl_recv, which takes only a rank.
int known(int peer) { return peer == dlaunch::kAnySource ? INT_MIN : peer; }

// Runs body(communicator) for a call that belongs to its present round.
template <class Body>
dl_result with_persistent(const dl_persistent* call, Body body) {
  return with(call == nullptr ? nullptr : call->comm, [&](Communicator& impl) -> Result<void> {
    if (call->rejoined == call->comm->rejoined) return body(impl);
    return impl.refuse(
        {.code = Errc::usage,
         .what = "the persistent call is of an earlier round: make one in each round"});
  });
}

// For a call without a communicator to keep its error in.
dl_result refused(const std::string& why) {
  dlaunch::keep_error(nullptr, why);
  return DL_ERR_INVALID;
}

// The outcome of an operation after the end of its round; does not affect the next round.
Result<void> outcome_in_old_round(const dlaunch::Operation& operation) {
  if (!operation.outcome() || operation.staged.device == nullptr) return operation.outcome();
  return Error{.code = Errc::peer_lost,
               .what = "recv: its round was over before the message was copied to the GPU"};
}

Result<void> outcome_of(Communicator& impl, const Communicator::StartedCall& call, bool old_round) {
  const auto& [operation, source] = call;
  auto outcome = old_round ? outcome_in_old_round(*operation) : impl.wait(*operation);
  if (outcome && source != nullptr) *source = operation->message.source;
  return outcome;
}

dl_result end_of(dl_request*& request) {
  const std::unique_ptr<dl_request> owned(std::exchange(request, nullptr));
  return with(owned->comm, [&](Communicator& impl) -> Result<void> {
    if (owned->forked()) return Communicator::forked_error();
    const bool old_round = owned->rejoined != owned->comm->rejoined;
    Result<void> first;
    for (const auto& call : owned->calls) {
      auto outcome = outcome_of(impl, call, old_round);
      if (!outcome && first) first = std::move(outcome);
    }
    return first;
  });
}

dlaunch::FlightRecorder::Blocked blocked_by(const dl_request& request) {
  return dlaunch::FlightRecorder::Blocked(request.comm->impl->flight());
}

// Returns n if none is over.
size_t first_over(size_t n, dl_request* const* requests) {
  const auto* const first =
      std::find_if(requests, requests + n, [](auto* r) { return r != nullptr && r->over(); });
  return static_cast<size_t>(first - requests);
}

}  // namespace

dl_result dl_all_reduce(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                        dl_op op) {
  return collective(Now{comm}, {Collective::all_reduce, in, out, count, dtype, op});
}

dl_result dl_iall_reduce(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                         dl_op op, dl_request** request) {
  return collective(Later(comm, request), {Collective::all_reduce, in, out, count, dtype, op});
}

dl_result dl_all_reduce_list(dl_comm* comm, size_t tensors, const void* const* in, void* const* out,
                             const size_t* counts, dl_dtype dtype, dl_op op) {
  return with_list(Now{comm}, {Collective::all_reduce, nullptr, nullptr, 0, dtype, op}, tensors, in,
                   out, counts);
}

dl_result dl_iall_reduce_list(dl_comm* comm, size_t tensors, const void* const* in,
                              void* const* out, const size_t* counts, dl_dtype dtype, dl_op op,
                              dl_request** request) {
  return with_list(Later(comm, request), {Collective::all_reduce, nullptr, nullptr, 0, dtype, op},
                   tensors, in, out, counts);
}

dl_result dl_all_reduce_shards(dl_comm* comm, int shards, const void* const* in, void* out,
                               size_t count, dl_dtype dtype, dl_op op) {
  return with_shards(Now{comm}, {Collective::all_reduce_shards, nullptr, out, count, dtype, op},
                     shards, in);
}

dl_result dl_iall_reduce_shards(dl_comm* comm, int shards, const void* const* in, void* out,
                                size_t count, dl_dtype dtype, dl_op op, dl_request** request) {
  return with_shards(Later(comm, request),
                     {Collective::all_reduce_shards, nullptr, out, count, dtype, op}, shards, in);
}

void dl_some_options_init(dl_some_options* options) {
  *options = dl_some_options{};
  options->struct_size = sizeof(dl_some_options);
  options->max_behind = 16;
}

dl_result dl_all_reduce_some(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                             dl_op op, const dl_some_options* options, int* given, dl_fate* fate) {
  return with(comm, [&](Communicator& impl) -> Result<void> {
    if (options == nullptr || options->struct_size < sizeof(dl_some_options) ||
        !(options->wait_s >= 0)) {
      return impl.refuse(
          {.code = Errc::usage,
           .what = "all_reduce_some: no options of dl_some_options_init(), or wait_s is negative"});
    }
    if (options->late != DL_LATE_DROP && options->late != DL_LATE_CARRY) {
      return impl.refuse(
          {.code = Errc::usage,
           .what = "all_reduce_some: late is neither DL_LATE_DROP nor DL_LATE_CARRY"});
    }
    const dlaunch::SomeTerms terms{.need = options->need,
                                   .wait = dlaunch::duration_of(options->wait_s),
                                   .carries = options->late == DL_LATE_CARRY,
                                   .max_behind = options->max_behind,
                                   .slot = options->slot,
                                   .given = given,
                                   .fate = fate};
    Call call{Collective::all_reduce_some, in, out, count, dtype, op};
    call.some = &terms;
    call.layout = dlaunch::layout_of(terms, count);
    return Now{comm}(impl, call);
  });
}

int dl_some_behind(const dl_comm* comm) { return comm == nullptr ? 0 : comm->impl->some_behind(); }

dl_result dl_shard_range(int shards, int rank, int size, int* first, int* last) {
  if (!are_shards(shards) || rank < 0 || rank >= size || first == nullptr || last == nullptr) {
    return DL_ERR_INVALID;
  }
  const auto own = dlaunch::shard_range(shards, rank, size);
  *first = own.first;
  *last = own.last;
  return DL_OK;
}

dl_result dl_compressed_average(dl_comm* comm, const float* in, float* out, size_t count,
                                dl_codec codec, float* residual) {
  return with_codec(Now{comm}, in, out, count, codec, residual);
}

dl_result dl_icompressed_average(dl_comm* comm, const float* in, float* out, size_t count,
                                 dl_codec codec, float* residual, dl_request** request) {
  return with_codec(Later(comm, request), in, out, count, codec, residual);
}

dl_result dlaunch::average_in_common(dl_comm* comm, std::span<float> values, dl_codec codec,
                                     float* residual, std::uint64_t common, dl_request** request) {
  float* const at = values.data();
  return request == nullptr
             ? with_codec(Now{comm}, at, at, values.size(), codec, residual, common)
             : with_codec(Later(comm, request), at, at, values.size(), codec, residual, common);
}

dl_result dl_scan(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                  dl_op op) {
  return collective(Now{comm}, {Collective::scan, in, out, count, dtype, op});
}

dl_result dl_iscan(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype, dl_op op,
                   dl_request** request) {
  return collective(Later(comm, request), {Collective::scan, in, out, count, dtype, op});
}

dl_result dl_exscan(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                    dl_op op) {
  return collective(Now{comm}, {Collective::exscan, in, out, count, dtype, op});
}

dl_result dl_iexscan(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                     dl_op op, dl_request** request) {
  return collective(Later(comm, request), {Collective::exscan, in, out, count, dtype, op});
}

dl_result dl_reduce(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                    dl_op op, int root) {
  return collective(Now{comm}, {Collective::reduce, in, out, count, dtype, op, root});
}

dl_result dl_ireduce(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                     dl_op op, int root, dl_request** request) {
  return collective(Later(comm, request), {Collective::reduce, in, out, count, dtype, op, root});
}

dl_result dl_reduce_scatter(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                            dl_op op) {
  return collective(Now{comm}, {Collective::reduce_scatter, in, out, count, dtype, op});
}

dl_result dl_ireduce_scatter(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                             dl_op op, dl_request** request) {
  return collective(Later(comm, request), {Collective::reduce_scatter, in, out, count, dtype, op});
}

dl_result dl_reduce_scatter_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                              dl_dtype dtype, dl_op op) {
  return with_counts(Now{comm}, {Collective::reduce_scatter, in, out, 0, dtype, op}, counts);
}

dl_result dl_ireduce_scatter_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                               dl_dtype dtype, dl_op op, dl_request** request) {
  return with_counts(Later(comm, request), {Collective::reduce_scatter, in, out, 0, dtype, op},
                     counts);
}

dl_result dl_all_gather(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype) {
  return collective(Now{comm}, {Collective::all_gather, in, out, count, dtype});
}

dl_result dl_iall_gather(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                         dl_request** request) {
  return collective(Later(comm, request), {Collective::all_gather, in, out, count, dtype});
}

dl_result dl_all_gather_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                          dl_dtype dtype) {
  return with_counts(Now{comm}, {Collective::all_gather, in, out, 0, dtype}, counts);
}

dl_result dl_iall_gather_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                           dl_dtype dtype, dl_request** request) {
  return with_counts(Later(comm, request), {Collective::all_gather, in, out, 0, dtype}, counts);
}

dl_result dl_gather(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                    int root) {
  return collective(Now{comm}, {Collective::gather, in, out, count, dtype, DL_SUM, root});
}

dl_result dl_igather(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                     int root, dl_request** request) {
  return collective(Later(comm, request),
                    {Collective::gather, in, out, count, dtype, DL_SUM, root});
}

dl_result dl_gather_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                      dl_dtype dtype, int root) {
  return with_counts(Now{comm}, {Collective::gather, in, out, 0, dtype, DL_SUM, root}, counts);
}

dl_result dl_igather_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                       dl_dtype dtype, int root, dl_request** request) {
  return with_counts(Later(comm, request), {Collective::gather, in, out, 0, dtype, DL_SUM, root},
                     counts);
}

dl_result dl_scatter(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                     int root) {
  return collective(Now{comm}, {Collective::scatter, in, out, count, dtype, DL_SUM, root});
}

dl_result dl_iscatter(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                      int root, dl_request** request) {
  return collective(Later(comm, request),
                    {Collective::scatter, in, out, count, dtype, DL_SUM, root});
}

dl_result dl_scatter_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                       dl_dtype dtype, int root) {
  return with_counts(Now{comm}, {Collective::scatter, in, out, 0, dtype, DL_SUM, root}, counts);
}

dl_result dl_iscatter_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                        dl_dtype dtype, int root, dl_request** request) {
  return with_counts(Later(comm, request), {Collective::scatter, in, out, 0, dtype, DL_SUM, root},
                     counts);
}

dl_result dl_all_to_all(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype) {
  return collective(Now{comm}, {Collective::all_to_all, in, out, count, dtype});
}

dl_result dl_iall_to_all(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                         dl_request** request) {
  return collective(Later(comm, request), {Collective::all_to_all, in, out, count, dtype});
}

dl_result dl_all_to_all_v(dl_comm* comm, const void* in, const size_t* in_counts, void* out,
                          const size_t* out_counts, dl_dtype dtype) {
  return with_splits(Now{comm}, {Collective::all_to_all, in, out, 0, dtype}, in_counts, out_counts);
}

dl_result dl_iall_to_all_v(dl_comm* comm, const void* in, const size_t* in_counts, void* out,
                           const size_t* out_counts, dl_dtype dtype, dl_request** request) {
  return with_splits(Later(comm, request), {Collective::all_to_all, in, out, 0, dtype}, in_counts,
                     out_counts);
}

dl_result dl_broadcast(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int root) {
  return collective(Now{comm}, {Collective::broadcast, buf, buf, count, dtype, DL_SUM, root});
}

dl_result dl_ibroadcast(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int root,
                        dl_request** request) {
  return collective(Later(comm, request),
                    {Collective::broadcast, buf, buf, count, dtype, DL_SUM, root});
}

dl_result dl_broadcast_list(dl_comm* comm, size_t tensors, void* const* bufs, const size_t* counts,
                            dl_dtype dtype, int root) {
  return with_list(Now{comm}, {Collective::broadcast, nullptr, nullptr, 0, dtype, DL_SUM, root},
                   tensors, bufs, bufs, counts);
}

dl_result dl_ibroadcast_list(dl_comm* comm, size_t tensors, void* const* bufs, const size_t* counts,
                             dl_dtype dtype, int root, dl_request** request) {
  return with_list(Later(comm, request),
                   {Collective::broadcast, nullptr, nullptr, 0, dtype, DL_SUM, root}, tensors, bufs,
                   bufs, counts);
}

dl_result dl_barrier(dl_comm* comm) { return collective(Now{comm}, {Collective::barrier}); }

dl_result dl_verify(dl_comm* comm) {
  return with(comm, [](Communicator& impl) { return impl.compare_now(); });
}

dl_result dl_ibarrier(dl_comm* comm, dl_request** request) {
  return collective(Later(comm, request), {Collective::barrier});
}

dl_result dl_send(dl_comm* comm, const void* buf, size_t count, dl_dtype dtype, int peer, int tag) {
  return transfer(Now{comm}, to(buf, count, dtype, peer, tag));
}

dl_result dl_isend(dl_comm* comm, const void* buf, size_t count, dl_dtype dtype, int peer, int tag,
                   dl_request** request) {
  return transfer(Later(comm, request), to(buf, count, dtype, peer, tag));
}

dl_result dl_recv(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int peer, int tag) {
  return transfer(Now{comm}, from(buf, count, dtype, known(peer), tag));
}

dl_result dl_irecv(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int peer, int tag,
                   dl_request** request) {
  return transfer(Later(comm, request), from(buf, count, dtype, known(peer), tag));
}

dl_result dl_recv_any(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int tag,
                      int* source) {
  return transfer(Now{comm}, from(buf, count, dtype, dlaunch::kAnySource, tag), source);
}

dl_result dl_irecv_any(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int tag, int* source,
                       dl_request** request) {
  return transfer(Later(comm, request), from(buf, count, dtype, dlaunch::kAnySource, tag), source);
}

dl_result dl_all_reduce_init(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                             dl_op op, dl_persistent** call) {
  return collective(Often(comm, call), {Collective::all_reduce, in, out, count, dtype, op});
}

dl_result dl_reduce_init(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                         dl_op op, int root, dl_persistent** call) {
  return collective(Often(comm, call), {Collective::reduce, in, out, count, dtype, op, root});
}

dl_result dl_reduce_scatter_init(dl_comm* comm, const void* in, void* out, size_t count,
                                 dl_dtype dtype, dl_op op, dl_persistent** call) {
  return collective(Often(comm, call), {Collective::reduce_scatter, in, out, count, dtype, op});
}

dl_result dl_all_gather_init(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                             dl_persistent** call) {
  return collective(Often(comm, call), {Collective::all_gather, in, out, count, dtype});
}

dl_result dl_all_to_all_init(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                             dl_persistent** call) {
  return collective(Often(comm, call), {Collective::all_to_all, in, out, count, dtype});
}

dl_result dl_broadcast_init(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int root,
                            dl_persistent** call) {
  return collective(Often(comm, call),
                    {Collective::broadcast, buf, buf, count, dtype, DL_SUM, root});
}

dl_result dl_barrier_init(dl_comm* comm, dl_persistent** call) {
  return collective(Often(comm, call), {Collective::barrier});
}

dl_result dl_persistent_run(dl_persistent* call) {
  return with_persistent(call, [&](Communicator& impl) {
    return impl.in_batch() ? impl.add_to_batch(call->call->call) : impl.repeat(*call->call);
  });
}

dl_result dl_persistent_start(dl_persistent* call, dl_request** request) {
  return with_persistent(
      call, [&](Communicator& impl) { return Later(call->comm, request)(impl, call->call->call); });
}

void dl_persistent_free(dl_persistent* call) { delete call; }

dl_result dl_batch_start(dl_comm* comm) {
  return with(comm, [](Communicator& impl) { return impl.begin_batch(); });
}

dl_result dl_batch_end(dl_comm* comm) {
  return with(comm, [](Communicator& impl) { return impl.end_batch(); });
}

dl_result dl_ibatch_end(dl_comm* comm, dl_request** request) {
  return with(comm, Later(comm, request));
}

void dl_batch_drop(dl_comm* comm) {
  if (comm != nullptr && comm->impl) comm->impl->drop_batch();
}

dl_result dl_wait(dl_request** request) {
  if (request == nullptr || *request == nullptr) return DL_OK;
  return end_of(*request);
}

dl_result dl_test(dl_request** request, int* done) {
  const bool over = request == nullptr || *request == nullptr || (*request)->over();
  if (done != nullptr) *done = over;
  return over ? dl_wait(request) : DL_OK;
}

dl_result dl_wait_for(dl_request** request, double timeout_s, int* done) {
  if (timeout_s < 0) {
    if (done != nullptr) *done = 1;
    return dl_wait(request);
  }
  if (request != nullptr && *request != nullptr && timeout_s > 0) {
    const auto deadline =
        dlaunch::deadline_after(dlaunch::steady_now(), dlaunch::duration_of(timeout_s));
    const auto blocked = blocked_by(**request);
    dlaunch::Completions::wait_until(deadline, [&] { return (*request)->over(); });
  }
  return dl_test(request, done);
}

dl_result dl_wait_any(size_t n, dl_request** requests, size_t* index) {
  if (index != nullptr) *index = n;
  if (requests == nullptr && n > 0) return refused("dl_wait_any: the array of requests is null");
  size_t over = first_over(n, requests);
  if (over == n) {
    if (std::all_of(requests, requests + n, [](auto* r) { return r == nullptr; })) return DL_OK;
    const auto blocked =
        blocked_by(**std::find_if(requests, requests + n, [](auto* r) { return r != nullptr; }));
    dlaunch::Completions::wait([&] { return (over = first_over(n, requests)) < n; });
  }
  if (index != nullptr) *index = over;
  return end_of(requests[over]);
}

dl_result dl_wait_all(size_t n, dl_request** requests) {
  if (requests == nullptr && n > 0) return refused("dl_wait_all: the array of requests is null");
  dl_result first = DL_OK;
  for (size_t i = 0; i < n; ++i) {
    const dl_result result = dl_wait(&requests[i]);
    if (first == DL_OK) first = result;
  }
  return first;
}
