// The C API over Communicator: no exception leaves it, and every error becomes a code and a text.
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "dlaunch/ring.h"
#include "ring/communicator.h"

using dlaunch::Call;
using dlaunch::Collective;
using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Result;

struct dl_comm {
  std::unique_ptr<dlaunch::Communicator> impl;
  // Each thread's last failure.
  std::mutex mutex;
  std::map<std::thread::id, std::string> errors;
};

namespace {

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
    keep_error(comm, done.error().what);
    return code_of(done.error().code);
  } catch (const std::exception&) {
    return DL_ERR_IO;
  }
}

dl_result collective(dl_comm* comm, const Call& call) {
  return guarded(comm, [&]() -> Result<void> {
    if (comm == nullptr) return Error{.code = Errc::usage, .what = "the communicator is null"};
    return comm->impl->collective(call);
  });
}

dl_result with_counts(dl_comm* comm, Call call, const size_t* counts) {
  return guarded(comm, [&]() -> Result<void> {
    if (comm == nullptr) return Error{.code = Errc::usage, .what = "the communicator is null"};
    if (counts == nullptr) return Error{.code = Errc::usage, .what = "counts is null"};
    call.counts = counts;
    call.count = counts[comm->impl->rank()];
    return comm->impl->collective(call);
  });
}

dl_result with_list(dl_comm* comm, Call call, size_t tensors, const void* const* in,
                    void* const* out, const size_t* counts) {
  return guarded(comm, [&]() -> Result<void> {
    if (comm == nullptr) return Error{.code = Errc::usage, .what = "the communicator is null"};
    auto list = dlaunch::make_tensor_list(tensors, in, out, counts);
    if (!list) return list.error();
    call.list = &*list;
    call.count = list->ends.empty() ? 0 : list->ends.back();
    return comm->impl->collective(call);
  });
}

dl_result transfer(dl_comm* comm, const dlaunch::Message& message) {
  return guarded(comm, [&]() -> Result<void> {
    if (comm == nullptr) return Error{.code = Errc::usage, .what = "the communicator is null"};
    return comm->impl->transfer(message);
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
    auto joined = dlaunch::Communicator::join(*job);
    if (!joined) return joined.error();
    *comm = new dl_comm;
    (*comm)->impl = std::move(*joined);
    return {};
  });
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
  return collective(comm, {Collective::all_reduce, in, out, count, dtype, op});
}

dl_result dl_reduce_scatter(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                            dl_op op) {
  return collective(comm, {Collective::reduce_scatter, in, out, count, dtype, op});
}

dl_result dl_all_gather(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype) {
  return collective(comm, {Collective::all_gather, in, out, count, dtype});
}

dl_result dl_broadcast(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int root) {
  return collective(comm, {Collective::broadcast, buf, buf, count, dtype, DL_SUM, root});
}

dl_result dl_reduce(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                    dl_op op, int root) {
  return collective(comm, {Collective::reduce, in, out, count, dtype, op, root});
}

dl_result dl_all_gather_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                          dl_dtype dtype) {
  return with_counts(comm, {Collective::all_gather, in, out, 0, dtype}, counts);
}

dl_result dl_gather(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                    int root) {
  return collective(comm, {Collective::gather, in, out, count, dtype, DL_SUM, root});
}

dl_result dl_gather_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                      dl_dtype dtype, int root) {
  return with_counts(comm, {Collective::gather, in, out, 0, dtype, DL_SUM, root}, counts);
}

dl_result dl_scatter(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                     int root) {
  return collective(comm, {Collective::scatter, in, out, count, dtype, DL_SUM, root});
}

dl_result dl_all_to_all(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype) {
  return collective(comm, {Collective::all_to_all, in, out, count, dtype});
}

dl_result dl_all_reduce_list(dl_comm* comm, size_t tensors, const void* const* in, void* const* out,
                             const size_t* counts, dl_dtype dtype, dl_op op) {
  return with_list(comm, {Collective::all_reduce, nullptr, nullptr, 0, dtype, op}, tensors, in, out,
                   counts);
}

dl_result dl_broadcast_list(dl_comm* comm, size_t tensors, void* const* bufs, const size_t* counts,
                            dl_dtype dtype, int root) {
  return with_list(comm, {Collective::broadcast, nullptr, nullptr, 0, dtype, DL_SUM, root}, tensors,
                   bufs, bufs, counts);
}

dl_result dl_barrier(dl_comm* comm) { return collective(comm, {Collective::barrier}); }

dl_result dl_send(dl_comm* comm, const void* buf, size_t count, dl_dtype dtype, int peer, int tag) {
  return transfer(
      comm,
      {.send = buf, .is_send = true, .count = count, .dtype = dtype, .peer = peer, .tag = tag});
}

dl_result dl_recv(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int peer, int tag) {
  return transfer(comm, {.recv = buf, .count = count, .dtype = dtype, .peer = peer, .tag = tag});
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
