// Mesh: the authenticated control links of one rank to others, made once per communicator. First
// come those between neighbours (ring/links/link_graph.h). Further links, and the sockets for data
// and messages, come when they are needed (ring/links/late_links.h, ring/links/pair_sockets.h).
// Between ranks of one host they are AF_UNIX (abstract names of 128 random bits: nothing on disk),
// else TCP on ports that the kernel chose before the rank published them; the higher rank connects
// to the lower.
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
#include "ring/links/pair_sockets.h"
#include "ring/links/rank_facts.h"

namespace dlaunch {

struct Peer {
  std::string who;         // "rank 3 (pid 4711 on a)"; its rank in the job, also in a group
  UniqueFd link;           // read by the control thread
  bool same_host = false;  // connected by AF_UNIX, so that descriptors can be passed
};

struct Mesh {
  std::vector<Peer> peers;  // by rank; the own entry has a name and no link
  UniqueFd listener{};      // for later links, where all ranks share memory and have few
  std::shared_ptr<PairSockets> sockets{};  // for ranks that do not
  bool one_host() const;                   // of the ranks with a link
  // The longest round trip to another host, as the least that the kernel has measured so far; zero
  // if there is none.
  Duration round_trip() const;
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

// Where rank 0 listens to serve the store at this name: all addresses if the name leads to loopback
// on this host only.
std::string store_address(const JobView& job, const std::string& host);

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
  // Blocks until this rank has a link with each of these, too, which name it likewise.
  // Errc::peer_lost: a neighbour has ended.
  virtual Result<void> connect_more(const std::vector<int>& peers,
                                    const std::vector<RankFacts>& facts) = 0;
  // Opens an AF_UNIX socket on which this rank listens for later links: Mesh::listener. Returns the
  // random part of its name.
  virtual Result<std::string> open_listener() = 0;
};

// `prefix` keeps this communicator's keys in the store apart from others. `parent`: the flag of the
// communicator that is being split, or null; once it is raised both stages return its error. All
// arguments must outlive the maker, which fills `mesh`.
std::unique_ptr<MeshMaker> make_mesh_maker(const JobView& job, const Secret& secret, Store& store,
                                           const std::string& prefix, TimePoint deadline,
                                           const ParentEnd* parent, Mesh& mesh);

}  // namespace dlaunch
