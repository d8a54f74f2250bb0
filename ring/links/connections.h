// Connections: this process's connections with other ranks, each proven by the handshake
// (rendezvous/handshake.h). One thread of the process accepts those that come, and makes those that
// its communicators order, for as long as one of them needs it. So all communicators and rounds of
// a process share one TCP port.
//
// Many strangers may connect at once: see rendezvous/crowd.h. A connection that does not prove the
// secret, the job, the round and a rank is dropped without harm.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/complaints.h"
#include "base/endpoint.h"
#include "base/result.h"
#include "base/secret.h"
#include "base/unique_fd.h"
#include "rendezvous/crowd.h"
#include "rendezvous/handshake.h"
#include "ring/links/listener.h"

namespace dlaunch {

// HandshakeIdentity::job_id for one bootstrap of one rank, which the job and the instance name: a
// process may have several communicators, and repeat a bootstrap. link_id: JobView::link_id().
// instance: random; the rank tells it to the others together with its address.
std::string link_id_of(std::string_view link_id, std::string_view instance);

class Connections final {
 public:
  // A communicator. The thread calls these one at a time, and never after remove().
  class Client {
   public:
    virtual ~Client() = default;
    virtual void on_connection(UniqueFd fd, const HandshakeIdentity& from, bool is_unix) = 0;
    // The end of an order: a proven connection, or an error for which trying on is of no use.
    virtual void on_made(std::uint64_t order, Result<UniqueFd> fd) = 0;
    // An attempt has failed. False: the rank has gone.
    virtual bool tries_on(std::uint64_t order, const Error& error) = 0;
    // Of post().
    virtual void on_posted(std::uint64_t what) = 0;
    // The process cannot accept now, because it lacks descriptors, or ever, because it lacks
    // memory.
    virtual void on_failure(const Error& error) = 0;
  };

  // Where a rank listens: it is tried by AF_UNIX first, unless that has no name.
  struct Target {
    std::string who;       // "rank 3 (pid 4711 on a)"
    std::string instance;  // see link_id_of()
    std::string unix_name;
    Endpoint tcp;
    bool operator==(const Target&) const = default;
  };

  // The process's own, which it shares with other communicators that listen at the same address
  // with the same secret. `address`, with_unix, ports: see Listener::open().
  static Result<std::shared_ptr<Connections>> of_process(const Secret& secret,
                                                         const std::string& address, bool with_unix,
                                                         PortRange ports);
  ~Connections();  // not on its own thread
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  const std::string& unix_name() const { return listener_.unix_name(); }  // "" without
  const Endpoint& tcp_endpoint() const { return listener_.tcp_endpoint(); }

  // From now on the client gets connections for the rank self.to_rank of that instance and round.
  // The client must outlive remove(), which may wait for a call that runs: do not hold a lock that
  // the client's calls need.
  std::uint64_t add(const HandshakeIdentity& self, Client& client);
  void remove(std::uint64_t id);
  // Connects for a client, and tries again until tries_on() says no. Returns at once; any thread.
  void connect(std::uint64_t id, std::uint64_t order, Target to, HandshakeIdentity self);
  // Calls on_posted() on the thread, after on_connection() for all connections whose other end has
  // been welcomed by now. Any thread.
  void post(std::uint64_t id, std::uint64_t what);
  // The process ends, and with it OpenSSL, which the thread may be using: ends the thread. No
  // connection is made or accepted afterwards. Idempotent; not on the thread itself.
  void stop();
  // In a forked child: closes its copies of the listening sockets.
  void close_in_child();

 private:
  struct Key {
    pid_t pid = 0;  // a forked child has none of its parent's
    std::string secret;
    bool encrypts = false;
    std::string address;
    bool with_unix = false;
    PortRange ports;
    bool operator==(const Key&) const = default;
  };
  struct Added {
    HandshakeIdentity self;
    Client* client = nullptr;
  };
  // A connection that came, without any proof yet.
  struct Stranger {
    UniqueFd fd;
    bool is_unix = false;
    std::string address;
    Handshake handshake;
    TimePoint since;
  };
  // A connection that was ordered.
  struct Attempt {
    std::uint64_t client = 0, order = 0;
    Target to;
    HandshakeIdentity self;
    UniqueFd fd{};            // empty: waits for `next`
    bool connecting = false;  // by TCP
    bool is_unix = false;
    std::unique_ptr<Handshake> handshake{};
    TimePoint since{}, next{};  // when it began; when to try again, or to warn of silence
    Duration pause{};
    bool warned = false;
  };

  Connections(Key key, const Secret& secret, Listener listener);
  void main();
  bool turn();
  void wait();
  TimePoint next_time(TimePoint now) const;
  Crowd crowd() const;
  std::optional<HandshakeIdentity> expected_for(const HandshakeIdentity& claimed);
  void forget_orders_of_removed();
  void advance_strangers(const pollfd* polled, TimePoint now);
  bool let_in(bool by_unix);
  void proven(Stranger& stranger);
  void take_orders();
  void take_posted();
  void advance(Attempt& attempt, short events, TimePoint now);
  void begin(Attempt& attempt, TimePoint now);
  Result<void> begin_handshake(Attempt& attempt);
  void tried(Attempt& attempt, const Error& error, TimePoint now);
  void made(Attempt& attempt, Result<UniqueFd> fd);
  void warn(Attempt& attempt, std::string_view why, TimePoint now) const;
  void fail(const Error& error);

  const Key key_;
  const Secret secret_;
  Listener listener_;
  UniqueFd wake_;
  std::thread thread_;
  std::mutex stop_mutex_;
  std::mutex clients_mutex_;  // held while a client is called
  std::map<std::uint64_t, Added> clients_;
  std::uint64_t last_client_ = 0;
  std::mutex orders_mutex_;
  std::vector<Attempt> orders_;
  struct Posted {
    std::uint64_t client = 0, what = 0;
  };
  std::vector<Posted> posted_;        // likewise
  bool stops_ = false;                // under orders_mutex_
  std::atomic<bool> is_over_{false};  // the thread has ended, or is about to
  // Only for the thread.
  std::list<Stranger> strangers_;  // the oldest first
  std::list<Attempt> attempts_;    // done: without a client
  std::vector<pollfd> polled_;
  Complaints complaints_;
  bool lacks_room_ = false;
};

}  // namespace dlaunch
