#include "rendezvous/etcd_client.h"

#include <poll.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"

namespace dlaunch {
namespace {

constexpr std::uint16_t kPort = 2379;
// The time that one server has for one request before we ask another one.
constexpr Duration kPatience = std::chrono::seconds(5);
constexpr Duration kLeastShare = std::chrono::milliseconds(100);
constexpr int kLongestPauseMs = 500, kWatchPauseMs = 50;
constexpr int kMostLogins = 3;                              // of one call
constexpr std::size_t kLongestLine = std::size_t{4} << 20;  // of a watch

// The end of one server's share of the time, if so many servers have not been asked yet.
TimePoint share_of(TimePoint deadline, std::size_t servers) {
  const TimePoint now = steady_now();
  const Duration share = (deadline - now) / static_cast<long>(servers);
  return now + std::clamp(share, kLeastShare, kPatience);
}

void pause(int ms, TimePoint deadline) {
  const int left = poll_timeout_ms(steady_now(), deadline);
  ::poll(nullptr, 0, left < 0 ? ms : std::min(ms, left));
}

}  // namespace

Result<EtcdAccess> etcd_access(std::string_view url, const Environment& environment) {
  const auto refuse = [&](std::string_view why) {
    return Error{.code = Errc::usage,
                 .what = fmt::format("'{}' is not etcd://HOST:PORT,…/PREFIX: {}", url, why)};
  };
  EtcdAccess access;
  access.tls = url.starts_with("etcds://");
  if (!access.tls && !url.starts_with("etcd://")) return refuse("another scheme");
  auto rest = url.substr(access.tls ? 8 : 7);
  // Every list of processes would show a name or password here.
  if (rest.find('@') != rest.npos) return refuse("ETCDCTL_USER names the user, not the URL");
  const auto slash = std::min(rest.find('/'), rest.size());
  for (const auto place : split_words(rest.substr(0, slash), ',')) {
    auto endpoint = parse_endpoint(place, kPort);
    if (!endpoint) return refuse(endpoint.error().what);
    access.endpoints.push_back(std::move(*endpoint));
  }
  if (access.endpoints.empty()) return refuse("no server is named");
  access.prefix = rest.substr(slash);
  while (access.prefix.ends_with('/')) access.prefix.pop_back();
  if (access.prefix.empty()) access.prefix = "/dlaunch";
  access.prefix += '/';
  const auto said = [&](const char* name) {
    return environment ? environment(name).value_or("") : std::string();
  };
  access.files = {said("ETCDCTL_CACERT"), said("ETCDCTL_CERT"), said("ETCDCTL_KEY")};
  access.user = said("ETCDCTL_USER");
  access.password = said("ETCDCTL_PASSWORD");
  const auto colon = access.user.find(':');
  if (access.password.empty() && colon != access.user.npos) {
    access.password = access.user.substr(colon + 1);
    access.user.resize(colon);
  }
  return access;
}

Result<std::unique_ptr<EtcdClient>> EtcdClient::open(EtcdAccess access) {
  auto http = HttpClient::open(access.files);
  if (!http) return http.error();
  auto watch = HttpClient::open(access.files);
  if (!watch) return watch.error();
  return std::unique_ptr<EtcdClient>(
      new EtcdClient(std::move(access), std::move(*http), std::move(*watch)));
}

std::string EtcdClient::name() const {
  std::string names = "etcd";
  for (const auto& endpoint : access_.endpoints) {
    names += (&endpoint == &access_.endpoints.front() ? " " : ", ") + to_string(endpoint);
  }
  return names;
}

std::string EtcdClient::url(const std::string& path) const {
  return (access_.tls ? "https://" : "http://") + to_string(access_.endpoints[at_]) + "/v3/" + path;
}

Error EtcdClient::failed(Errc code, const std::string& why) const {
  return {.code = code, .what = fmt::format("{}: {}", name(), why)};
}

// Asks one server once. Errc::io: it did nothing; peer_lost: the outcome is unknown; others: it
// refused.
Result<std::string> EtcdClient::ask(const std::string& path, const std::string& body,
                                    TimePoint deadline) {
  auto reply = http_->post(url(path), body, token_, deadline);
  if (!reply) return unanswered(reply.error());
  unproven_ = 0;
  if (reply->status == 200) return std::move(reply->body);
  const auto refusal = decode_etcd_refusal(reply->status, reply->body);
  if (refusal.come_again()) return Error{.code = Errc::peer_lost, .what = refusal.text};
  if (refusal.log_in() && !access_.user.empty() && path != "auth/authenticate") {
    return Error{.code = Errc::aborted, .what = refusal.text};
  }
  const Errc code = refusal.forbidden() || refusal.log_in() ? Errc::auth
                    : refusal.code == 5                     ? Errc::not_found
                                                            : Errc::protocol;
  return Error{.code = code, .what = refusal.text};
}

// A server that cannot prove its identity is like one that is not there, until all have failed to.
Error EtcdClient::unanswered(Error error) {
  unproven_ = error.code == Errc::auth ? unproven_ + 1 : 0;
  if (error.code == Errc::timeout) error.code = Errc::peer_lost;
  if (error.code == Errc::auth && unproven_ < access_.endpoints.size()) error.code = Errc::io;
  return error;
}

// As ask(), after a log-in if one is due. An etcd without users refuses the log-in, but not the
// request. left: the number of servers that share the time.
Result<std::string> EtcdClient::ask_as_user(const std::string& path, const std::string& body,
                                            TimePoint deadline, std::size_t left) {
  if (!access_.user.empty() && token_.empty()) {
    if (auto done = log_in(share_of(deadline, left)); !done) {
      Error error = done.error();
      if (error.code == Errc::auth) return error;
      if (error.code == Errc::peer_lost) error.code = Errc::io;  // the request was not sent
      if (error.code == Errc::io) return error;
    }
  }
  return ask(path, body, share_of(deadline, left));
}

Result<void> EtcdClient::log_in(TimePoint deadline) {
  token_.clear();
  auto body = ask("auth/authenticate", encode_etcd_login(access_.user, access_.password), deadline);
  if (!body) return body.error();
  auto token = decode_etcd_login(*body);
  if (!token) return token.error();
  token_ = *token;
  return {};
}

Result<std::string> EtcdClient::call(const std::string& path, const std::string& body,
                                     TimePoint deadline, bool again) {
  int pause_ms = 20, logins = 0;
  const std::size_t servers = access_.endpoints.size();
  for (std::size_t tries = 0;;) {
    auto reply = ask_as_user(path, body, deadline, servers - tries % servers);
    if (reply) return reply;
    const Error& error = reply.error();
    if (error.code == Errc::aborted) {  // the token is too old
      token_.clear();
      if (++logins > kMostLogins) return failed(Errc::auth, error.what);
      continue;
    }
    const bool passes = error.code == Errc::io || error.code == Errc::peer_lost;
    // The next call must not wait for the same server once more.
    if (passes || error.code == Errc::auth) at_ = (at_ + 1) % servers;
    if (!passes) return failed(error.code, error.what);
    if (error.code == Errc::peer_lost && !again) return failed(Errc::peer_lost, error.what);
    if (steady_now() >= deadline) return failed(Errc::timeout, error.what);
    if (++tries % servers != 0) continue;
    pause(pause_ms, deadline);
    pause_ms = std::min(pause_ms * 2, kLongestPauseMs);
  }
}

Result<EtcdAnswer> EtcdClient::transact(const EtcdTransaction& transaction, TimePoint deadline,
                                        bool again) {
  auto body = call("kv/txn", encode(transaction), deadline, again);
  if (!body) return body.error();
  return decode_etcd_answer(*body);
}

void EtcdClient::wait_change(const std::string& prefix, std::int64_t revision, TimePoint deadline) {
  std::string line;
  bool changed = false;
  const auto take = [&](std::string_view piece) {
    for (const char c : piece) {
      if (c != '\n') {
        if (line.size() == kLongestLine) return false;
        line += c;
        continue;
      }
      const auto told = decode_etcd_watch(line);
      line.clear();
      changed = told && *told;
      if (!told || changed) return false;
    }
    return true;
  };
  const TimePoint until = std::min(deadline, steady_now() + kPatience);
  (void)watch_->post(url("watch"), encode_etcd_watch(prefix, revision + 1), token_, until, take);
  // The next request finds out about any other cause of the end.
  if (!changed && steady_now() < until) pause(kWatchPauseMs, until);
}

Result<std::int64_t> EtcdClient::grant(std::int64_t seconds, TimePoint deadline) {
  auto body = call("lease/grant", encode_etcd_grant(seconds), deadline);
  if (!body) return body.error();
  return decode_etcd_grant(*body);
}

Result<bool> EtcdClient::keep(std::int64_t lease, TimePoint deadline) {
  auto body = call("lease/keepalive", encode_etcd_lease(lease), deadline);
  if (!body) return body.error();
  return decode_etcd_kept(*body);
}

Result<void> EtcdClient::revoke(std::int64_t lease, TimePoint deadline) {
  auto body = call("lease/revoke", encode_etcd_lease(lease), deadline);
  if (!body && body.error().code != Errc::not_found) return body.error();
  return {};
}

}  // namespace dlaunch
