#include "ring/links/mesh.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <thread>

#include <fmt/format.h>

#include "base/contract.h"
#include "base/failpoint.h"
#include "base/interfaces.h"
#include "base/log.h"
#include "base/quiet_thread.h"
#include "base/rank_set.h"
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
constexpr int kAllDataSockets = 64, kMostDataSockets = 16;
// Longer than a few lost packets take, shorter than users wait without a message.
constexpr Duration kTellNoAnswer = std::chrono::seconds(5);
// How often to check the parent while a rank of the group may still come.
constexpr int kParentMs = 2;
// Longer than the acceptor takes for a connection that has come.
constexpr int kLastMs = 20;

std::string key_of(const std::string& prefix, int rank) {
  return prefix + "/addr/" + std::to_string(rank);
}

// The address has no process, or its process has gone.
bool means_gone(const Error& error) {
  return error.os_errno == ECONNREFUSED || error.os_errno == ECONNRESET ||
         error.os_errno == EPIPE ||
         (error.code == Errc::io && error.os_errno == 0);  // closed during the handshake
}

bool has_ended(const UniqueFd& socket) {
  char byte;
  const ssize_t n = ::recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

constexpr std::size_t kMostMore = 63;

// Sockets for data beside the first one. A rank's total stays below some hundred.
std::size_t more_sockets(int data, const JobView& job) {
  if (is_unix_socket(data)) return 0;
  if (job.sockets > 0) return static_cast<std::size_t>(job.sockets - 1);
  if (!leads_to_other_host(data)) return 0;
  const int share = kAllDataSockets / (job.size - 1);
  return std::bit_floor(static_cast<unsigned>(std::clamp(share, 1, kMostDataSockets))) - 1;
}

// The purposes of a pair's connections in a stage. The last one comes after all others of its
// stage: when it is there, the acceptor has all of them.
using Stage = std::span<const Purpose>;
constexpr Purpose kLinkStage[] = {Purpose::ring_link};
constexpr Purpose kDataStage[] = {Purpose::ring_data, Purpose::ring_messages};

UniqueFd& socket_for(Peer& peer, Purpose purpose) {
  if (purpose == Purpose::ring_link) return peer.link;
  return purpose == Purpose::ring_data ? peer.data : peer.messages;
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
  Result<void> connect_other_links() override;
  Result<void> connect_data() override;
  std::string listener_hex() const override;
  UniqueFd take_listener() override { return listener_->take_unix(); }

 private:
  Result<void> publish();
  Result<void> claim(const std::string& own);
  Result<std::thread> start_acceptor(Result<void>& accepted, std::atomic<bool>& done);
  Result<void> find_all_lower();
  Result<void> connect_all_lower();
  Result<RankAddress> address_of(int peer);
  Result<void> connect_lower(int peer, RankAddress& address);
  Result<void> try_connect(int peer, const RankAddress& address);
  Result<void> connect_more(int peer, const RankAddress& address, Peer& entry);
  Result<UniqueFd> connect_patiently(const RankAddress& address);
  Result<UniqueFd> connect_one(int peer, const RankAddress& address, Purpose purpose,
                               bool& is_unix);
  Result<void> accept_higher();
  bool meets() const { return stage_.data() == kLinkStage; }
  bool first_meets() const { return meets() && !have_links_; }
  Result<void> connect(Stage stage, const std::vector<int>& peers);
  Result<void> meet(const std::vector<int>& peers);
  Error or_not_arrived(const Error& error);
  Error not_arrived(const Error& cause);
  std::optional<Error> word_of_others();
  void tell_others(const Error& error);
  Result<std::string> wait_for(const std::string& key);
  bool parent_is_over() const { return parent_ != nullptr && parent_->raised(); }
  bool nobody_to_come() const { return higher_.empty(); }
  std::vector<int> all_others() const;
  Result<void> watch_acceptor(const std::atomic<bool>& accepted);
  std::optional<Error> neighbour_lost();
  std::optional<Error> lost_meanwhile();
  Error lost_connection(int rank);
  Error last_word_of(int rank);
  HandshakeIdentity identity(Purpose purpose, int to) const {
    return {purpose, job_.link_id(), job_.round, job_.rank, to, self().who};
  }
  Peer& peer(int rank) { return mesh_.peers[static_cast<std::size_t>(rank)]; }
  const Peer& self() const { return mesh_.peers[static_cast<std::size_t>(job_.rank)]; }

  const JobView& job_;
  const Secret& secret_;
  Store& store_;
  const std::string& prefix_;
  const TimePoint deadline_;
  const ParentEnd* const parent_;
  const TimePoint started_ = steady_now();
  std::optional<Listener> listener_;
  Mesh& mesh_;
  const LinkGraph graph_;
  Stage stage_ = kLinkStage;
  bool have_links_ = false;          // with all neighbours
  std::vector<int> lower_, higher_;  // ranks to connect with in this stage, ascending
  RankAddress own_;
  std::map<int, RankAddress> addresses_;
  UniqueFd accepted_;  // readable once all ranks of this stage have come
  std::mutex to_come_mutex_;
  RankSet to_come_;           // in this stage
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

Result<void> MeshBuilder::connect_other_links() {
  auto others = all_others();
  std::erase_if(others, [this](int r) { return graph_.linked(job_.rank, r); });
  have_links_ = true;
  return meet(others);
}

Result<void> MeshBuilder::meet(const std::vector<int>& peers) {
  auto ok = connect(kLinkStage, peers);
  if (ok) return {};
  const Error error = or_not_arrived(ok.error());
  tell_others(error);
  return error;
}

std::vector<int> MeshBuilder::all_others() const {
  std::vector<int> others(static_cast<std::size_t>(job_.size));
  std::iota(others.begin(), others.end(), 0);
  std::erase(others, job_.rank);
  return others;
}

std::string MeshBuilder::listener_hex() const {
  const std::string& name = listener_->unix_name();
  return name.empty() ? "" : name.substr(listener_name("").size());
}

// Others may have finished: a rank that fails here informs their control threads.
Result<void> MeshBuilder::connect_data() {
  auto ok = connect(kDataStage, all_others());
  if (ok) return {};
  const Error error = or_not_arrived(ok.error());
  tell_control_threads(mesh_, error);
  return error;
}

// Only this side knows the rank that it waited for, in a time-out without a rank or at the end of
// the store, which may end with a rank that has waited less.
Error MeshBuilder::or_not_arrived(const Error& error) {
  const bool in_vain = error.code == Errc::timeout || (error.code == Errc::io && awaited_ >= 0);
  return error.rank < 0 && in_vain && !others_word_ ? not_arrived(error) : error;
}

Result<void> MeshBuilder::connect(Stage stage, const std::vector<int>& peers) {
  // Accept higher ranks while this one still waits for lower ones: strangers never pile up. The
  // two sides write different entries of the mesh.
  stage_ = stage;
  const auto middle = std::upper_bound(peers.begin(), peers.end(), job_.rank);
  lower_.assign(peers.begin(), middle);
  higher_.assign(middle, peers.end());
  to_come_ = RankSet(higher_.begin(), higher_.end());
  listener_->renew();
  accepted_.reset(::eventfd(0, EFD_CLOEXEC));
  if (!accepted_) return errno_error("init: make an eventfd", errno);
  Result<void> accepted;
  std::atomic<bool> done{false};
  auto acceptor = start_acceptor(accepted, done);
  if (!acceptor) return acceptor.error();
  auto connected = meets() ? find_all_lower() : Result<void>();
  if (connected) connected = connect_all_lower();
  if (connected && !nobody_to_come()) connected = watch_acceptor(done);
  if (!connected || nobody_to_come()) listener_->stop();
  acceptor->join();
  if (parent_is_over()) return parent_->error();
  // Drop sockets of a process that another one has replaced.
  for (auto& other : mesh_.peers) std::erase_if(other.more_data, has_ended);
  return connected ? accepted : connected;
}

// A rank that is lost before it connects would be awaited until the deadline. While the first links
// are made only the parent of a group shows that, while the others are made the end of a link with
// a neighbour does, and later that of the rank's own.
Result<void> MeshBuilder::watch_acceptor(const std::atomic<bool>& accepted) {
  const bool first = first_meets();
  while (!accepted && (parent_ != nullptr || !first)) {
    if (parent_is_over()) return parent_->error();
    std::optional<Error> lost;
    if (first) {
      ::poll(nullptr, 0, kParentMs);
    } else {
      lost = meets() ? neighbour_lost() : lost_meanwhile();
    }
    if (!lost) continue;
    others_word_ = true;
    return std::move(*lost);
  }
  return {};
}

// All ranks have been there: the first one whose link ends, or what it has said before.
std::optional<Error> MeshBuilder::neighbour_lost() {
  const auto ranks = graph_.neighbours(job_.rank);
  std::vector<pollfd> links;
  links.reserve(ranks.size() + 1);
  for (const int r : ranks) links.push_back({peer(r).link.get(), POLLRDHUP, 0});
  links.push_back({accepted_.get(), POLLIN, 0});
  if (::poll(links.data(), links.size(), kParentMs) <= 0) return {};
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (links[i].revents == 0) continue;
    auto word = receive_link_message(links[i].fd, steady_now());
    if (word && word->answer == LinkMessage::Answer::failed) return word->error;
    return lost_connection(ranks[i]);
  }
  return {};
}

Error MeshBuilder::lost_connection(int rank) {
  return {.code = Errc::peer_lost,
          .what = "init: " + peer(rank).who + " was lost: its connection ended",
          .rank = rank};
}

Result<std::thread> MeshBuilder::start_acceptor(Result<void>& accepted, std::atomic<bool>& done) {
  return start_quiet_thread([this, &accepted, &done] {
    try {
      accepted = accept_higher();
    } catch (const std::exception&) {
      accepted = Error{.code = Errc::io, .what = "init: out of memory"};
    }
    done = true;
    ::eventfd_write(accepted_.get(), 1);
  });
}

Result<void> MeshBuilder::publish() {
  const auto address = listen_address(job_);
  if (!address) return address.error();
  auto listener = Listener::open(*address, job_.transport != Transport::tcp, job_.ports);
  if (!listener) return listener.error();
  listener_ = std::move(*listener);
  failpoint("mesh.listens");
  own_ = {self().who,
          job_.size,
          job_.plan,
          job_.links,
          listener_->unix_name(),
          listener_->tcp_endpoint()};
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
    const auto there =
        connect_tcp(holder->tcp, std::min(deadline_, steady_now() + kHandshakeTimeout));
    if (there || there.error().os_errno != ECONNREFUSED) {
      return Error{.code = Errc::usage,
                   .what = fmt::format("init: this process (pid {}) wants to be rank {}, but that "
                                       "rank has joined already: {}",
                                       ::getpid(), job_.rank, holder->who),
                   .rank = job_.rank};
    }
    held = std::move(*stands);
  }
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
    addresses_[r] = std::move(*address);
    failpoint("mesh.address_read");
  }
  return {};
}

