// The parts of etcd:// that other stores lack: messages, several servers, restarts, log-in.
#include <unistd.h>

#include <thread>

#include <doctest/doctest.h>

#include "rendezvous/etcd_client.h"
#include "rendezvous/etcd_store.h"
#include "tests/unit/rendezvous/etcd_server.h"
#include "tests/unit/rendezvous/fake_etcd.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

TimePoint in_etcd_time() { return steady_now() + 20s; }

std::unique_ptr<Store> store_at(const std::string& url, const std::string& job,
                                const Environment& environment = {}) {
  auto store = open_store(url, {job, Secret(), "a test", environment}, in_etcd_time());
  REQUIRE(store);
  return std::move(*store);
}

std::unique_ptr<EtcdClient> client_of(const std::string& url, const Environment& environment = {}) {
  auto access = etcd_access(url, environment);
  REQUIRE(access);
  auto client = EtcdClient::open(std::move(*access));
  REQUIRE(client);
  return std::move(*client);
}

const FakeEtcd::Reply kDone{200, R"({"header":{"revision":"7"},"succeeded":true})"};

}  // namespace

TEST_CASE("etcd URLs") {
  auto access = etcd_access("etcds://a,[::1]:7/jobs/x/", [](const std::string& name) {
    return name == "ETCDCTL_USER" ? std::optional<std::string>("me:a:b") : std::nullopt;
  });
  REQUIRE(access);
  CHECK(access->tls);
  CHECK(access->endpoints == std::vector<Endpoint>{{"a", 2379}, {"::1", 7}});
  CHECK(access->prefix == "/jobs/x/");
  CHECK(access->user == "me");
  CHECK(access->password == "a:b");
  CHECK(etcd_access("etcd://a", {})->prefix == "/dlaunch/");
}

TEST_CASE("etcd: malformed replies are refused, whatever they are") {
  for (const char* body : {"", "[]", "{", "{\"header\":3}", "{\"header\":{},\"responses\":3}",
                           "{\"header\":{},\"responses\":[{\"response_range\":3}]}",
                           "{\"header\":{},\"responses\":[{\"response_range\":{\"kvs\":[3]}}]}",
                           "{\"header\":{},\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":"
                           "\"*\"}]}}]}"}) {
    CAPTURE(body);
    CHECK_FALSE(decode_etcd_answer(body));
    CHECK_FALSE(decode_etcd_grant(body));
    CHECK_FALSE(decode_etcd_kept(body));
    CHECK_FALSE(decode_etcd_watch(body));
    CHECK_FALSE(decode_etcd_login(body));
    CHECK_FALSE(decode_etcd_refusal(500, body).text.empty());
  }
}

TEST_CASE("etcd: errors that may pass") {
  for (const long status : {408, 429, 499, 500, 502, 503, 504}) {
    CAPTURE(status);
    CHECK(decode_etcd_refusal(status, "<html>").come_again());
  }
  for (const long status : {400, 401, 403, 404}) {
    CAPTURE(status);
    CHECK_FALSE(decode_etcd_refusal(status, "<html>").come_again());
  }
  const auto with_code = [](int code) {
    return decode_etcd_refusal(400, R"({"message":"m","code":)" + std::to_string(code) + "}");
  };
  for (const int code : {1, 2, 4, 8, 13, 14}) CHECK(with_code(code).come_again());
  for (const int code : {3, 5, 7, 9, 12, 16}) CHECK_FALSE(with_code(code).come_again());
}

