#include "ring/links/mesh.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include <fmt/format.h>

#include "base/address.h"
#include "base/contract.h"
#include "base/failpoint.h"
#include "base/interfaces.h"
#include "base/log.h"
#include "base/rank_set.h"
#include "base/round_trip.h"
#include "base/socket.h"
#include "base/units.h"
#include "rendezvous/handshake.h"
#include "rendezvous/tls_tunnel.h"
#include "ring/links/arrivals.h"
#include "ring/links/link_frame.h"
#include "ring/links/link_message.h"
#include "ring/links/listener.h"
#include "ring/links/rank_address.h"

namespace dlaunch {
namespace {

// How long a dead address counts as a leftover that its rank will replace.
constexpr Duration kStalePatience = std::chrono::seconds(5);
constexpr int kRetryMs = 20;
// Longer than a few lost packets take, shorter than users wait without a message.
constexpr Duration kTellNoAnswer = std::chrono::seconds(5);
// How often to check the parent while a rank of the group may still come.
constexpr int kParentMs = 2;

std::string key_of(const std::string& prefix, int rank) {
  return prefix + "/addr/" + std::to_string(rank);
}

// The address has no process, or its process has gone.
bool means_gone(const Error& error) {
  return error.os_errno == ECONNREFUSED || error.os_errno == ECONNRESET ||
         error.os_errno == EPIPE ||
         (error.code == Errc::io && error.os_errno == 0);  // closed during the handshake
}

class MeshBuilder final : public MeshMaker {
 public:
  MeshBuilder(const JobView& job, const Secret& secret, Store& store, const std::string& prefix,
              TimePoint deadline, const ParentEnd* parent, Mesh& mesh)
      : job_(job),
        secret_(secret),
        store_(store),
        prefix_(prefix),
        deadline_(deadline),
        parent_(parent),
        mesh_(mesh),
        graph_(job.link_graph()),
        seen_{job.rank} {
    mesh_.peers.resize(static_cast<std::size_t>(job.size));
  }
  Result<void> connect_links() override;
  Result<void> connect_more(const std::vector<int>& peers,
                            const std::vector<RankFacts>& facts) override;
  Result<std::string> open_listener() override;

 private:
  Result<void> publish();
  Result<void> claim(const std::string& own);
  Result<void> find_all_lower();
  Result<void> connect_all_lower();
  Result<RankAddress> address_of(int peer);
  Result<void> connect_lower(int peer, Connections::Target& target);
  Result<void> try_connect(int peer, const Connections::Target& target);
  Result<UniqueFd> connect_patiently(const Connections::Target& target);
  Result<UniqueFd> connect_one(int peer, const Connections::Target& target, bool& is_unix);
  Result<void> prove(int fd, int rank, const Connections::Target& target, TimePoint until) const;
  bool take_link(PairSockets::NewLink& link);
  void on_failure(const Error& error);
  Result<void> connect(const std::vector<int>& peers);
  Result<void> meet(const std::vector<int>& peers);
  Error or_not_arrived(const Error& error);
  Error not_arrived(const Error& cause);
  std::optional<Error> word_of_others();
  void tell_others(const Error& error);
  Result<std::string> wait_for(const std::string& key);
  bool parent_is_over() const { return parent_ != nullptr && parent_->raised(); }
  Result<void> await_higher();
  std::optional<Error> neighbour_lost();
  Error lost_connection(int rank);
  HandshakeIdentity identity(int to, std::string link_id) const {
    return {Purpose::ring_link, std::move(link_id), job_.round, job_.rank, to, self().who};
  }
  bool lives(const Connections::Target& holder) const;
  Peer& peer(int rank) { return mesh_.peers[static_cast<std::size_t>(rank)]; }
  const Peer& self() const { return mesh_.peers[static_cast<std::size_t>(job_.rank)]; }

