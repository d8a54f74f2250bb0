// Mesh: the authenticated connections of one rank to all others, made once per communicator. Two
// sockets per pair: a control link and a data socket. Between ranks of one host they are AF_UNIX
// (abstract names of 128 random bits: nothing on disk), else TCP on ports that the kernel chose
// before anybody was told; the higher rank connects to the lower.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/secret.h"
#include "base/unique_fd.h"
#include "rendezvous/store.h"
#include "ring/bootstrap.h"

namespace dlaunch {

struct Peer {
  std::string who;         // "rank 3 (pid 4711 on host a)"
  UniqueFd link;           // read by the control thread
  UniqueFd data;           // the stream plane's
  bool same_host = false;  // connected by AF_UNIX, so that descriptors can be passed
};

struct Mesh {
  std::vector<Peer> peers;  // by rank; the own entry has a name and no sockets
  bool one_host() const;
};

// `prefix` keeps this communicator's keys apart from others' in the store. Blocks until every pair
// is connected. A time-out names the ranks that have not arrived. Connections that do not prove the
// secret, the job, the round and a rank are dropped and harm nobody.
Result<Mesh> connect_mesh(const JobView& job, const Secret& secret, Store& store,
                          const std::string& prefix, TimePoint deadline);

// Passes descriptors between two ranks of one host over their link, before the control thread owns
// it. `agreed` is this rank's vote whether shared memory is to be used; fds may be empty.
Result<void> send_descriptors(int link, bool agreed, const std::vector<int>& fds,
                              TimePoint deadline);
struct Descriptors {
  bool agreed = false;
  std::vector<UniqueFd> fds;
};
Result<Descriptors> receive_descriptors(int link, TimePoint deadline);

}  // namespace dlaunch
