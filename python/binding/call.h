// A call of libdlring on arrays of Python, checked before it is made. It keeps the arrays until it
// is done.
#pragma once

#include <cstddef>
#include <list>
#include <vector>

#include <dlaunch/ring.h>

#include "python/binding/arguments.h"
#include "python/binding/view.h"

namespace dlaunch::python {

struct OpUse;

// A call's use of an Op. It keeps the Op, also in the background.
class UsedOp {
 public:
  UsedOp() = default;
  ~UsedOp() { give_back(); }
  UsedOp(const UsedOp&) = delete;
  UsedOp& operator=(const UsedOp&) = delete;

  // op: the operation for libdlring. False: sets an exception.
  bool take(const char* call, PyObject* object, dl_op& op);
  // Raises what the Op's function has raised in this call. False: it has raised nothing.
  bool raise();
  // For another call, when this one is over.
  void give_back();

 private:
  Ref object_;
  OpUse* use_ = nullptr;
};

struct Call {
  View in, out, residual;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  dl_dtype dtype = DL_UINT8;
  dl_op op = DL_SUM;
  UsedOp used_op;  // if `op` is the program's
  int root = 0;    // or the peer
  int tag = 0;
  int shards = 0;
  dl_codec codec = DL_CODEC_NONE;
  int source = -1;
  std::vector<std::size_t> counts, out_counts;
  // For all_reduce_some.
  dl_some_options some = {};
  std::vector<int> given;
  dl_fate fate = DL_FATE_NONE;
  // For lists.
  std::list<View> views;
  std::vector<const void*> all_from;
  std::vector<void*> all_to;
  Ref result;  // the call returns this

  // Releases the arrays.
  void drop() {
    in.drop();
    out.drop();
    residual.drop();
    views.clear();
  }
};

// One of the library's calls that take arrays.
struct Collective {
  Signature signature;
  // False: sets an exception; it has done nothing.
  bool (*prepare)(dl_comm* comm, const Given& given, Call& call);
  dl_result (*run)(dl_comm* comm, Call& call);
  dl_result (*start)(dl_comm* comm, Call& call, dl_request** request);  // null: blocks only
  // What the call returns; null: Call::result.
  PyObject* (*result)(Call& call) = nullptr;
  // Makes a persistent call; null: there is none.
  dl_result (*init)(dl_comm* comm, Call& call, dl_persistent** made) = nullptr;
};

// The return value of a call that is done.
PyObject* result_of(const Collective& collective, Call& call);

extern const Collective kAllReduce, kAllReduceList, kAllReduceShards, kCompressedAverage,
    kAllReduceSome, kScan, kExscan, kReduce, kReduceScatter, kReduceScatterV, kAllGather,
    kAllGatherV, kGather, kGatherV, kScatter, kScatterV, kAllToAll, kAllToAllV, kBroadcast,
    kBroadcastList, kBarrier, kSend, kRecv, kRecvAny;

// Loads dlaunch._arrays.empty, which makes results. False: sets an exception.
bool load_arrays();

}  // namespace dlaunch::python