Result<void> MeshBuilder::connect_all_lower() {
  for (const int r : lower_) {
    if (auto ok = connect_lower(r, addresses_[r]); !ok) return ok;
  }
  return {};
}

// Tries again if the other side was too busy to keep its own time limit, or if the address was that
// of an earlier process. Between two ranks that have a link it was not, and the store no longer has
// it.
Result<void> MeshBuilder::connect_lower(int rank, RankAddress& address) {
  auto patience = deadline_;
  while (true) {
    const auto connected = try_connect(rank, address);
    if (connected) return {};
    Error error = connected.error();
    const bool gone = means_gone(error);
    if (error.os_errno == ECONNREFUSED) {
      patience =
          std::min(patience, steady_now() + (first_meets() ? kStalePatience : Duration::zero()));
    }
    if (!gone || steady_now() >= patience || parent_is_over()) {
      error.what = "init: connect to " + address.who + ": " + error.what;
      error.rank = rank;
      if (gone) error.code = Errc::peer_lost;
      return error;
    }
    ::poll(nullptr, 0, kRetryMs);
    if (!first_meets()) continue;
    auto fresh = address_of(rank);
    if (!fresh) return fresh.error();
    address = std::move(*fresh);
  }
}

Result<void> MeshBuilder::try_connect(int rank, const RankAddress& address) {
  Peer& entry = peer(rank);
  entry.who = address.who;
  for (const Purpose purpose : stage_) {
    UniqueFd& slot = socket_for(entry, purpose);
    if (slot && !has_ended(slot)) continue;
    if (purpose == Purpose::ring_messages) {
      if (auto ok = connect_more(rank, address, entry); !ok) return ok;
    }
    auto fd = connect_one(rank, address, purpose, entry.same_host);
    if (!fd) return fd.error();
    slot = std::move(*fd);
    failpoint("mesh.connected");
  }
  return {};
}

