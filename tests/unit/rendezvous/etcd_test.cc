// The parts of etcd:// that other stores lack: messages, several servers, restarts, log-in.
#include <thread>

#include <doctest/doctest.h>

#include "rendezvous/etcd_client.h"
#include "rendezvous/etcd_store.h"
#include "tests/unit/rendezvous/etcd_server.h"

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
  CHECK(decode_etcd_refusal(503, "").come_again());
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
