#include "ring/mesh.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "base/codec.h"
#include "base/rank_set.h"
#include "base/units.h"
#include "rendezvous/handshake.h"
#include "ring/listener.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMaxText = 256;

// What a rank publishes about itself.
struct Address {
  std::string who;
  std::string unix_name;
  Endpoint tcp;
};

std::string encode(const Address& address) {
  Writer out;
  out.put_string(address.who);
  out.put_string(address.unix_name);
  out.put_string(address.tcp.host);
  out.put(address.tcp.port);
  return out.take();
}

Result<Address> decode(std::string_view bytes) {
  Reader in(bytes);
  Address address;
  address.who = in.get_string(kMaxText);
  address.unix_name = in.get_string(100);
  address.tcp.host = in.get_string(kMaxText);
  address.tcp.port = in.get<std::uint16_t>();
  if (!in.done()) return Error{.code = Errc::protocol, .what = "a rank's address is malformed"};
  return address;
}

std::string describe_self(int rank) {
  char host[256] = "?";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("rank {} (pid {} on {})", rank, ::getpid(), std::string(host).substr(0, 100));
}

std::string store_host(const std::string& url) {
  // file:// names no host: whatever leads out of this one will do.
  if (!url.starts_with("tcp://")) return "192.0.2.1";
  const auto endpoint = parse_endpoint(std::string_view(url).substr(6));
  return endpoint ? endpoint->host : "127.0.0.1";
}

std::string key_of(const std::string& prefix, int rank) {
  return prefix + "/addr/" + std::to_string(rank);
}

// The store knows who has come as far as publishing an address.
Error not_arrived(const JobView& job, Store& store, const std::string& prefix, Duration waited) {
  RankSet missing;
  const auto soon = steady_now() + std::chrono::seconds(2);
  for (int r = 0; r < job.size; ++r) {
    const auto value = store.try_get(key_of(prefix, r), soon);
    if (value && !value->has_value()) missing.insert(r);
  }
  const std::string who = missing.empty() ? "all ranks have arrived but not all could connect"
                                          : "rank " + format_rank_set(missing) + " of " +
                                                std::to_string(job.size) + " have not arrived";
  return Error{.code = Errc::timeout,
               .what = "init: after " + format_duration(waited) + ": " + who};
}

class MeshBuilder {
 public:
  MeshBuilder(const JobView& job, const Secret& secret, Store& store, const std::string& prefix,
              TimePoint deadline)
      : job_(job), secret_(secret), store_(store), prefix_(prefix), deadline_(deadline) {
    mesh_.peers.resize(static_cast<std::size_t>(job.size));
  }

  Result<Mesh> build();

 private:
  Result<void> publish();
  std::thread start_acceptor(Result<void>& accepted);
  Result<void> connect_all_lower();
  Result<void> connect_lower(int peer, const Address& address);
  Result<UniqueFd> connect_one(int peer, const Address& address, Purpose purpose, bool& is_unix);
  Result<void> accept_higher();
  HandshakeIdentity identity(Purpose purpose, int to) const {
    return {purpose, job_.job_id, job_.round, job_.rank, to, self().who};
  }
  const Peer& self() const { return mesh_.peers[static_cast<std::size_t>(job_.rank)]; }

  const JobView& job_;
  const Secret& secret_;
  Store& store_;
  const std::string& prefix_;
  const TimePoint deadline_;
  const TimePoint started_ = steady_now();
  std::optional<Listener> listener_;
  Mesh mesh_;
};

Result<Mesh> MeshBuilder::build() {
  mesh_.peers[static_cast<std::size_t>(job_.rank)].who = describe_self(job_.rank);
  if (auto ok = publish(); !ok) return ok.error();
  if (!listener_) {
    if (auto ok = connect_all_lower(); !ok) return ok.error();
    return std::move(mesh_);
  }
  // Higher ranks are let in while this one still waits for lower ones: strangers never pile up. The
  // two sides write different entries of the mesh.
  Result<void> accepted;
  std::thread acceptor = start_acceptor(accepted);
  const auto connected = connect_all_lower();
  if (!connected) listener_->stop();
  acceptor.join();
  if (!connected) return connected.error();
  if (accepted) return std::move(mesh_);
  if (accepted.error().code != Errc::timeout) return accepted.error();
  return not_arrived(job_, store_, prefix_, steady_now() - started_);
}

std::thread MeshBuilder::start_acceptor(Result<void>& accepted) {
  // The program's signals are for the program's own threads.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  std::thread thread([this, &accepted] { accepted = accept_higher(); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return thread;
}

Result<void> MeshBuilder::connect_all_lower() {
  // All addresses first: once a rank has connected to rank 0 it needs the store no more.
  std::vector<Address> lower;
  for (int r = 0; r < job_.rank; ++r) {
    auto value = store_.get(key_of(prefix_, r), deadline_);
    if (!value && value.error().code == Errc::timeout) {
      return not_arrived(job_, store_, prefix_, steady_now() - started_);
    }
    if (!value) return value.error();
    auto address = decode(*value);
    if (!address) return address.error();
    lower.push_back(std::move(*address));
  }
  for (int r = 0; r < job_.rank; ++r) {
    if (auto ok = connect_lower(r, lower[static_cast<std::size_t>(r)]); !ok) return ok;
  }
  return {};
}

