// EtcdClient: requests to a cluster of etcd servers, over their JSON gateway. It tries its
// endpoints in turn, beginning with the one that answered last, until one answers or the deadline
// has passed; the error then names the cause. A silent endpoint costs its share of the time, so
// that the others can still answer in time. Blocks; for one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/endpoint.h"
#include "rendezvous/etcd_message.h"
#include "rendezvous/http_client.h"
#include "rendezvous/store.h"

namespace dlaunch {

// How to reach a cluster.
struct EtcdAccess {
  std::vector<Endpoint> endpoints;
  std::string prefix;  // of all our keys; empty becomes "/dlaunch/"
  bool tls = false;
  HttpTls files;
  std::string user, password;  // empty: no log-in; never printed
};

// url: "etcd://h1:2379,h2:2379/prefix" or, by TLS, "etcds://…"; ports are optional. Credentials
// come from etcdctl's variables, because every user of the host sees a command line: ETCDCTL_USER
// ("name" or "name:password"), ETCDCTL_PASSWORD, ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY.
// Errc::usage.
Result<EtcdAccess> etcd_access(std::string_view url, const Environment& environment);

class EtcdClient {
 public:
  static Result<std::unique_ptr<EtcdClient>> open(EtcdAccess access);

  // again: a second execution does no harm. If it would and the connection ends before the answer,
  // the error is peer_lost: the outcome is unknown.
  Result<EtcdAnswer> transact(const EtcdTransaction& transaction, TimePoint deadline,
                              bool again = true);
  // Returns when a key with the prefix has changed since that revision, at the deadline, and now
  // and then without a reason: the caller must look.
  void wait_change(const std::string& prefix, std::int64_t revision, TimePoint deadline);

  // A lease that expires after so many seconds unless it is kept.
  Result<std::int64_t> grant(std::int64_t seconds, TimePoint deadline);
  Result<bool> keep(std::int64_t lease, TimePoint deadline);  // false: it has expired
  Result<void> revoke(std::int64_t lease, TimePoint deadline);

  const std::string& prefix() const { return access_.prefix; }
  // "etcd h1:2379, h2:2379"
  std::string name() const;

 private:
  EtcdClient(EtcdAccess access, std::unique_ptr<HttpClient> http, std::unique_ptr<HttpClient> watch)
      : access_(std::move(access)), http_(std::move(http)), watch_(std::move(watch)) {}
  Result<std::string> call(const std::string& path, const std::string& body, TimePoint deadline,
                           bool again = true);
  Result<std::string> ask_as_user(const std::string& path, const std::string& body,
                                  TimePoint deadline, std::size_t left);
  Result<std::string> ask(const std::string& path, const std::string& body, TimePoint deadline);
  Error unanswered(Error error);
  Result<void> log_in(TimePoint deadline);
  std::string url(const std::string& path) const;
  Error failed(Errc code, const std::string& why) const;

  const EtcdAccess access_;
  std::unique_ptr<HttpClient> http_, watch_;
  std::size_t at_ = 0;        // the endpoint to ask next
  std::size_t unproven_ = 0;  // so many of the latest answers had no valid proof of identity
  std::string token_;
};

}  // namespace dlaunch