  const JobView& job_;
  const Secret& secret_;
  Store& store_;
  const std::string& prefix_;
  const TimePoint deadline_;
  const ParentEnd* const parent_;
  const TimePoint started_ = steady_now();
  Mesh& mesh_;
  const LinkGraph graph_;
  bool have_links_ = false;          // with all neighbours
  std::vector<int> lower_, higher_;  // ranks to connect with in this stage, ascending
  RankAddress own_;
  std::map<int, Connections::Target> targets_;
  std::shared_ptr<PairSockets> sockets_;
  UniqueFd progress_;  // readable when links have come, or cannot
  std::mutex to_come_mutex_;
  RankSet to_come_;  // in this stage
  // Why no rank can come. Under the mutex, too.
  std::optional<Error> cannot_accept_;
  RankSet seen_;              // read addresses, and this rank
  int awaited_ = -1;          // the rank whose address the store did not have yet
  bool others_word_ = false;  // the error is what another rank said, or that it was lost
};

Result<void> MeshBuilder::connect_links() {
  peer(job_.rank).who = describe_rank(job_.world_rank(job_.rank), ::getpid(), own_host_name());
  if (auto ok = publish(); !ok) return ok.error();
  failpoint("mesh.published");
  return meet(graph_.neighbours(job_.rank));
}

Result<void> MeshBuilder::connect_more(const std::vector<int>& peers,
                                       const std::vector<RankFacts>& facts) {
  std::vector<int> missing;
  for (const int r : peers) {
    if (peer(r).link) continue;
    missing.push_back(r);
    targets_[r] = facts[static_cast<std::size_t>(r)].at;
  }
  have_links_ = true;
  return meet(missing);
}

Result<void> MeshBuilder::meet(const std::vector<int>& peers) {
  auto ok = connect(peers);
  if (ok) return {};
  const Error error = or_not_arrived(ok.error());
  tell_others(error);
  return error;
}

Result<std::string> MeshBuilder::open_listener() {
  auto listener = Listener::open_unix();
  if (!listener) return listener.error();
  mesh_.listener = listener->take_unix();
  return listener->unix_name().substr(listener_name("").size());
}

// Only this side knows the rank that it waited for, in a time-out without a rank or at the end of
// the store, which may end with a rank that has waited less.
Error MeshBuilder::or_not_arrived(const Error& error) {
  const bool in_vain = error.code == Errc::timeout || (error.code == Errc::io && awaited_ >= 0);
  return error.rank < 0 && in_vain && !others_word_ ? not_arrived(error) : error;
}

// Higher ranks connect while this one still waits for lower ones. The two threads write different
// entries of the mesh. Ranks of the next stage, or ones that have finished the bootstrap and need a
// link, wait until somebody takes them.
Result<void> MeshBuilder::connect(const std::vector<int>& peers) {
  const auto middle = std::upper_bound(peers.begin(), peers.end(), job_.rank);
  lower_.assign(peers.begin(), middle);
  higher_.assign(middle, peers.end());
  to_come_ = RankSet(higher_.begin(), higher_.end());
  cannot_accept_.reset();
  sockets_->take_links({.take = [this](auto& link) { return take_link(link); },
                        .failed = [this](const Error& error) { on_failure(error); }});
  auto connected = have_links_ ? Result<void>() : find_all_lower();
  if (connected) connected = connect_all_lower();
  if (connected) connected = await_higher();
  sockets_->take_links({});  // others read the links from now on
  return parent_is_over() ? parent_->error() : connected;
}

// A rank that is lost before it connects would be awaited until the deadline. While the first links
// are made only the parent of a group shows that, later the end of a link with a neighbour does.
Result<void> MeshBuilder::await_higher() {
  while (true) {
    {
      const std::lock_guard lock(to_come_mutex_);
      if (to_come_.empty()) return {};
      if (cannot_accept_) return *cannot_accept_;
    }
    if (parent_is_over()) return parent_->error();
    if (have_links_) {
      if (auto lost = neighbour_lost()) {
        others_word_ = true;
        return std::move(*lost);
      }
    } else {
      const TimePoint until =
          parent_ == nullptr ? deadline_ : steady_now() + std::chrono::milliseconds(kParentMs);
      pollfd progress{progress_.get(), POLLIN, 0};
      ::poll(&progress, 1, poll_timeout_ms(steady_now(), std::min(deadline_, until)));
    }
    eventfd_t count;
    (void)::eventfd_read(progress_.get(), &count);
    const std::lock_guard lock(to_come_mutex_);
    if (steady_now() >= deadline_ && !to_come_.empty()) {
      return Error{.code = Errc::timeout, .what = "peers have not connected"};
    }
  }
}

// All ranks have been there: the first one whose link ends, or that has said why it gives up.
std::optional<Error> MeshBuilder::neighbour_lost() {
  const auto ranks = graph_.neighbours(job_.rank);
  std::vector<pollfd> links;
  links.reserve(ranks.size() + 1);
  for (const int r : ranks) links.push_back({peer(r).link.get(), POLLRDHUP, 0});
  links.push_back({progress_.get(), POLLIN, 0});
  (void)::poll(links.data(), links.size(), kParentMs);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const bool ended = links[i].revents != 0;
    if (!ended && !says_failed(links[i].fd)) continue;
    auto word = receive_link_message(links[i].fd, steady_now());
    if (word && word->answer == LinkMessage::Answer::failed) return word->error;
    if (ended) return lost_connection(ranks[i]);
  }
  return {};
}

Error MeshBuilder::lost_connection(int rank) {
  return {.code = Errc::peer_lost,
          .what = "init: " + peer(rank).who + " was lost: its connection ended",
          .rank = rank};
}

Result<void> MeshBuilder::publish() {
  const auto address = listen_address(job_);
  if (!address) return address.error();
  auto connections =
      Connections::of_process(secret_, *address, job_.transport != Transport::tcp, job_.ports);
  if (!connections) return connections.error();
  progress_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!progress_) return errno_error("init: make an eventfd", errno);
  auto instance = random_hex(8);
  if (!instance) return instance.error();
  sockets_ = mesh_.sockets = PairSockets::open(
      std::move(*connections), identity(-1, job_.link_id()), std::move(*instance), job_.size);
  own_ = {sockets_->target(), job_.size, job_.plan, job_.links, job_.verify};
  failpoint("mesh.listens");
  return claim(encode(own_));
}