TEST_CASE("etcd: errors of replies with several parts are read, too") {
  for (const char* name : {"code", "grpc_code"}) {
    const auto refusal = decode_etcd_refusal(
        503, std::string(R"({"error":{")") + name + R"(":5,"http_code":404,"message":"gone"}})");
    CHECK(refusal.code == 5);
    CHECK(refusal.text == "gone");
  }
}

TEST_CASE("etcd: a token that is too old is replaced" * doctest::skip(!has_http())) {
  int logins = 0;
  FakeEtcd server([&](const std::string& path) {
    if (path == "auth/authenticate") {
      ++logins;
      return FakeEtcd::Reply{200, R"({"token":"t"})"};
    }
    const char* const old = R"({"code":3,"message":"etcdserver: revision of auth store is old"})";
    return logins < 2 ? FakeEtcd::Reply{400, old} : kDone;
  });
  const auto client = client_of(server.url(), [](const std::string& name) {
    return name.starts_with("ETCDCTL_USER") ? std::optional<std::string>("me:word") : std::nullopt;
  });
  CHECK(client->transact({}, in_etcd_time()));
  CHECK(server.requests() == 4);
}

TEST_CASE("etcd: a log-in that etcd cannot do now is tried again" * doctest::skip(!has_http())) {
  int failures = 6;
  FakeEtcd server([&](const std::string& path) {
    if (path == "auth/authenticate") {
      return failures-- > 0 ? FakeEtcd::Reply{503, ""} : FakeEtcd::Reply{200, R"({"token":"t"})"};
    }
    const char* const nobody = R"({"code":3,"message":"etcdserver: user name is empty"})";
    return failures >= 0 ? FakeEtcd::Reply{400, nobody} : kDone;
  });
  const auto client = client_of(server.url(), [](const std::string& name) {
    return name.starts_with("ETCDCTL_USER") ? std::optional<std::string>("me:word") : std::nullopt;
  });
  CHECK(client->transact({}, in_etcd_time()));
}

TEST_CASE("etcd: a silent server leaves time for the others" * doctest::skip(!has_http())) {
  FakeEtcd silent([](const std::string&) { return std::nullopt; });
  FakeEtcd other([](const std::string&) { return kDone; });
  const auto client = client_of("etcd://" + silent.endpoint() + "," + other.endpoint());
  CHECK(client->transact({}, steady_now() + 8s));
  CHECK(silent.requests() == 1);
  CHECK(client->transact({}, in_etcd_time()));
  CHECK(silent.requests() == 1);

  // Also after a request that must not be repeated.
  const auto careful = client_of("etcd://" + silent.endpoint() + "," + other.endpoint());
  CHECK(careful->transact({}, steady_now() + 8s, false).error().code == Errc::peer_lost);
  CHECK(careful->transact({}, in_etcd_time(), false));
  CHECK(silent.requests() == 2);
}

TEST_CASE("etcd: a wrong identity is final only if all servers have one" *
          doctest::skip(!has_http())) {
  FakeEtcd server([](const std::string&) { return kDone; });
  const auto no_authorities = [](const std::string& name) {
    return name == "ETCDCTL_CACERT" ? std::optional<std::string>("/no/such/file") : std::nullopt;
  };
  const auto error_of = [](const std::string& servers, const Environment& environment) {
    const auto done = client_of("etcds://" + servers, environment)->transact({}, steady_now() + 1s);
    REQUIRE_FALSE(done);
    return done.error().code;
  };
  CHECK(error_of(server.endpoint(), no_authorities) == Errc::auth);
  CHECK(error_of(server.endpoint() + "," + server.endpoint(), no_authorities) == Errc::auth);
  CHECK(error_of("127.0.0.1:1," + server.endpoint(), no_authorities) == Errc::timeout);
  // It closes the connection while the two ends still agree on keys.
  const bool has_authorities = ::access("/etc/ssl/certs/ca-certificates.crt", R_OK) == 0;
  if (has_authorities) CHECK(error_of(server.endpoint(), {}) == Errc::timeout);
}

TEST_CASE("etcd: the value of a key that is there comes although the time is up" *
          doctest::skip(!has_http())) {
  FakeEtcd server([](const std::string&) {
    std::this_thread::sleep_for(150ms);  // more than a server gets when the time is up
    // The key is "/test/late/store/k", the value is "v".
    return FakeEtcd::Reply{200, R"({"header":{"revision":"7"},"responses":[{"response_range":{)"
                                R"("kvs":[{"key":"L3Rlc3QvbGF0ZS9zdG9yZS9r","value":"dg=="}]}}]})"};
  });
  const auto store = store_at(server.url(), "late");
  auto value = store->get("k", steady_now());
  // The last look takes a second at most. On a busy machine an answer may need more.
  for (int i = 0; i < 20 && !value; ++i) value = store->get("k", steady_now());
  REQUIRE(value);
  CHECK(*value == "v");
}

TEST_CASE("etcd: a watch does not keep a line without an end" * doctest::skip(!has_http())) {
  constexpr std::size_t kBytes = std::size_t{48} << 20;
  FakeEtcd server([](const std::string&) {
    return FakeEtcd::Reply{200, std::string(kBytes, 'x')};
  });
  client_of(server.url())->wait_change("/test/k", 1, in_etcd_time());
  CHECK(server.requests() == 1);
  CHECK(server.bytes_sent() < kBytes);
}

TEST_CASE("etcd: the first server that answers is asked" *
          doctest::skip(!EtcdServer::installed())) {
  const std::string url = "etcd://127.0.0.1:1," + EtcdServer::shared().endpoint() + "/test";
  auto store = store_at(url, "second");
  CHECK(store->set("k", "v", in_etcd_time()));
  CHECK(*store->get("k", in_etcd_time()) == "v");
}

TEST_CASE("etcd: an error names all servers if none answers") {
  auto store = open_store("etcd://127.0.0.1:1,127.0.0.1:2", {"j", {}, "a test"}, in_etcd_time());
  if (!store && store.error().code == Errc::unsupported) return;  // built without
  REQUIRE(store);
  const auto started = steady_now();
  const auto done = (*store)->set("k", "v", started + 100ms);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == Errc::timeout);
  CHECK(done.error().what.find("127.0.0.1:1, 127.0.0.1:2: ") != std::string::npos);
  CHECK(steady_now() - started < 10s);
}

