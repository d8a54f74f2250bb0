// What NCCL and its profiler plug-ins agree on, versions 3 to 5 (NCCL 2.26 to 2.28; later ones
// still load a plug-in of version 5). Only what this plug-in reads is declared; the layouts are
// NCCL's. NCCL's own names of these are ncclProfiler_v3_t and so on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dlaunch::nccl_abi {

inline constexpr int kSuccess = 0;

// Kinds of events, as bits of the mask by which a plug-in asks for them.
inline constexpr std::uint64_t kCollective = 1 << 1, kMessage = 1 << 2, kKernelChannel = 1 << 6;

// From version 4 on. The communicator was named at init().
struct Collective {
  std::uint64_t seq;  // counts each function of its own
  const char* func;
  const void* send;
  void* recv;
  std::size_t count;
  int root;
  const char* dtype;
  std::uint8_t channels, warps;
  const char *algorithm, *protocol;
};
struct Message {
  const char* func;
  void* buffer;
  const char* dtype;
  std::size_t count;
  int peer;
  std::uint8_t channels;
};
// Version 3 names the communicator in each event. Of a collective `channels` are those that its
// kernel may use at most; a message has none.
template <class Call>
struct CallV3 {
  const char* comm_name;
  std::uint64_t comm;
  Call call;
};

// Type: of `type`, a byte up to version 4.
template <class Type, class Coll, class Msg>
struct Event {
  Type type;
  void* parent;  // what started() gave for the event to which this one belongs
  int rank;      // in the communicator
  union {
    Coll collective;
    Msg message;
  };
};
using EventV3 = Event<std::uint8_t, CallV3<Collective>, CallV3<Message>>;
using EventV4 = Event<std::uint8_t, Collective, Message>;
using EventV5 = Event<std::uint64_t, Collective, Message>;

// Members from `start` on, which all versions have alike but for the event.
template <class Event>
struct Calls {
  int (*start)(void* context, void** handle, Event* event);
  int (*stop)(void* handle);
  int (*record_state)(void* handle, int state, void* arguments);
  int (*finalize)(void* context);
};
struct ProfilerV3 {
  const char* name;
  int (*init)(void** context, int* mask);
  Calls<EventV3> calls;
};
struct ProfilerV4 {
  const char* name;
  int (*init)(void** context, int* mask, const char* comm_name, std::uint64_t comm, int nodes,
              int ranks, int rank, void* log);
  Calls<EventV4> calls;
};
struct ProfilerV5 {
  const char* name;
  int (*init)(void** context, std::uint64_t comm, int* mask, const char* comm_name, int nodes,
              int ranks, int rank, void* log);
  Calls<EventV5> calls;
};

}  // namespace dlaunch::nccl_abi