// The rank's key is free, or holds the address of a process that has gone.
Result<void> MeshBuilder::claim(const std::string& own) {
  const std::string key = key_of(prefix_, job_.rank);
  std::optional<std::string> held;
  while (true) {
    auto stands = store_.compare_and_set(key, held, own, deadline_);
    if (!stands) return stands.error();
    if (*stands == own) return {};
    auto holder = decode_rank_address(*stands);
    if (!holder) return holder.error();
    if (lives(holder->at)) {
      return Error{.code = Errc::usage,
                   .what = fmt::format("init: this process (pid {}) wants to be rank {}, but that "
                                       "rank has joined already: {}",
                                       ::getpid(), job_.rank, holder->at.who),
                   .rank = job_.rank};
    }
    held = std::move(*stands);
  }
}

// A process that does not answer may be stopped. One that closes the connection at once, without an
// answer, has given that bootstrap up.
bool MeshBuilder::lives(const Connections::Target& holder) const {
  const TimePoint until = std::min(deadline_, steady_now() + kHandshakeTimeout);
  auto fd = connect_tcp(holder.tcp, until);
  if (fd) fd = secured(std::move(*fd), TlsChannel::Side::connector, secret_);
  if (!fd) return fd.error().os_errno != ECONNREFUSED;
  const auto proven = prove(fd->get(), job_.rank, holder, until);
  return proven || !means_gone(proven.error());
}

Result<void> MeshBuilder::prove(int fd, int rank, const Connections::Target& target,
                                TimePoint until) const {
  const auto proven = handshake_connect(
      fd, secret_, identity(rank, link_id_of(job_.link_id(), target.instance)), until);
  return proven ? Result<void>() : proven.error();
}

Result<std::string> MeshBuilder::wait_for(const std::string& key) {
  while (parent_ != nullptr) {
    if (parent_->raised()) return parent_->error();
    auto value = store_.try_get(key, deadline_);
    if (!value) return value.error();
    if (*value) return std::move(**value);
    // The last look is a wait that ends at once; its error text is the one for the user.
    if (steady_now() >= deadline_) break;
    ::poll(nullptr, 0, kParentMs);
  }
  return store_.get(key, deadline_);
}

Result<RankAddress> MeshBuilder::address_of(int rank) {
  awaited_ = rank;
  auto value = wait_for(key_of(prefix_, rank));
  if (!value) return value.error();
  awaited_ = -1;
  auto address = decode_rank_address(*value);
  if (!address) return address.error();
  if (auto ok = check_common(own_, *address, rank); !ok) return ok.error();
  seen_.insert(rank);
  return address;
}

// Get all addresses first: after a rank has connected to rank 0 it no longer needs the store.
Result<void> MeshBuilder::find_all_lower() {
  for (const int r : lower_) {
    auto address = address_of(r);
    if (!address) return address.error();
    targets_[r] = std::move(address->at);
    failpoint("mesh.address_read");
  }
  return {};
}

Result<void> MeshBuilder::connect_all_lower() {
  for (const int r : lower_) {
    if (auto ok = connect_lower(r, targets_[r]); !ok) return ok;
  }
  return {};
}

