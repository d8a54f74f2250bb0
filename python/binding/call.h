// A call of libdlring on arrays of Python: checked before it is made, and what keeps them until it
// is done.
#pragma once

#include <cstddef>
#include <list>
#include <vector>

#include <dlaunch/ring.h>

#include "python/binding/arguments.h"
#include "python/binding/view.h"

namespace dlaunch::python {

struct Call {
  View in, out;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  dl_dtype dtype = DL_UINT8;
  dl_op op = DL_SUM;
  int root = 0;  // or the peer
  int tag = 0;
  int source = -1;
  std::vector<std::size_t> counts;
  // Of lists.
  std::list<View> views;
  std::vector<const void*> all_from;
  std::vector<void*> all_to;
  Ref result;  // what the call returns

  // The arrays are free.
  void drop() {
    in.drop();
    out.drop();
    views.clear();
  }
};

// One of the library's calls that take arrays.
struct Collective {
  Signature signature;
  // False, with an exception: nothing has been done.
  bool (*prepare)(dl_comm* comm, const Given& given, Call& call);
  dl_result (*run)(dl_comm* comm, Call& call);
  dl_result (*start)(dl_comm* comm, Call& call, dl_request** request);
  bool result_is_source = false;
};

// What a call that is done returns to its caller.
PyObject* result_of(const Collective& collective, Call& call);

extern const Collective kAllReduce, kAllReduceList, kReduce, kReduceScatter, kAllGather,
    kAllGatherV, kGather, kGatherV, kScatter, kAllToAll, kBroadcast, kBroadcastList, kBarrier,
    kSend, kRecv, kRecvAny;

// dlaunch._arrays.empty, which makes results; false, with an exception.
bool load_arrays();

}  // namespace dlaunch::python
