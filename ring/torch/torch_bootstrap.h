// How the ranks of a PyTorch group get one communicator. In the default group rank 0 publishes the
// URL in c10d's store: under dlaunch the launcher's own rendezvous, elsewhere (torchrun,
// or no launcher) a port of rank 0. Other groups are made from the default one.
#pragma once

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <climits>

#include "base/contract.h"
#include "ring/torch/torch_work.h"

namespace dlring_torch {

constexpr const char* kStoreKey = "dlring/url";

inline std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Socket {
  int fd = -1;
  Socket() = default;
  ~Socket() {
    if (fd >= 0) ::close(fd);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
};

// The host of c10d's store: all ranks have a route to it.
inline std::string store_host(c10::intrusive_ptr<c10d::Store> store) {
  while (auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    store = prefixed->getUnderlyingStore();
  }
  if (const auto* tcp = dynamic_cast<c10d::TCPStore*>(store.get())) return tcp->getHost();
  const std::string master = variable("MASTER_ADDR");
  if (!master.empty()) return master;
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

// This host's address on the route to `towards`; sends nothing. "127.0.0.1" without a route.
inline std::string own_address(const std::string& towards) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(towards.c_str(), "9", &hints, &found) != 0) return "127.0.0.1";
  std::string address = "127.0.0.1";
  for (auto* at = found; at != nullptr; at = at->ai_next) {
    Socket probe;
    probe.fd = ::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    auto* const name = reinterpret_cast<sockaddr*>(&own);
    char text[NI_MAXHOST];
    if (::connect(probe.fd, at->ai_addr, at->ai_addrlen) == 0 &&
        ::getsockname(probe.fd, name, &size) == 0 &&
        ::getnameinfo(name, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
      address = text;
      break;
    }
  }
  ::freeaddrinfo(found);
  return address;
}

inline bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

// The first address other than loopback's, if the store's own name leads to that; loopback's if
// there is none.
inline std::string address_for_others() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "127.0.0.1";
  std::string best = "127.0.0.1";
  for (const auto* at = all; at != nullptr; at = at->ifa_next) {
    const bool usable = at->ifa_addr != nullptr && at->ifa_addr->sa_family == AF_INET &&
                        (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0;
    char text[NI_MAXHOST];
    if (usable && ::getnameinfo(at->ifa_addr, sizeof(sockaddr_in), text, sizeof text, nullptr, 0,
                                NI_NUMERICHOST) == 0) {
      best = text;
      break;
    }
  }
  ::freeifaddrs(all);
  return best;
}

// A free port of that address, held by `holder`: it binds and never listens, which keeps others
// away and lets libdlring's listener in.
inline int hold_port(const std::string& address, Socket& holder) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), "0", &hints, &found) != 0) {
    throw std::runtime_error("dlring: " + address + " is no address to listen on");
  }
  const int on = 1;
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  holder.fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool held = ::setsockopt(holder.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                    ::bind(holder.fd, found->ai_addr, found->ai_addrlen) == 0 &&
                    ::getsockname(holder.fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  ::freeaddrinfo(found);
  if (!held) throw std::runtime_error("dlring: no port of " + address + " can be had");
  // The port has the same place for IPv4 and IPv6.
  return ntohs(reinterpret_cast<sockaddr_in*>(&own)->sin_port);
}

// This host's address for members that find each other by handles: the one on the route to the
// store. If the store's name is loopback's, all users are on this host.
inline std::string address_for_members(const c10::intrusive_ptr<c10d::Store>& store) {
  const std::string host = store_host(store);
  const std::string address = own_address(host);
  const bool stays = host == "localhost" || is_loopback(host) || !is_loopback(address);
  return stays ? address : address_for_others();
}

// For rank 0. One port serves all default groups that this process ever makes.
inline std::string choose_url(const c10::intrusive_ptr<c10d::Store>& store, int size,
                              Socket& holder) {
  const bool whole_job = variable("RANK") == "0" && variable("WORLD_SIZE") == std::to_string(size);
  if (whole_job && !variable(dlaunch::contract::kRdzv).empty()) return "env://";
  static std::string url;
  if (url.empty()) {
    std::string address = own_address(store_host(store));
    const bool one_host = variable("LOCAL_WORLD_SIZE") == std::to_string(size);
    if (!one_host && is_loopback(address)) address = address_for_others();
    const int port = hold_port(address, holder);
    const bool v6 = address.find(':') != std::string::npos;
    url = "tcp://" + (v6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
  }
  return url;
}

inline dl_comm* initialised(const char* url, const dl_options& options) {
  dl_comm* comm = nullptr;
  const auto result = dl_init(url, &options, &comm);
  if (result != DL_OK) std::rethrow_exception(exception_of(nullptr, result));
  return comm;
}

inline dl_comm* bootstrap(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                          dl_options options) {
  options.rank = rank;
  options.size = size;
  std::string url = "env://";
  Socket holder;
  if (size > 1 && rank == 0) {
    url = choose_url(store, size, holder);
    store->set(kStoreKey, std::vector<std::uint8_t>(url.begin(), url.end()));
  } else if (size > 1) {
    const auto told = store->get(kStoreKey);  // waits for it
    url.assign(told.begin(), told.end());
  }
  return initialised(url.c_str(), options);
}

// The communicator of all ranks, while it exists.
class World {
 public:
  std::shared_ptr<Comm> lock() const {
    const std::lock_guard lock(mutex_);
    return comm_.lock();
  }
  void set(const std::shared_ptr<Comm>& comm) {
    const std::lock_guard lock(mutex_);
    comm_ = comm;
  }

 private:
  mutable std::mutex mutex_;
  std::weak_ptr<Comm> comm_;
};
inline World world;

// Enters the launcher's rounds, and waits for the first.
inline std::shared_ptr<Comm> join_rounds() {
  if (world.lock()) throw std::runtime_error("dlring: this process is in a world already");
  dl_options options;
  dl_options_init(&options);
  options.elastic = 1;
  auto made = std::make_shared<Comm>(initialised("env://", options));
  made->elastic = true;
  world.set(made);
  return made;
}

// A time limit of c10d's in seconds. With its default, half an hour, libdlring's variables decide.
template <class Time>
double limit_of(Time time) {
  const std::chrono::duration<double> seconds = time;
  return seconds.count() > 0 && seconds != std::chrono::minutes(30) ? seconds.count() : -1;
}

// A group of these ranks of `whole`, which alone call this. The caller must hold `collectives`
// and `starting`.
inline std::shared_ptr<Comm> part_of(const std::shared_ptr<Comm>& whole,
                                     const std::vector<int>& ranks, const std::string& name,
                                     double op_timeout_s) {
  const int tag = static_cast<int>(std::hash<std::string>()(name) & INT_MAX);
  dl_comm* comm = nullptr;
  whole->check(dl_group(whole->get(), ranks.data(), static_cast<int>(ranks.size()), tag,
                        op_timeout_s, &comm));
  return std::make_shared<Comm>(comm, whole);
}

inline std::shared_ptr<Comm> communicator(const c10d::DistributedBackendOptions& given) {
  dl_options options;
  dl_options_init(&options);
  options.init_timeout_s = options.op_timeout_s = limit_of(given.timeout);
  const std::vector<int> ranks(given.global_ranks_in_group.begin(),
                               given.global_ranks_in_group.end());
  const auto whole = world.lock();
  const bool all = ranks.empty() || variable("WORLD_SIZE") == std::to_string(ranks.size());
  if (whole && !ranks.empty()) {
    const std::scoped_lock lock(whole->collectives, whole->starting);
    return part_of(whole, ranks, given.group_id, options.op_timeout_s);
  }
  if (whole && whole->elastic) return whole;
  if (all) {
    auto made =
        std::make_shared<Comm>(bootstrap(given.store, given.group_rank, given.group_size, options));
    world.set(made);
    return made;
  }
  throw std::runtime_error(
      "dlring: a group of some ranks needs a group of all ranks: call "
      "init_process_group(\"dlring\"), or new_group(backend=\"dlring\") of all ranks, first");
}

}  // namespace dlring_torch