// Tries again if the other side was too busy to keep its own time limit, or if the address was that
// of an earlier process. Between two ranks that have a link it was not, and the store no longer has
// it.
Result<void> MeshBuilder::connect_lower(int rank, Connections::Target& target) {
  auto patience = deadline_;
  while (true) {
    const auto connected = try_connect(rank, target);
    if (connected) return {};
    Error error = connected.error();
    const bool gone = means_gone(error);
    if (error.os_errno == ECONNREFUSED) {
      patience =
          std::min(patience, steady_now() + (have_links_ ? Duration::zero() : kStalePatience));
    }
    if (!gone || steady_now() >= patience || parent_is_over()) {
      error.what = "init: connect to " + target.who + ": " + error.what;
      error.rank = rank;
      if (gone) error.code = Errc::peer_lost;
      return error;
    }
    ::poll(nullptr, 0, kRetryMs);
    if (have_links_) continue;
    auto fresh = address_of(rank);
    if (!fresh) return fresh.error();
    target = std::move(fresh->at);
  }
}

Result<void> MeshBuilder::try_connect(int rank, const Connections::Target& target) {
  Peer& entry = peer(rank);
  entry.who = target.who;
  auto fd = connect_one(rank, target, entry.same_host);
  if (!fd) return fd.error();
  entry.link = std::move(*fd);
  failpoint("mesh.connected");
  return {};
}

// A firewall that drops packets sends no answer: warn the user long before the time is up.
Result<UniqueFd> MeshBuilder::connect_patiently(const Connections::Target& target) {
  const TimePoint tell_at = steady_now() + kTellNoAnswer;
  auto fd = connect_tcp(target.tcp, std::min(deadline_, tell_at));
  if (fd || fd.error().os_errno != ETIMEDOUT || tell_at >= deadline_) return fd;
  log_warn(
      "{} does not answer at {}: does a firewall stop rank {}? {} "
      "(--port-range) chooses the ports that ranks listen on",
      target.who, to_string(target.tcp), job_.world_rank(job_.rank), contract::kPortRange);
  return connect_tcp(target.tcp, deadline_);
}

Result<UniqueFd> MeshBuilder::connect_one(int rank, const Connections::Target& target,
                                          bool& is_unix) {
  Result<UniqueFd> fd = Error{};
  if (job_.transport != Transport::tcp && !target.unix_name.empty()) {
    fd = connect_unix(target.unix_name);
  }
  is_unix = bool(fd);
  if (!is_unix) {
    fd = connect_patiently(target);
    if (fd) fd = secured(std::move(*fd), TlsChannel::Side::connector, secret_);
    if (!fd) return fd;
  }
  failpoint("mesh.before_hello");
  auto proven = prove(fd->get(), rank, target, deadline_);
  return proven ? std::move(fd) : proven.error();
}

// On the thread of the connections, like on_failure().
bool MeshBuilder::take_link(PairSockets::NewLink& link) {
  const int rank = link.from.from_rank;
  if (!std::binary_search(higher_.begin(), higher_.end(), rank)) return false;
  Peer& entry = peer(rank);
  // A second claim counts only if the process of the first one has gone.
  if (entry.link && !has_hung_up(entry.link)) return true;
  entry.who = link.from.who;
  entry.same_host = link.is_unix;
  entry.link = std::move(link.fd);
  failpoint("mesh.accepted");
  const std::lock_guard lock(to_come_mutex_);
  to_come_.erase(rank);
  ::eventfd_write(progress_.get(), 1);
  return true;
}

void MeshBuilder::on_failure(const Error& error) {
  const std::lock_guard lock(to_come_mutex_);
  cannot_accept_ = error;
  ::eventfd_write(progress_.get(), 1);
}

// The error that a rank that gave up earlier has sent to its peers.
std::optional<Error> MeshBuilder::word_of_others() {
  for (const auto& other : mesh_.peers) {
    if (!other.link) continue;
    auto word = receive_link_message(other.link.get(), steady_now());
    if (word && word->answer == LinkMessage::Answer::failed) return word->error;
  }
  return {};
}

void MeshBuilder::tell_others(const Error& error) {
  for (const auto& other : mesh_.peers) {
    if (!other.link) continue;
    (void)send_link_message(other.link.get(), {LinkMessage::Answer::failed, error, {}}, {},
                            steady_now());
  }
}