// Connects them at the same time, because each takes some round trips.
Result<void> MeshBuilder::connect_more(int rank, const RankAddress& address, Peer& entry) {
  std::erase_if(entry.more_data, has_ended);
  const std::size_t wanted = more_sockets(entry.data.get(), job_);
  std::vector<Result<UniqueFd>> made;
  for (std::size_t i = entry.more_data.size(); i < wanted; ++i) made.emplace_back(UniqueFd());
  std::vector<std::thread> threads;
  for (auto& one : made) {
    auto thread = start_quiet_thread([this, rank, &address, &one] {
      bool is_unix = false;
      one = connect_one(rank, address, Purpose::ring_more_data, is_unix);
    });
    if (!thread) one = thread.error();
    if (thread) threads.push_back(std::move(*thread));
  }
  for (auto& thread : threads) thread.join();
  for (auto& one : made) {
    if (!one) return one.error();
    entry.more_data.push_back(std::move(*one));
  }
  return {};
}

// A firewall that drops packets sends no answer: warn the user long before the time is up.
Result<UniqueFd> MeshBuilder::connect_patiently(const RankAddress& address) {
  const TimePoint tell_at = steady_now() + kTellNoAnswer;
  auto fd = connect_tcp(address.tcp, std::min(deadline_, tell_at));
  if (fd || fd.error().os_errno != ETIMEDOUT || tell_at >= deadline_) return fd;
  log_warn(
      "{} does not answer at {}: does a firewall stop rank {}? {} "
      "(--port-range) chooses the ports that ranks listen on",
      address.who, to_string(address.tcp), job_.world_rank(job_.rank), contract::kPortRange);
  return connect_tcp(address.tcp, deadline_);
}

