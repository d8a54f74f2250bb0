// Calls a profiler plug-in as NCCL does: for tests on machines without a GPU. The layouts and the
// order of calls are those of NCCL 2.26 (version 3), 2.27 (4) and 2.28 (5). They are declared here
// once more, in full and apart from ring/profiler/, so that a mistake there cannot hide here.
#pragma once

#include <dlfcn.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace nccl_host {

enum : int { group = 1, coll = 2, p2p = 4, kernel_ch = 64, group_api = 256, coll_api = 512 };
enum : int { kernel_ch_stop = 22 };

struct DescrV3 {
  std::uint8_t type;
  void* parentObj;
  int rank;
  union {
    struct {
      const char* name;
      std::uint64_t commHash, seqNumber;
      const char* func;
      const void* sendBuff;
      void* recvBuff;
      std::size_t count;
      int root;
      const char* datatype;
      std::uint8_t nMaxChannels, nWarps;
      const char *algo, *proto;
    } coll;
    struct {
      const char* name;
      std::uint64_t commHash;
      const char* func;
      void* buff;
      const char* datatype;
      std::size_t count;
      int peer;
    } p2p;
    struct {
      std::uint8_t channelId;
    } kernelCh;
  };
};

template <class Type>
struct DescrV4V5 {
  Type type;  // std::uint8_t in version 4, std::uint64_t in version 5
  void* parentObj;
  int rank;
  union {
    struct {
      std::uint64_t seqNumber;
      const char* func;
      const void* sendBuff;
      void* recvBuff;
      std::size_t count;
      int root;
      const char* datatype;
      std::uint8_t nChannels, nWarps;
      const char *algo, *proto;
      void* parentGroup;  // version 5
    } coll;
    struct {
      const char* func;
      void* buff;
      const char* datatype;
      std::size_t count;
      int peer;
      std::uint8_t nChannels;
      void* parentGroup;  // version 5
    } p2p;
    struct {
      std::uint8_t channelId;
      std::uint64_t pTimer;
    } kernelCh;
  };
};

template <class Descr, class Init>
struct Profiler {
  const char* name;
  Init init;
  int (*startEvent)(void* context, void** handle, Descr* descr);
  int (*stopEvent)(void* handle);
  int (*recordEventState)(void* handle, int state, void* args);
  int (*finalize)(void* context);
};
using Logger = void (*)(int, unsigned long, const char*, int, const char*, ...);
using ProfilerV3 = Profiler<DescrV3, int (*)(void**, int*)>;
using ProfilerV4 = Profiler<DescrV4V5<std::uint8_t>, int (*)(void**, int*, const char*,
                                                             std::uint64_t, int, int, int, Logger)>;
using ProfilerV5 = Profiler<DescrV4V5<std::uint64_t>, int (*)(void**, std::uint64_t, int*,
                                                              const char*, int, int, int, Logger)>;

struct Call {
  const char* func = "AllReduce";
  std::size_t count = 4;
  const char* dtype = "ncclFloat32";
  int root = 0;      // or the peer
  int channels = 2;  // of its kernel
};

