// The C API over Communicator: no exception leaves it, and every error becomes a code and a text.
#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <climits>

#include "dlaunch/ring.h"
#include "ring/communicator.h"
#include "ring/device/device_copy.h"
#include "ring/membership.h"
#include "ring/next_round.h"

using dlaunch::Call;
using dlaunch::Collective;
using dlaunch::Communicator;
using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Message;
using dlaunch::Result;

struct dl_comm {
  // Of an elastic process; told before and destroyed after the communicator of the round.
  std::unique_ptr<dlaunch::Membership> membership;
  dlaunch::JobView job;  // what does not change from round to round
  std::unique_ptr<dlaunch::Communicator> impl;
  // Of dl_alloc(); stays when `impl` is another one after dl_rejoin().
  std::map<void*, std::shared_ptr<void>> memory;
  // Likewise: the stream of dl_set_stream(), and what dl_copy() works with.
  void* stream = nullptr;
  bool stream_ordered = false;
  std::unique_ptr<dlaunch::DeviceCopier> copier;
  ~dl_comm() {
    if (membership) membership->on_over({});
  }
  // Each thread's last failure.
  std::mutex mutex;
  std::map<std::thread::id, std::string> errors;
};

struct dl_request {
  std::shared_ptr<dlaunch::Operation> operation;
  dl_comm* comm;
  int* source;
};

namespace {

// A group, which does not rejoin.
dl_comm* comm_of(std::unique_ptr<dlaunch::Communicator> group) {
  auto* const comm = new dl_comm;
  comm->job.op_timeout = group->op_timeout();
  comm->impl = std::move(group);
  return comm;
}

// Of dl_init, which has no communicator to keep it in.
thread_local std::string t_init_error;

dl_result code_of(Errc code) {
  switch (code) {
    case Errc::usage:
      return DL_ERR_INVALID;
    case Errc::io:
    case Errc::not_found:
      return DL_ERR_IO;
    case Errc::timeout:
      return DL_ERR_TIMEOUT;
    case Errc::protocol:
      return DL_ERR_PROTOCOL;
    case Errc::auth:
      return DL_ERR_AUTH;
    case Errc::peer_lost:
      return DL_ERR_PEER_LOST;
    case Errc::mismatch:
      return DL_ERR_MISMATCH;
    case Errc::aborted:
      return DL_ERR_ABORTED;
    case Errc::unsupported:
      return DL_ERR_UNSUPPORTED;
  }
  return DL_ERR_PROTOCOL;
}

void keep_error(dl_comm* comm, const std::string& what) {
  if (comm == nullptr) {
    t_init_error = what;
    return;
  }
  const std::lock_guard lock(comm->mutex);
  comm->errors[std::this_thread::get_id()] = what;
}

// Runs body(), which returns a Result<void>; third-party exceptions (memory) end here.
template <class Body>
dl_result guarded(dl_comm* comm, Body body) noexcept {
  try {
    const Result<void> done = body();
    if (done) return DL_OK;
    if (comm != nullptr && comm->impl) comm->impl->wind_up();
    keep_error(comm, done.error().what);
    return code_of(done.error().code);
  } catch (const std::exception&) {
    return DL_ERR_IO;
  }
}

// body(communicator), where there is one.
template <class Body>
dl_result with(dl_comm* comm, Body body) {
  return guarded(comm, [&]() -> Result<void> {
    if (comm == nullptr) return Error{.code = Errc::usage, .what = "the communicator is null"};
    return body(*comm->impl);
  });
}

// What each collective's plain form does with its call, and what its twin in the background does.
struct Now {
  dl_comm* comm;
  Result<void> operator()(Communicator& impl, const Call& call) const {
    return impl.collective(call);
  }
  Result<void> operator()(Communicator& impl, Message message, int* source = nullptr) const {
    auto done = impl.transfer(message);
    if (done && source != nullptr) *source = message.source;
    return done;
  }
};
struct Later {
  dl_comm* comm;
  dl_request** request;
  template <class What>
  Result<void> operator()(Communicator& impl, const What& what, int* source = nullptr) const {
    if (request == nullptr) return Error{.code = Errc::usage, .what = "request is null"};
    *request = nullptr;
    auto started = impl.start(what);
    if (!started) return started.error();
    *request = new dl_request{std::move(*started), comm, source};
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
    if (counts == nullptr) return Error{.code = Errc::usage, .what = "counts is null"};
    call.counts = counts;
    call.count = counts[impl.rank()];
    return how(impl, call);
  });
}

