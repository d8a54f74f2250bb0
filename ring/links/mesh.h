// Mesh: the authenticated connections of one rank to all others, made once per communicator. First
// come the control links, one per pair. Ranks that then agree that all of them share memory need no
// more. All others connect twice more per pair, for the data of collectives and for messages.
// Between hosts there are more for data (see ring/stream/socket_bundle.h), fewer the more ranks
// there are. Between ranks of one host they are AF_UNIX (abstract names of 128 random bits: nothing
// on disk), else TCP on ports that the kernel chose before the rank published them; the higher rank
// connects to the lower.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/secret.h"
#include "base/unique_fd.h"
#include "rendezvous/handshake.h"
#include "rendezvous/store.h"
#include "ring/call/abort_flag.h"
#include "ring/call/parent_end.h"
#include "ring/links/job_view.h"

namespace dlaunch {

struct Peer {
  std::string who;  // "rank 3 (pid 4711 on a)"; its rank in the job, also in a group
  UniqueFd link;    // read by the control thread
  UniqueFd data;    // the stream plane's
  std::vector<UniqueFd> more_data{};  // likewise; both ends have as many
  UniqueFd messages;                  // for the messenger
  bool same_host = false;             // connected by AF_UNIX, so that descriptors can be passed
};

struct Mesh {
  std::vector<Peer> peers;  // by rank; the own entry has a name and no sockets
  bool one_host() const;
};

// The numeric address that this rank listens on and publishes. Errc::usage if no address fits
// DLAUNCH_INTERFACE.
Result<std::string> listen_address(const JobView& job);

// Makes a mesh in two stages, which all ranks enter together.
class MeshMaker {
 public:
  virtual ~MeshMaker() = default;
  // Each rank publishes its addresses in the store. Blocks until every pair has a control link. A
  // time-out names the ranks that have not arrived, as far as this rank knows: a rank that gave up
  // first may have ended the store. Connections that do not prove the secret, the job, the round
  // and a rank are dropped without harm. A dead address of an earlier program gives way to the new
  // one. A second living process with the same rank is refused (Errc::usage), naming the first; so
  // is a process with another number of ranks (Errc::mismatch).
  virtual Result<void> connect_links() = 0;
  // Blocks until every pair has all its other sockets. No rank may read link messages any more.
  virtual Result<void> connect_data() = 0;
};

// `prefix` keeps this communicator's keys in the store apart from others. `parent`: the flag of the
// communicator that is being split, or null; once it is raised both stages return its error. All
// arguments must outlive the maker, which fills `mesh`.
std::unique_ptr<MeshMaker> make_mesh_maker(const JobView& job, const Secret& secret, Store& store,
                                           const std::string& prefix, TimePoint deadline,
                                           const ParentEnd* parent, Mesh& mesh);

}  // namespace dlaunch
