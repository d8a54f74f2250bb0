// NCCL's profiler plug-in: NCCL loads it where NCCL_PROFILER_PLUGIN has its path, and calls it from
// the threads of the program and from its own. It records the operations of a worker of dlaunch.
// Elsewhere it asks NCCL for no events. Each call returns success, whatever happens.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <string>

#include "base/contract.h"
#include "base/nccl_record.h"
#include "base/unique_fd.h"
#include "ring/profiler/nccl_abi.h"
#include "ring/profiler/recorder.h"
#include "ring/profiler/words.h"

namespace dlaunch {
namespace {

using namespace nccl_abi;

TimePoint now() { return std::chrono::steady_clock::now(); }

std::string_view text(const char* words) { return words != nullptr ? words : ""; }

int rank_of_worker() {
  const std::string_view given = text(std::getenv("RANK"));
  int rank = -1;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), rank);
  return error == std::errc() && end == given.data() + given.size() ? rank : -1;
}

// The record at that path, made new. Null: a living process has one there, as the children of a
// worker have its rank; or the file cannot be made.
NcclFile* open_record(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || ::ftruncate(fd.get(), 0) != 0) {
    return nullptr;
  }
  // posix_fallocate finds a full disk here; otherwise a SIGBUS would follow later.
  if (::posix_fallocate(fd.get(), 0, kNcclBytes) != 0) return nullptr;
  void* const memory = ::mmap(nullptr, kNcclBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return nullptr;
  static_cast<void>(fd.release());  // it keeps the lock
  return new (memory) NcclFile;
}

// Of this process. NCCL unloads and loads the plug-in again as communicators go and come, so
// nothing of this is ever destroyed (the library stays: it is linked with nodelete).
struct State {
  std::mutex mutex;
  bool opened = false;
  std::optional<NcclRecorder> recorder;
  std::uint64_t mask = 0;
};
State& state() {
  static auto* const all = new State;
  return *all;
}

void open_once(State& own) {
  if (own.opened) return;
  own.opened = true;
  const char* const folder = std::getenv(contract::kRoundDir);
  const int rank = rank_of_worker();
  if (folder == nullptr || *folder == '\0' || rank < 0) return;
  NcclFile* const file = open_record(nccl_file(folder, rank));
  if (file == nullptr) return;
  const bool kernels = text(std::getenv(contract::kNcclKernels)) == "1";
  own.recorder.emplace(*file, kernels);
  own.mask = kCollective | kMessage | (kernels ? kKernelChannel : 0);
}

// A context is the number of a communicator, from 1. A handle is a ticket and what it stands for.
enum Stands : std::uintptr_t { kNothing = 1, kOperation = 2, kChannel = 3 };
void* handle_of(NcclRecorder::Ticket ticket, Stands stands) {
  return reinterpret_cast<void*>(ticket << 2 | stands);
}
Stands stands_for(void* handle) { return Stands(reinterpret_cast<std::uintptr_t>(handle) & 3); }
NcclRecorder::Ticket ticket_of(void* handle) {
  return reinterpret_cast<std::uintptr_t>(handle) >> 2;
}
int number_of(void* context) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(context)) - 1;
}

int init(void** context, int* mask, std::uint64_t id, int ranks, int rank, const char* name) {
  State& own = state();
  const std::lock_guard lock(own.mutex);
  open_once(own);
  *context = nullptr;
  if (!own.recorder) return kSuccess;
  *mask = static_cast<int>(own.mask);
  const int comm = own.recorder->add(id, ranks, rank, text(name));
  *context = reinterpret_cast<void*>(static_cast<std::intptr_t>(comm + 1));
  return kSuccess;
}

template <class Coll>
NcclRecorder::Operation described(const Coll& event, int peer, int channels) {
  return {.what = operation_of(text(event.func)).value_or(kFlightNoOp),
          .dtype = dtype_of(text(event.dtype)),
          .count = event.count,
          .peer = peer,
          .channels = channels};
}