template <class How>
dl_result with_list(const How& how, Call call, size_t tensors, const void* const* in,
                    void* const* out, const size_t* counts) {
  return with(how.comm, [&](Communicator& impl) -> Result<void> {
    auto list = dlaunch::make_tensor_list(tensors, in, out, counts);
    if (!list) return list.error();
    call.list = &*list;
    call.count = list->ends.empty() ? 0 : list->ends.back();
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
// Of dl_recv, which takes a rank only.
int known(int peer) { return peer == dlaunch::kAnySource ? INT_MIN : peer; }

dl_result no_requests(const std::string& function) {
  keep_error(nullptr, function + ": the array of requests is null");
  return DL_ERR_INVALID;
}

dl_result end_of(dl_request*& request) {
  const std::unique_ptr<dl_request> owned(std::exchange(request, nullptr));
  return with(owned->comm, [&](Communicator& impl) {
    auto outcome = impl.wait(*owned->operation);
    if (outcome && owned->source != nullptr) *owned->source = owned->operation->message.source;
    return outcome;
  });
}

}  // namespace

void dl_options_init(dl_options* options) {
  *options = dl_options{};
  options->struct_size = sizeof(dl_options);
  options->rank = options->size = -1;
  options->init_timeout_s = options->op_timeout_s = -1;
}

dl_result dl_init(const char* url, const dl_options* options, dl_comm** comm) {
  return guarded(nullptr, [&]() -> Result<void> {
    if (comm == nullptr) return Error{.code = Errc::usage, .what = "dl_init: comm is null"};
    *comm = nullptr;
    auto job = dlaunch::resolve_job(url, options, dlaunch::process_environment());
    if (!job) return job.error();
    auto made = std::make_unique<dl_comm>();
    made->job = *job;
    if (job->agent.empty()) {
      auto joined = Communicator::join(*job);
      if (!joined) return joined.error();
      made->impl = std::move(*joined);
    } else {
      auto membership = dlaunch::Membership::connect(job->agent, job->worker);
      if (!membership) return membership.error();
      made->membership = std::move(*membership);
      if (auto ok = dlaunch::join_next_round(*made->membership, *job, 0, made->impl); !ok)
        return ok;
    }
    *comm = made.release();
    return {};
  });
}

dl_result dl_rejoin(dl_comm* comm, uint64_t version) {
  return guarded(comm, [&]() -> Result<void> {
    if (comm == nullptr) return Error{.code = Errc::usage, .what = "the communicator is null"};
    if (!comm->membership) {
      return Error{.code = Errc::unsupported,
                   .what =
                       "rejoin: no launcher forms rounds for this process: set "
                       "options.elastic, and start it with dlaunch"};
    }
    auto joined = dlaunch::join_next_round(*comm->membership, comm->job, version, comm->impl);
    if (joined && comm->stream != nullptr) joined = comm->impl->set_stream(comm->stream);
    if (joined && comm->stream_ordered) joined = comm->impl->set_stream_ordered(true);
    return joined;
  });
}

void dl_progress(dl_comm* comm, uint64_t version) {
  if (comm != nullptr && comm->membership) comm->membership->progress(version);
}

uint64_t dl_round(const dl_comm* comm) { return comm->impl ? comm->impl->round() : 0; }

int dl_round_over(const dl_comm* comm) {
  return comm->membership && comm->membership->over() ? 1 : 0;
}

void dl_finalize(dl_comm* comm) {
  if (comm == nullptr) return;
  // In a forked child it is the parent's, and its memory ends with the child.
  if (comm->impl->forked()) return;
  delete comm;
}

void dl_abort(dl_comm* comm) {
  (void)guarded(comm, [&]() -> Result<void> {
    if (comm != nullptr) comm->impl->abort();
    return {};
  });
}

int dl_rank(const dl_comm* comm) { return comm == nullptr ? -1 : comm->impl->rank(); }
int dl_size(const dl_comm* comm) { return comm == nullptr ? -1 : comm->impl->size(); }
const char* dl_transport(const dl_comm* comm) {
  return comm == nullptr ? "" : comm->impl->transport();
}

dl_result dl_all_reduce(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                        dl_op op) {
  return collective(Now{comm}, {Collective::all_reduce, in, out, count, dtype, op});
}

dl_result dl_iall_reduce(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                         dl_op op, dl_request** request) {
  return collective(Later{comm, request}, {Collective::all_reduce, in, out, count, dtype, op});
}

dl_result dl_all_reduce_list(dl_comm* comm, size_t tensors, const void* const* in, void* const* out,
                             const size_t* counts, dl_dtype dtype, dl_op op) {
  return with_list(Now{comm}, {Collective::all_reduce, nullptr, nullptr, 0, dtype, op}, tensors, in,
                   out, counts);
}

dl_result dl_iall_reduce_list(dl_comm* comm, size_t tensors, const void* const* in,
                              void* const* out, const size_t* counts, dl_dtype dtype, dl_op op,
                              dl_request** request) {
  return with_list(Later{comm, request}, {Collective::all_reduce, nullptr, nullptr, 0, dtype, op},
                   tensors, in, out, counts);
}

dl_result dl_reduce(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                    dl_op op, int root) {
  return collective(Now{comm}, {Collective::reduce, in, out, count, dtype, op, root});
}

dl_result dl_ireduce(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                     dl_op op, int root, dl_request** request) {
  return collective(Later{comm, request}, {Collective::reduce, in, out, count, dtype, op, root});
}

dl_result dl_reduce_scatter(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                            dl_op op) {
  return collective(Now{comm}, {Collective::reduce_scatter, in, out, count, dtype, op});
}

dl_result dl_ireduce_scatter(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                             dl_op op, dl_request** request) {
  return collective(Later{comm, request}, {Collective::reduce_scatter, in, out, count, dtype, op});
}

dl_result dl_all_gather(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype) {
  return collective(Now{comm}, {Collective::all_gather, in, out, count, dtype});
}

dl_result dl_iall_gather(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                         dl_request** request) {
  return collective(Later{comm, request}, {Collective::all_gather, in, out, count, dtype});
}

dl_result dl_all_gather_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                          dl_dtype dtype) {
  return with_counts(Now{comm}, {Collective::all_gather, in, out, 0, dtype}, counts);
}

dl_result dl_iall_gather_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                           dl_dtype dtype, dl_request** request) {
  return with_counts(Later{comm, request}, {Collective::all_gather, in, out, 0, dtype}, counts);
}