// While the store exists, it knows which ranks have published an address.
Error MeshBuilder::not_arrived(const Error& cause) {
  Arrivals arrivals{.ranks = job_.size, .in_group = !job_.group.empty()};
  const auto add = [this](RankSet& set, int r) { set.insert(job_.world_rank(r)); };
  const auto soon = steady_now() + std::chrono::seconds(2);
  for (int r = 0; r < job_.size; ++r) {
    const Peer& other = peer(r);
    if (r == job_.rank || other.link) continue;
    if (seen_.contains(r)) {
      add(arrivals.unconnected, r);
      continue;
    }
    const bool awaited = std::binary_search(lower_.begin(), lower_.end(), r) ||
                         std::binary_search(higher_.begin(), higher_.end(), r);
    const auto value = store_.try_get(key_of(prefix_, r), soon);
    // The store did not have the address before it ended.
    const bool ended_waiting = !value && r == awaited_ && value.error().code != Errc::timeout;
    if (value ? !value->has_value() : ended_waiting) {
      add(arrivals.missing, r);
    } else if (value) {
      if (awaited) add(arrivals.unconnected, r);
    } else if (awaited) {
      add(arrivals.unknown, r);
      arrivals.why = cause.code == Errc::io ? cause.what : value.error().what;
    }
  }
  if (arrivals.missing.empty() && !arrivals.unknown.empty()) {
    if (auto word = word_of_others()) return std::move(*word);
  }
  const auto waited = std::chrono::round<std::chrono::milliseconds>(steady_now() - started_);
  std::string what = fmt::format("init: after {}: {}", format_duration(waited), describe(arrivals));
  // Do not repeat it.
  if (cause.code == Errc::io && arrivals.unknown.empty()) what += "; " + cause.what;
  return {.code = cause.code, .what = std::move(what)};
}

// The family of loopback if the store's name leads to that: only on this host, and others may know
// the name, too.
std::optional<int> misleading_family(const JobView& job, const std::string& host) {
  if (!job.may_span_hosts || !is_host_name(host)) return std::nullopt;
  const auto found = resolve(host, 0);
  if (!found || !is_loopback(found->front().get())) return std::nullopt;
  return found->front().storage.ss_family;
}

}  // namespace

std::string own_host_name() {
  char host[256] = "?";
  ::gethostname(host, sizeof host - 1);
  return std::string(host).substr(0, 100);
}

std::string describe_rank(int rank, int pid, const std::string& host) {
  return fmt::format("rank {} (pid {} on {})", rank, pid, host);
}

void tell_control_threads(const Mesh& mesh, const Error& error) {
  const std::string over =
      encode(LinkFrame{.code = error.code, .rank = error.rank, .seq = 0, .text = error.what});
  for (const auto& other : mesh.peers) {
    if (!other.link) continue;
    (void)::send(other.link.get(), over.data(), over.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

std::string store_address(const JobView& job, const std::string& host) {
  const auto family = misleading_family(job, host);
  if (!family) return host;
  return *family == AF_INET6 ? "::" : "0.0.0.0";
}

Result<std::string> listen_address(const JobView& job) {
  if (!job.interface.empty()) {
    auto chosen = choose_address(job.interface, host_addresses());
    if (!chosen)
      return Error{.code = Errc::usage,
                   .what = std::string(contract::kInterface) + ": " + chosen.error().what};
    return chosen;
  }
  const std::string host = store_host(job.store_url);
  if (misleading_family(job, host)) return any_address(host_addresses());
  // Without an interface any address that leads out of this host will do.
  auto towards = local_address_towards(host.empty() ? "192.0.2.1" : host);
  return towards.empty() ? any_address(host_addresses()) : towards;
}

bool Mesh::one_host() const {
  return std::all_of(peers.begin(), peers.end(),
                     [](const Peer& peer) { return !peer.link || peer.same_host; });
}

Duration Mesh::round_trip() const {
  Duration longest{};
  for (const auto& peer : peers) {
    if (!peer.link || !leads_to_other_host(peer.link.get())) continue;
    longest = std::max(longest, shortest_round_trip(peer.link.get()));
  }
  return longest;
}

std::unique_ptr<MeshMaker> make_mesh_maker(const JobView& job, const Secret& secret, Store& store,
                                           const std::string& prefix, TimePoint deadline,
                                           const ParentEnd* parent, Mesh& mesh) {
  return std::make_unique<MeshBuilder>(job, secret, store, prefix, deadline, parent, mesh);
}

}  // namespace dlaunch