// The highest rank connects to all others: nobody calls it, so it does not listen.
Result<void> MeshBuilder::publish() {
  Address own{self().who, "", {}};
  if (job_.rank + 1 < job_.size) {
    const auto towards = local_address_towards(store_host(job_.store_url));
    auto listener = Listener::open(towards, job_.transport != "tcp");
    if (!listener) return listener.error();
    listener_ = std::move(*listener);
    own.unix_name = listener_->unix_name();
    own.tcp = listener_->tcp_endpoint();
  }
  return store_.set(key_of(prefix_, job_.rank), encode(own), deadline_);
}

Result<void> MeshBuilder::connect_lower(int peer, const Address& address) {
  Peer& entry = mesh_.peers[static_cast<std::size_t>(peer)];
  entry.who = address.who;
  for (const Purpose purpose : {Purpose::ring_link, Purpose::ring_data}) {
    auto fd = connect_one(peer, address, purpose, entry.same_host);
    if (!fd) {
      Error error = fd.error();
      error.what = "init: connect to " + address.who + ": " + error.what;
      error.rank = peer;
      if (error.code == Errc::io) error.code = Errc::peer_lost;
      return error;
    }
    (purpose == Purpose::ring_link ? entry.link : entry.data) = std::move(*fd);
  }
  return {};
}

Result<UniqueFd> MeshBuilder::connect_one(int peer, const Address& address, Purpose purpose,
                                          bool& is_unix) {
  is_unix = false;
  if (job_.transport != "tcp" && !address.unix_name.empty()) {
    auto local = connect_unix(address.unix_name);
    if (local) {
      auto proven = handshake_connect(local->get(), secret_, identity(purpose, peer), deadline_);
      if (!proven) return proven.error();
      is_unix = true;
      return local;
    }
  }
  auto fd = connect_tcp(address.tcp, deadline_);
  if (!fd) return fd;
  auto proven = handshake_connect(fd->get(), secret_, identity(purpose, peer), deadline_);
  if (!proven) return proven.error();
  return fd;
}

Result<void> MeshBuilder::accept_higher() {
  int missing = 2 * (job_.size - 1 - job_.rank);
  auto take = [&](UniqueFd fd, const HandshakeIdentity& peer, bool is_unix) {
    if (peer.from_rank <= job_.rank || peer.from_rank >= job_.size) return false;
    Peer& entry = mesh_.peers[static_cast<std::size_t>(peer.from_rank)];
    UniqueFd& slot = peer.purpose == Purpose::ring_link ? entry.link : entry.data;
    if (slot) return false;  // the pair is connected already: a second claim is not believed
    entry.who = peer.who;
    entry.same_host = is_unix;
    slot = std::move(fd);
    return --missing == 0;
  };
  HandshakeIdentity expected = identity(Purpose::ring_link, job_.rank);
  expected.from_rank = -1;
  return listener_->accept_until(secret_, expected, take, deadline_);
}

Result<void> wait_for(int fd, short events, TimePoint deadline) {
  pollfd p{fd, events, 0};
  while (::poll(&p, 1, poll_timeout_ms(steady_now(), deadline)) <= 0) {
    if (steady_now() >= deadline) {
      return Error{.code = Errc::timeout, .what = "init: a peer does not answer on its link"};
    }
  }
  return {};
}

constexpr char kVoteYes = 'Y', kVoteNo = 'N';
constexpr std::size_t kMaxFds = 4;

}  // namespace

bool Mesh::one_host() const {
  for (const auto& peer : peers) {
    if (peer.link && !peer.same_host) return false;
  }
  return true;
}

Result<Mesh> connect_mesh(const JobView& job, const Secret& secret, Store& store,
                          const std::string& prefix, TimePoint deadline) {
  return MeshBuilder(job, secret, store, prefix, deadline).build();
}

Result<void> send_descriptors(int link, bool agreed, const std::vector<int>& fds,
                              TimePoint deadline) {
  char vote = agreed ? kVoteYes : kVoteNo;
  iovec payload{&vote, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)] = {};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  while (::sendmsg(link, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
    if (errno == EAGAIN) {
      if (auto ready = wait_for(link, POLLOUT, deadline); !ready) return ready;
    } else if (errno != EINTR) {
      return errno_error("init: pass shared memory", errno);
    }
  }
  return {};
}

Result<Descriptors> receive_descriptors(int link, TimePoint deadline) {
  char vote = 0;
  iovec payload{&vote, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)] = {};
  msghdr message{};
  ssize_t n = -1;
  while (n < 0) {
    if (auto ready = wait_for(link, POLLIN, deadline); !ready) return ready.error();
    message = {};
    message.msg_iov = &payload;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    n = ::recvmsg(link, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
      return errno_error("init: receive shared memory", errno);
    }
  }
  Descriptors got;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      got.fds.emplace_back(fd);
    }
  }
  if (n == 0) return Error{.code = Errc::peer_lost, .what = "init: a peer ended"};
  if (vote != kVoteYes && vote != kVoteNo) {
    return Error{.code = Errc::protocol, .what = "init: a peer sent something else than its vote"};
  }
  got.agreed = vote == kVoteYes;
  return got;
}

}  // namespace dlaunch