struct Enqueued {
  NcclRecorder::Operation operation;
  std::uint64_t comm = 0;  // 0: named at init()
  const char* comm_name = nullptr;
};
Enqueued enqueued(const Collective& event) {
  return {described(event, event.root, event.channels)};
}
// NCCL counts the channels of a message in both directions in some versions.
Enqueued enqueued(const Message& event) { return {described(event, event.peer, 0)}; }
template <class Call>
Enqueued enqueued(const CallV3<Call>& event) {
  Enqueued what = enqueued(event.call);
  what.operation.channels = 0;
  what.comm = event.comm;
  what.comm_name = event.comm_name;
  return what;
}

template <class Event>
void* enqueue(NcclRecorder& recorder, int comm, const Event& event) {
  const Enqueued what =
      event.type == kCollective ? enqueued(event.collective) : enqueued(event.message);
  if (what.operation.what == kFlightNoOp) return nullptr;
  if (what.comm != 0) recorder.identify(comm, what.comm, event.rank, text(what.comm_name));
  return handle_of(recorder.enqueue(now(), comm, what.operation), kOperation);
}

template <class Event>
int start(void* context, void** handle, Event* event) {
  // NCCL counts collectives of a captured graph only where their groups have handles.
  *handle = handle_of(0, kNothing);
  State& own = state();
  const int comm = number_of(context);
  const std::lock_guard lock(own.mutex);
  if (comm < 0 || !own.recorder) return kSuccess;
  if (event->type == kCollective || event->type == kMessage) {
    *handle = enqueue(*own.recorder, comm, *event);
  } else if (event->type == kKernelChannel && stands_for(event->parent) == kOperation) {
    *handle = handle_of(ticket_of(event->parent), kChannel);
    own.recorder->channel_began(now(), ticket_of(event->parent));
  }
  return kSuccess;
}

// The end of an operation's event says only that its call has been enqueued.
int stop(void* handle) {
  if (stands_for(handle) != kChannel) return kSuccess;
  State& own = state();
  const std::lock_guard lock(own.mutex);
  if (own.recorder) own.recorder->channel_ended(now(), ticket_of(handle));
  return kSuccess;
}

int record_state(void*, int, void*) { return kSuccess; }

int finalize(void* context) {
  State& own = state();
  const int comm = number_of(context);
  const std::lock_guard lock(own.mutex);
  if (comm >= 0 && own.recorder) own.recorder->remove(comm);
  return kSuccess;
}

template <class Event>
constexpr Calls<Event> calls() {
  return {start<Event>, stop, record_state, finalize};
}

int init_v3(void** context, int* mask) { return init(context, mask, 0, 0, -1, nullptr); }
int init_v4(void** context, int* mask, const char* name, std::uint64_t comm, int, int ranks,
            int rank, void*) {
  return init(context, mask, comm, ranks, rank, name);
}
int init_v5(void** context, std::uint64_t comm, int* mask, const char* name, int, int ranks,
            int rank, void*) {
  return init(context, mask, comm, ranks, rank, name);
}

}  // namespace
}  // namespace dlaunch

extern "C" {
[[gnu::visibility("default")]] extern const dlaunch::nccl_abi::ProfilerV3 ncclProfiler_v3;
[[gnu::visibility("default")]] extern const dlaunch::nccl_abi::ProfilerV4 ncclProfiler_v4;
[[gnu::visibility("default")]] extern const dlaunch::nccl_abi::ProfilerV5 ncclProfiler_v5;
const dlaunch::nccl_abi::ProfilerV3 ncclProfiler_v3 = {
    "dlaunch", dlaunch::init_v3, dlaunch::calls<dlaunch::nccl_abi::EventV3>()};
const dlaunch::nccl_abi::ProfilerV4 ncclProfiler_v4 = {
    "dlaunch", dlaunch::init_v4, dlaunch::calls<dlaunch::nccl_abi::EventV4>()};
const dlaunch::nccl_abi::ProfilerV5 ncclProfiler_v5 = {
    "dlaunch", dlaunch::init_v5, dlaunch::calls<dlaunch::nccl_abi::EventV5>()};
}
