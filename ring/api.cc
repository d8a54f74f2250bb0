// The C API over Communicator, except the collectives. No exception leaves it.
#include "ring/api.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/log.h"

using dlaunch::Communicator;
using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::guarded;
using dlaunch::Result;
using dlaunch::with;

namespace {

// The dl_comm of a group, which does not rejoin.
dl_comm* comm_of(std::unique_ptr<dlaunch::Communicator> group) {
  auto* const comm = new dl_comm;
  comm->job.op_timeout = group->op_timeout();
  comm->impl = std::move(group);
  return comm;
}

bool is_forked(const dl_comm* comm) { return comm->impl && comm->impl->forked(); }

Result<void> add_op(const char* maker, const dlaunch::ProgramOp& made, bool commutes, dl_op* op) {
  const auto added = dlaunch::add_program_op(made, commutes);
  if (!added) {
    return Error{.code = added.error().code,
                 .what = std::string(maker) + ": " + added.error().what};
  }
  *op = *added;
  return {};
}

// For dl_init, which has no communicator to keep the text in.
thread_local std::string t_init_error;

}  // namespace

namespace dlaunch {

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
    case Errc::corrupt:
      return DL_ERR_CORRUPT;
  }
  return DL_ERR_PROTOCOL;
}

std::uint64_t thread_number() {
  static std::atomic<std::uint64_t> last = 0;
  thread_local const std::uint64_t number = ++last;
  return number;
}

void keep_error(dl_comm* comm, const std::string& what) noexcept try {
  if (comm == nullptr) {
    t_init_error = what;
    return;
  }
  const std::lock_guard lock(comm->mutex);
  comm->errors[thread_number()] = what;
} catch (const std::bad_alloc&) {
  // The failure left no memory for the text.
}

}  // namespace dlaunch

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
    static std::once_flag warned;
    if (!job->warning.empty()) {
      std::call_once(warned, [&] { dlaunch::log_warn("dl_init: {}", job->warning); });
    }
    auto made = std::make_unique<dl_comm>();
    made->job = *job;
    if (job->agent.empty()) {
      auto joined = Communicator::make(*job);
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
    if (is_forked(comm)) return Communicator::forked_error();
    if (comm->impl->is_group()) {
      return Error{
          .code = Errc::unsupported,
          .what = "rejoin: this is a group; rejoin the communicator from which it was made"};
    }
    if (!comm->membership) {
      return Error{.code = Errc::unsupported,
                   .what =
                       "rejoin: no launcher forms rounds for this process: set "
                       "options.elastic, and start it with dlaunch"};
    }
    ++comm->rejoined;
    auto joined = dlaunch::join_next_round(*comm->membership, comm->job, version, comm->impl);
    if (joined && comm->stream != nullptr) joined = comm->impl->set_stream(comm->stream);
    if (joined && comm->stream_ordered) joined = comm->impl->set_stream_ordered(true);
    if (joined && comm->op_limit) comm->impl->set_op_timeout(*comm->op_limit);
    return joined;
  });
}

void dl_progress(dl_comm* comm, uint64_t version) {
  if (comm == nullptr || !comm->membership || is_forked(comm)) return;
  comm->membership->progress(version);
}

uint64_t dl_round(const dl_comm* comm) {
  return comm == nullptr || !comm->impl ? 0 : comm->impl->round();
}

int dl_round_over(const dl_comm* comm) {
  return comm != nullptr && comm->membership && comm->membership->over() ? 1 : 0;
}