// A communicator and its plug-in.
class Comm {
 public:
  // version: the newest that this NCCL knows. No plug-in, or none of these versions: no events.
  Comm(const char* path, int version, std::uint64_t id, int ranks, int rank,
       const char* name = nullptr)
      : id_(id), rank_(rank), name_(name) {
    library_ = path != nullptr ? ::dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library_ == nullptr) return;
    if (version >= 5 && find(v5_, "ncclProfiler_v5")) {
      v5_->init(&context_, id, &mask_, name, 1, ranks, rank, nullptr);
    } else if (version >= 4 && find(v4_, "ncclProfiler_v4")) {
      v4_->init(&context_, &mask_, name, id, 1, ranks, rank, nullptr);
    } else if (find(v3_, "ncclProfiler_v3")) {
      v3_->init(&context_, &mask_);
    }
  }
  ~Comm() {
    if (context_ != nullptr) with([&](auto& plugin) { plugin.finalize(context_); });
    if (library_ != nullptr) ::dlclose(library_);
  }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int version() const { return v5_ ? 5 : v4_ ? 4 : v3_ ? 3 : 0; }
  int mask() const { return mask_; }

  // Enqueues the call and returns the handle of its event, which is over by then.
  void* enqueue(const Call& call) {
    void* const in_group = start_plain(group);
    const bool message = std::strcmp(call.func, "Send") == 0 || std::strcmp(call.func, "Recv") == 0;
    void* const event = (mask_ & (message ? p2p : coll)) == 0 ? nullptr
                        : message                             ? start_p2p(call, in_group)
                                                              : start_coll(call, in_group);
    if (event != nullptr) stop(event);
    if (in_group != nullptr) stop(in_group);
    return event;
  }
  // A channel of the operation's kernel begins, and ends.
  void* channel_begins(void* operation, int channel) {
    if ((mask_ & kernel_ch) == 0) return nullptr;
    return start(kernel_ch, operation, [&](auto& descr) {
      descr.kernelCh.channelId = static_cast<std::uint8_t>(channel);
    });
  }
  void channel_ends(void* channel) {
    if (channel == nullptr) return;
    std::uint64_t timer = 1;
    if (version() > 3) {
      with([&](auto& plugin) { plugin.recordEventState(channel, kernel_ch_stop, &timer); });
    }
    stop(channel);
  }

 private:
  template <class T>
  bool find(T*& plugin, const char* symbol) {
    plugin = static_cast<T*>(::dlsym(library_, symbol));
    return plugin != nullptr;
  }
  template <class Do>
  void with(Do act) {
    if (v5_ != nullptr)
      act(*v5_);
    else if (v4_ != nullptr)
      act(*v4_);
    else if (v3_ != nullptr)
      act(*v3_);
  }
  // NCCL leaves what an event does not use as it was.
  template <class Descr, class Init>
  Descr empty(const Profiler<Descr, Init>&, int type, void* parent) const {
    Descr descr;
    std::memset(static_cast<void*>(&descr), 0xa5, sizeof descr);
    descr.type = static_cast<decltype(descr.type)>(type);
    descr.parentObj = parent;
    descr.rank = rank_;
    return descr;
  }
  void* start_plain(int type) {
    return mask_ == 0 ? nullptr : start(type, nullptr, [](auto&) {});
  }
  void* start_coll(const Call& call, void* parent) {
    return start(coll, parent, [&](auto& descr) {
      describe(call, descr.coll);
      descr.coll.root = call.root;
      if constexpr (requires { descr.coll.nMaxChannels; }) descr.coll.nMaxChannels = 32;
    });
  }
  void* start_p2p(const Call& call, void* parent) {
    return start(p2p, parent, [&](auto& descr) {
      describe(call, descr.p2p);
      descr.p2p.peer = call.root;
    });
  }
  // What a collective and a message have alike.
  template <class Operation>
  void describe(const Call& call, Operation& operation) const {
    if constexpr (requires { operation.commHash; }) {
      operation.name = name_;
      operation.commHash = id_;
    } else {
      operation.nChannels = static_cast<std::uint8_t>(call.channels);
    }
    operation.func = call.func;
    operation.count = call.count;
    operation.datatype = call.dtype;
  }
  template <class Fill>
  void* start(int type, void* parent, Fill fill) {
    void* handle = nullptr;
    with([&](auto& plugin) {
      auto descr = empty(plugin, type, parent);
      fill(descr);
      plugin.startEvent(context_, &handle, &descr);
    });
    return handle;
  }
  void stop(void* handle) {
    with([&](auto& plugin) { plugin.stopEvent(handle); });
  }

  const std::uint64_t id_;
  const int rank_;
  const char* const name_;
  void* library_ = nullptr;
  ProfilerV3* v3_ = nullptr;
  ProfilerV4* v4_ = nullptr;
  ProfilerV5* v5_ = nullptr;
  void* context_ = nullptr;
  int mask_ = 0;
};

}  // namespace nccl_host