dl_result dl_gather(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                    int root) {
  return collective(Now{comm}, {Collective::gather, in, out, count, dtype, DL_SUM, root});
}

dl_result dl_igather(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                     int root, dl_request** request) {
  return collective(Later{comm, request},
                    {Collective::gather, in, out, count, dtype, DL_SUM, root});
}

dl_result dl_gather_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                      dl_dtype dtype, int root) {
  return with_counts(Now{comm}, {Collective::gather, in, out, 0, dtype, DL_SUM, root}, counts);
}

dl_result dl_igather_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                       dl_dtype dtype, int root, dl_request** request) {
  return with_counts(Later{comm, request}, {Collective::gather, in, out, 0, dtype, DL_SUM, root},
                     counts);
}

dl_result dl_scatter(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                     int root) {
  return collective(Now{comm}, {Collective::scatter, in, out, count, dtype, DL_SUM, root});
}

dl_result dl_iscatter(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                      int root, dl_request** request) {
  return collective(Later{comm, request},
                    {Collective::scatter, in, out, count, dtype, DL_SUM, root});
}

dl_result dl_all_to_all(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype) {
  return collective(Now{comm}, {Collective::all_to_all, in, out, count, dtype});
}

dl_result dl_iall_to_all(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                         dl_request** request) {
  return collective(Later{comm, request}, {Collective::all_to_all, in, out, count, dtype});
}

dl_result dl_broadcast(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int root) {
  return collective(Now{comm}, {Collective::broadcast, buf, buf, count, dtype, DL_SUM, root});
}

dl_result dl_ibroadcast(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int root,
                        dl_request** request) {
  return collective(Later{comm, request},
                    {Collective::broadcast, buf, buf, count, dtype, DL_SUM, root});
}

dl_result dl_broadcast_list(dl_comm* comm, size_t tensors, void* const* bufs, const size_t* counts,
                            dl_dtype dtype, int root) {
  return with_list(Now{comm}, {Collective::broadcast, nullptr, nullptr, 0, dtype, DL_SUM, root},
                   tensors, bufs, bufs, counts);
}

dl_result dl_ibroadcast_list(dl_comm* comm, size_t tensors, void* const* bufs, const size_t* counts,
                             dl_dtype dtype, int root, dl_request** request) {
  return with_list(Later{comm, request},
                   {Collective::broadcast, nullptr, nullptr, 0, dtype, DL_SUM, root}, tensors, bufs,
                   bufs, counts);
}