Result<UniqueFd> MeshBuilder::connect_one(int rank, const RankAddress& address, Purpose purpose,
                                          bool& is_unix) {
  is_unix = false;
  if (job_.transport != Transport::tcp && !address.unix_name.empty()) {
    auto local = connect_unix(address.unix_name);
    if (local) {
      failpoint("mesh.before_hello");
      auto proven = handshake_connect(local->get(), secret_, identity(purpose, rank), deadline_);
      if (!proven) return proven.error();
      is_unix = true;
      return local;
    }
  }
  auto fd = connect_patiently(address);
  if (fd) fd = secured(std::move(*fd), TlsChannel::Side::connector, secret_);
  if (!fd) return fd;
  failpoint("mesh.before_hello");
  auto proven = handshake_connect(fd->get(), secret_, identity(purpose, rank), deadline_);
  if (!proven) return proven.error();
  return fd;
}

Result<void> MeshBuilder::accept_higher() {
  const auto take = [&](UniqueFd fd, const HandshakeIdentity& from, bool is_unix) {
    if (!std::binary_search(higher_.begin(), higher_.end(), from.from_rank)) return false;
    Peer& entry = peer(from.from_rank);
    if (meets() != (from.purpose == Purpose::ring_link)) return false;
    if (from.purpose == Purpose::ring_more_data) {
      if (entry.more_data.size() < kMostMore) entry.more_data.push_back(std::move(fd));
      return false;
    }
    UniqueFd& slot = socket_for(entry, from.purpose);
    // A second claim counts only if the process of the first one has gone.
    if (slot && !has_ended(slot)) return false;
    // In the second stage the other thread reads these two.
    if (meets()) {
      entry.who = from.who;
      entry.same_host = is_unix;
    }
    slot = std::move(fd);
    failpoint("mesh.accepted");
    const auto there = [&](Purpose purpose) { return bool(socket_for(entry, purpose)); };
    if (!std::all_of(stage_.begin(), stage_.end(), there)) return false;
    const std::lock_guard lock(to_come_mutex_);
    to_come_.erase(from.from_rank);
    return to_come_.empty();
  };
  HandshakeIdentity expected = identity(Purpose::ring_link, job_.rank);
  expected.from_rank = -1;
  // The thread of the highest rank rejects strangers until it is stopped.
  auto outcome = listener_->accept_until(secret_, expected, take, deadline_);
  return nobody_to_come() ? Result<void>() : outcome;
}

