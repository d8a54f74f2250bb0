// Mesh: the authenticated connections of one rank to others, made once per communicator. First come
// the control links between neighbours (ring/links/link_graph.h). Ranks that then agree that all of
// them share memory need no more. All others make the links of the remaining pairs, and connect
// twice more per pair, for the data of collectives and for messages.
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
  UniqueFd listener{};      // for later links of ranks that share memory; empty: each has all
  bool one_host() const;    // of the ranks with a link
};

// "rank 3 (pid 4711 on a)"
std::string describe_rank(int rank, int pid, const std::string& host);
std::string own_host_name();
// Sends the error, which ends the bootstrap here, to the control threads of ranks that have
// finished it.
void tell_control_threads(const Mesh& mesh, const Error& error);

// The numeric address that this rank listens on and publishes. Errc::usage if no address fits
// DLAUNCH_INTERFACE.
Result<std::string> listen_address(const JobView& job);

// Makes a mesh in stages, which all ranks enter together.
class MeshMaker {
 public:
  virtual ~MeshMaker() = default;
  // Each rank publishes its addresses in the store. Blocks until this rank has a control link with
  // each neighbour. A time-out names the ranks that have not arrived, as far as this rank knows: a
  // rank that gave up first may have ended the store. Connections that do not prove the secret, the
  // job, the round and a rank are dropped without harm. A dead address of an earlier program gives
  // way to the new one. A second living process with the same rank is refused (Errc::usage), naming
  // the first; so is a process with another number of ranks (Errc::mismatch).
  virtual Result<void> connect_links() = 0;
  // Blocks until every pair has a link. Needs the addresses in the store. Errc::peer_lost: a
  // neighbour has ended.
  virtual Result<void> connect_other_links() = 0;
  // Blocks until every pair has all its other sockets. No rank may read link messages any more.
  virtual Result<void> connect_data() = 0;
  // The AF_UNIX socket on which this rank listens, and the random part of its name; empty without
  // one. The maker connects nothing after take_listener().
  virtual std::string listener_hex() const = 0;
  virtual UniqueFd take_listener() = 0;
};

// `prefix` keeps this communicator's keys in the store apart from others. `parent`: the flag of the
// communicator that is being split, or null; once it is raised both stages return its error. All
// arguments must outlive the maker, which fills `mesh`.
std::unique_ptr<MeshMaker> make_mesh_maker(const JobView& job, const Secret& secret, Store& store,
                                           const std::string& prefix, TimePoint deadline,
                                           const ParentEnd* parent, Mesh& mesh);

}  // namespace dlaunch