TEST_CASE("etcd: a waiting client learns of a key that is set after a restart" *
          doctest::skip(!EtcdServer::installed())) {
  EtcdServer server;
  auto store = store_at(server.url(), "restart");
  REQUIRE(store->set("before", "1", in_etcd_time()));
  std::thread waits([&] {
    auto other = store_at(server.url(), "restart");
    const auto got = other->get("late", steady_now() + 60s);
    CHECK(got);
    if (got) CHECK(*got == "v");
  });
  server.kill();
  std::thread sets([&] { CHECK(store->set("late", "v", steady_now() + 60s)); });
  server.start();
  sets.join();
  waits.join();
  CHECK(*store->get("before", in_etcd_time()) == "1");
}

TEST_CASE("etcd: user and password" * doctest::skip(!EtcdServer::installed())) {
  const EtcdServer server;
  auto http = HttpClient::open({});
  REQUIRE(http);
  const auto ask = [&](const std::string& path, const std::string& body) {
    auto reply =
        (*http)->post("http://" + server.endpoint() + "/v3/auth/" + path, body, "", in_etcd_time());
    REQUIRE(reply);
    CHECK(reply->status == 200);
  };
  ask("user/add", R"({"name":"root","password":"a \"word\""})");
  ask("role/add", R"({"name":"root"})");
  ask("user/grant", R"({"user":"root","role":"root"})");
  ask("enable", "{}");
  const auto with = [&](std::string password) {
    return store_at(server.url(), "auth", [=](const std::string& name) {
      return name == "ETCDCTL_USER"       ? std::optional<std::string>("root")
             : name == "ETCDCTL_PASSWORD" ? std::optional(password)
                                          : std::nullopt;
    });
  };
  CHECK(with("a \"word\"")->set("k", "v", in_etcd_time()));
  const auto wrong = with("another")->set("k", "v", in_etcd_time());
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == Errc::auth);
  CHECK(wrong.error().what.find("another") == std::string::npos);
  const auto nobody = store_at(server.url(), "auth")->set("k", "v", in_etcd_time());
  REQUIRE_FALSE(nobody);
  CHECK(nobody.error().code == Errc::auth);
}

TEST_CASE("etcd: a lease that is not kept ends with its key" *
          doctest::skip(!EtcdServer::installed())) {
  auto client = EtcdClient::open(*etcd_access(EtcdServer::shared().url(), {}));
  REQUIRE(client);
  auto lease = (*client)->grant(5, in_etcd_time());
  REQUIRE(lease);
  REQUIRE((*client)->transact({{}, {EtcdPut{"/test/leased", "v", *lease}}, {}}, in_etcd_time()));
  CHECK(*(*client)->keep(*lease, in_etcd_time()));
  EtcdAnswer last;
  const auto gone = [&] {
    auto answer = (*client)->transact({{}, {EtcdGet{"/test/leased"}}, {}}, in_etcd_time());
    REQUIRE(answer);
    last = *answer;
    return last.items.empty();
  };
  const auto by = in_etcd_time();
  while (!gone() && steady_now() < by) (*client)->wait_change("/test/leased", last.revision, by);
  CHECK(last.items.empty());
  CHECK_FALSE(*(*client)->keep(*lease, in_etcd_time()));
  CHECK((*client)->revoke(*lease, in_etcd_time()));
}