dl_result dl_barrier(dl_comm* comm) { return collective(Now{comm}, {Collective::barrier}); }

dl_result dl_ibarrier(dl_comm* comm, dl_request** request) {
  return collective(Later{comm, request}, {Collective::barrier});
}

dl_result dl_send(dl_comm* comm, const void* buf, size_t count, dl_dtype dtype, int peer, int tag) {
  return transfer(Now{comm}, to(buf, count, dtype, peer, tag));
}

dl_result dl_isend(dl_comm* comm, const void* buf, size_t count, dl_dtype dtype, int peer, int tag,
                   dl_request** request) {
  return transfer(Later{comm, request}, to(buf, count, dtype, peer, tag));
}

dl_result dl_recv(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int peer, int tag) {
  return transfer(Now{comm}, from(buf, count, dtype, known(peer), tag));
}

dl_result dl_irecv(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int peer, int tag,
                   dl_request** request) {
  return transfer(Later{comm, request}, from(buf, count, dtype, known(peer), tag));
}

dl_result dl_recv_any(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int tag,
                      int* source) {
  return transfer(Now{comm}, from(buf, count, dtype, dlaunch::kAnySource, tag), source);
}

dl_result dl_irecv_any(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int tag, int* source,
                       dl_request** request) {
  return transfer(Later{comm, request}, from(buf, count, dtype, dlaunch::kAnySource, tag), source);
}

dl_result dl_wait(dl_request** request) {
  if (request == nullptr || *request == nullptr) return DL_OK;
  return end_of(*request);
}

dl_result dl_test(dl_request** request, int* done) {
  const bool over = request == nullptr || *request == nullptr || (*request)->operation->done();
  if (done != nullptr) *done = over;
  return over ? dl_wait(request) : DL_OK;
}

dl_result dl_wait_any(size_t n, dl_request** requests, size_t* index) {
  if (index != nullptr) *index = n;
  if (requests == nullptr && n > 0) return no_requests("dl_wait_any");
  std::vector<const dlaunch::Operation*> operations;
  dl_comm* comm = nullptr;
  for (size_t i = 0; i < n; ++i) {
    if (requests[i] == nullptr) continue;
    comm = requests[i]->comm;
    operations.push_back(requests[i]->operation.get());
  }
  if (comm == nullptr) return DL_OK;
  comm->impl->wait_any(operations);
  for (size_t i = 0; i < n; ++i) {
    if (requests[i] == nullptr || !requests[i]->operation->done()) continue;
    if (index != nullptr) *index = i;
    return end_of(requests[i]);
  }
  return DL_OK;
}

dl_result dl_wait_all(size_t n, dl_request** requests) {
  if (requests == nullptr && n > 0) return no_requests("dl_wait_all");
  dl_result first = DL_OK;
  for (size_t i = 0; i < n; ++i) {
    const dl_result result = dl_wait(&requests[i]);
    if (first == DL_OK) first = result;
  }
  return first;
}

dl_result dl_explain(dl_comm* comm, const char* collective, size_t count, dl_dtype dtype, dl_op op,
                     int root, char* text, size_t size) {
  return with(comm, [&](Communicator& impl) -> Result<void> {
    const auto named = dlaunch::collective_named(collective == nullptr ? "" : collective);
    if (!named || text == nullptr || size == 0) {
      return Error{.code = Errc::usage, .what = "dl_explain: no such collective, or no text"};
    }
    const auto words = impl.explain(
        {.collective = *named, .count = count, .dtype = dtype, .op = op, .root = root});
    if (!words) return words.error();
    text[words->copy(text, size - 1)] = '\0';
    return {};
  });
}

dl_result dl_set_stream(dl_comm* comm, void* stream) {
  return with(comm, [&](Communicator& impl) {
    auto set = impl.set_stream(stream);
    if (set) comm->stream = stream;
    return set;
  });
}

dl_result dl_set_stream_ordered(dl_comm* comm, int on) {
  return with(comm, [&](Communicator& impl) {
    auto set = impl.set_stream_ordered(on != 0);
    if (set) comm->stream_ordered = on != 0;
    return set;
  });
}

dl_result dl_sync(dl_comm* comm) {
  return with(comm, [](Communicator& impl) { return impl.sync(); });
}

dl_result dl_set_backend(dl_comm* comm, const char* backend) {
  return with(comm, [&](Communicator& impl) {
    auto set = impl.set_backend(backend != nullptr ? backend : "");
    if (set) comm->job.use_nccl = std::string_view(backend) == "auto";
    return set;
  });
}