// The error of a rank that was to connect, and has ended; none: there is no such rank.
std::optional<Error> MeshBuilder::lost_meanwhile() {
  std::vector<int> ranks;
  {
    const std::lock_guard lock(to_come_mutex_);
    ranks.assign(to_come_.begin(), to_come_.end());
  }
  std::vector<pollfd> links;
  links.reserve(ranks.size() + 1);
  for (const int r : ranks) links.push_back({peer(r).link.get(), POLLRDHUP, 0});
  links.push_back({accepted_.get(), POLLIN, 0});
  if (::poll(links.data(), links.size(), kParentMs) <= 0) return {};
  std::optional<Error> lost;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (links[i].revents == 0) continue;
    Error error = last_word_of(ranks[i]);
    // That of a rank which names another one is better.
    if (!lost || error.rank != ranks[i]) lost = std::move(error);
  }
  if (!lost) return {};
  ::poll(nullptr, 0, kLastMs);  // it may have connected just before its end
  const std::lock_guard lock(to_come_mutex_);
  const auto missing = [this](int r) { return to_come_.contains(r); };
  return std::any_of(ranks.begin(), ranks.end(), missing) ? lost : std::nullopt;
}

Error MeshBuilder::last_word_of(int rank) {
  const Peer& from = peer(rank);
  char bytes[2048];
  const ssize_t n = ::recv(from.link.get(), bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK);
  const std::string_view frames(bytes, n > 0 ? static_cast<std::size_t>(n) : 0);
  if (auto error = error_in_frames(frames, job_.size)) return std::move(*error);
  return lost_connection(rank);
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
    const bool connected = other.link && (meets() || (other.data && other.messages));
    if (r == job_.rank || connected) continue;
    if (seen_.contains(r) || other.link) {
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

Result<std::string> listen_address(const JobView& job) {
  if (!job.interface.empty()) {
    auto chosen = choose_address(job.interface, host_addresses());
    if (!chosen)
      return Error{.code = Errc::usage,
                   .what = std::string(contract::kInterface) + ": " + chosen.error().what};
    return chosen;
  }
  const std::string host = store_host(job.store_url);
  // Without an interface any address that leads out of this host will do.
  auto towards = local_address_towards(host.empty() ? "192.0.2.1" : host);
  return towards.empty() ? any_address(host_addresses()) : towards;
}

bool Mesh::one_host() const {
  return std::all_of(peers.begin(), peers.end(),
                     [](const Peer& peer) { return !peer.link || peer.same_host; });
}

std::unique_ptr<MeshMaker> make_mesh_maker(const JobView& job, const Secret& secret, Store& store,
                                           const std::string& prefix, TimePoint deadline,
                                           const ParentEnd* parent, Mesh& mesh) {
  return std::make_unique<MeshBuilder>(job, secret, store, prefix, deadline, parent, mesh);
}

}  // namespace dlaunch