void dl_finalize(dl_comm* comm) {
  if (comm == nullptr) return;
  // In a forked child it is the parent's, and its memory ends with the child.
  if (is_forked(comm)) return;
  (void)guarded(comm, [&]() -> Result<void> {
    if (comm->impl) comm->impl->settle();
    return {};
  });
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

dl_result dl_op_create(dl_op_function* function, int commutes, void* context, dl_op* op) {
  return guarded(nullptr, [&]() -> Result<void> {
    if (function == nullptr || op == nullptr) {
      return Error{.code = Errc::usage, .what = "dl_op_create: function or op is null"};
    }
    return add_op("dl_op_create", {.function = function, .context = context}, commutes != 0, op);
  });
}

dl_result dl_op_create_premul_sum(double factor, dl_op* op) {
  return guarded(nullptr, [&]() -> Result<void> {
    if (op == nullptr) {
      return Error{.code = Errc::usage, .what = "dl_op_create_premul_sum: op is null"};
    }
    return add_op("dl_op_create_premul_sum", {.factor = factor}, true, op);
  });
}

dl_result dl_op_free(dl_op op) {
  return guarded(nullptr, [&]() -> Result<void> {
    if (dlaunch::remove_program_op(op)) return {};
    return Error{.code = Errc::usage, .what = "dl_op_free: the program has not made this op"};
  });
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

void dl_spent(dl_activity what, double seconds) {
  if (!(seconds > 0)) return;
  const auto time = dlaunch::duration_of(seconds);
  what == DL_GC ? dlaunch::SpanRing::spent_in_gc(time) : dlaunch::SpanRing::spent_on_input(time);
}

dl_result dl_set_op_timeout(dl_comm* comm, double timeout_s) {
  return with(comm, [&](Communicator& impl) -> Result<void> {
    const auto limit = dlaunch::operation_limit(timeout_s, comm->job.op_timeout);
    if (!limit) return limit.error();
    comm->op_limit = *limit;
    impl.set_op_timeout(*limit);
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
  return with(comm, [&](Communicator& impl) -> Result<void> {
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
                              dlaunch::deadline_after(dlaunch::steady_now(), impl.op_timeout()));
  });
}

dl_result dl_split(dl_comm* comm, int color, int key, dl_comm** group) {
  if (group != nullptr) *group = nullptr;
  return with(comm, [&](Communicator& impl) -> Result<void> {
    if (group == nullptr) {
      return impl.refuse({.code = Errc::usage, .what = "dl_split: group is null"});
    }
    auto made = impl.split(color, key);
    if (!made) return made.error();
    if (*made == nullptr) return {};
    *group = comm_of(std::move(*made));
    return {};
  });
}

dl_result dl_group(dl_comm* comm, const int* ranks, int size, int tag, double op_timeout_s,
                   dl_comm** group) {
  if (group != nullptr) *group = nullptr;
  return with(comm, [&](Communicator& impl) -> Result<void> {
    if (group == nullptr || ranks == nullptr || size < 1) {
      return Error{.code = Errc::usage, .what = "dl_group: no group, or no ranks"};
    }
    auto made = impl.group({ranks, ranks + size}, tag, op_timeout_s);
    if (!made) return made.error();
    *group = comm_of(std::move(*made));
    return {};
  });
}

dl_result dl_alloc(dl_comm* comm, size_t bytes, void** memory) {
  if (memory != nullptr) *memory = nullptr;
  return with(comm, [&](Communicator& impl) -> Result<void> {
    if (memory == nullptr) {
      return impl.refuse({.code = Errc::usage, .what = "dl_alloc: memory is null"});
    }
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
  const auto error = comm->errors.find(dlaunch::thread_number());
  return error == comm->errors.end() ? "" : error->second.c_str();
}

int dl_peer_lost(const dl_comm* comm) { return comm == nullptr ? -1 : comm->impl->peer_lost(); }

size_t dl_dtype_bytes(dl_dtype dtype) { return dlaunch::dtype_bytes(dtype); }

const char* dl_result_name(dl_result result) {
  static constexpr const char* kNames[] = {
      "DL_OK",           "DL_ERR_INVALID", "DL_ERR_IO",   "DL_ERR_TIMEOUT",     "DL_ERR_PEER_LOST",
      "DL_ERR_MISMATCH", "DL_ERR_ABORTED", "DL_ERR_AUTH", "DL_ERR_UNSUPPORTED", "DL_ERR_PROTOCOL",
      "DL_ERR_CORRUPT"};
  return result >= DL_OK && result <= DL_ERR_CORRUPT ? kNames[result] : "DL_ERR_UNKNOWN";
}

const char* dl_version(void) { return DL_VERSION; }