int dl_gpu_of(const void* memory) { return dlaunch::device_of(memory); }

const char* dl_gpu_transport(const dl_comm* comm) {
  return comm == nullptr ? "" : comm->impl->gpu_transport();
}

dl_result dl_copy(dl_comm* comm, void* to, const void* from, size_t bytes) {
  return with(comm, [&](Communicator&) -> Result<void> {
    if (bytes == 0) return {};
    if (to == nullptr || from == nullptr) {
      return Error{.code = Errc::usage, .what = "copy: a buffer is null"};
    }
    const int from_gpu = dlaunch::device_of(from), to_gpu = dlaunch::device_of(to);
    if (from_gpu < 0 && to_gpu < 0) {
      std::memmove(to, from, bytes);
      return {};
    }
    if (from_gpu >= 0 && to_gpu >= 0) {
      return Error{.code = Errc::usage, .what = "copy: both buffers are on a GPU"};
    }
    if (!comm->copier) comm->copier = dlaunch::make_device_copier();
    using To = dlaunch::DeviceCopier::To;
    return comm->copier->copy(to, from, bytes, to_gpu >= 0 ? To::device : To::host,
                              std::max(from_gpu, to_gpu), comm->stream,
                              dlaunch::deadline_after(dlaunch::steady_now(), comm->job.op_timeout));
  });
}

dl_result dl_split(dl_comm* comm, int color, int key, dl_comm** group) {
  return with(comm, [&](Communicator& impl) -> Result<void> {
    if (group == nullptr) return Error{.code = Errc::usage, .what = "dl_split: group is null"};
    *group = nullptr;
    auto made = impl.split(color, key);
    if (!made) return made.error();
    if (*made == nullptr) return {};
    *group = comm_of(std::move(*made));
    return {};
  });
}

dl_result dl_group(dl_comm* comm, const int* ranks, int size, int tag, double op_timeout_s,
                   dl_comm** group) {
  return with(comm, [&](Communicator& impl) -> Result<void> {
    if (group == nullptr || ranks == nullptr || size < 1) {
      return Error{.code = Errc::usage, .what = "dl_group: no group, or no ranks"};
    }
    *group = nullptr;
    auto made = impl.group({ranks, ranks + size}, tag, op_timeout_s);
    if (!made) return made.error();
    *group = comm_of(std::move(*made));
    return {};
  });
}

dl_result dl_alloc(dl_comm* comm, size_t bytes, void** memory) {
  return with(comm, [&](Communicator& impl) -> Result<void> {
    if (memory == nullptr) return Error{.code = Errc::usage, .what = "dl_alloc: memory is null"};
    *memory = nullptr;
    auto made = impl.allocate(bytes);
    if (!made) return made.error();
    *memory = made->get();
    comm->memory.emplace(*memory, std::move(*made));
    return {};
  });
}

dl_result dl_free(dl_comm* comm, void* memory) {
  return with(comm, [&](Communicator& impl) -> Result<void> {
    if (memory == nullptr) return {};
    if (!comm->memory.contains(memory)) {
      return Error{.code = Errc::usage, .what = "dl_free: this is no memory of dl_alloc()"};
    }
    impl.release(memory);
    comm->memory.erase(memory);
    return {};
  });
}

const char* dl_last_error(const dl_comm* given) {
  if (given == nullptr) return t_init_error.c_str();
  auto* const comm = const_cast<dl_comm*>(given);
  const std::lock_guard lock(comm->mutex);
  const auto error = comm->errors.find(std::this_thread::get_id());
  return error == comm->errors.end() ? "" : error->second.c_str();
}

int dl_peer_lost(const dl_comm* comm) { return comm == nullptr ? -1 : comm->impl->peer_lost(); }

size_t dl_dtype_bytes(dl_dtype dtype) { return dlaunch::dtype_bytes(dtype); }

const char* dl_result_name(dl_result result) {
  static constexpr const char* kNames[] = {
      "DL_OK",           "DL_ERR_INVALID", "DL_ERR_IO",   "DL_ERR_TIMEOUT",     "DL_ERR_PEER_LOST",
      "DL_ERR_MISMATCH", "DL_ERR_ABORTED", "DL_ERR_AUTH", "DL_ERR_UNSUPPORTED", "DL_ERR_PROTOCOL"};
  return result >= DL_OK && result <= DL_ERR_PROTOCOL ? kNames[result] : "DL_ERR_UNKNOWN";
}

const char* dl_version(void) { return DL_VERSION; }
