// StreamPlane: collectives and point-to-point messages over one connected stream socket per peer
// (TCP between hosts or when forced; AF_UNIX on one host). Sockets are authenticated already and
// carry nothing but this plane's frames.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "ring/abort_flag.h"
#include "ring/plane.h"

namespace dlaunch {

// A blocking point-to-point call with arguments already checked.
struct Message {
  const void* send = nullptr;  // exactly one of send and recv is set; may be null if count == 0
  void* recv = nullptr;
  bool is_send = false;
  std::size_t count = 0;
  dl_dtype dtype = DL_UINT8;
  int peer = -1;
  int tag = 0;
  TimePoint deadline = kNever;
};

class StreamPlane : public Plane {
 public:
  // send and recv of ring.h. While a send waits for room it takes in what peers send, so that two
  // ranks sending to each other do not block.
  virtual Result<void> transfer(const Message& message) = 0;
};

struct StreamOptions {
  // Ranks of this host, and the cores they may use together. While every rank can have a core of
  // its own, a wait polls its sockets for some microseconds before it sleeps. 0: all ranks of the
  // communicator; the cores that this process may run on.
  int local_ranks = 0;
  int usable_cores = 0;
};

// sockets[r] leads to rank r; sockets[rank] is empty. round fences frames of other rounds. Sets the
// sockets non-blocking and TCP_NODELAY. The flag must live as long as the plane.
Result<std::unique_ptr<StreamPlane>> make_stream_plane(int rank, int ranks, std::uint64_t round,
                                                       std::vector<UniqueFd> sockets,
                                                       AbortFlag& abort,
                                                       const StreamOptions& options = {});

}  // namespace dlaunch
