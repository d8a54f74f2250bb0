// The same expectations for every Store behind open_store().
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include <doctest/doctest.h>

#include "rendezvous/store.h"
#include "rendezvous/store_server_thread.h"
#include "tests/unit/rendezvous/etcd_server.h"
#include "tests/unit/safe_fork.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

TimePoint soon() { return steady_now() + 30s; }

enum class Kind { tcp, file, etcd };

// A fresh key space and as many clients of it as a test wants.
class Space {
 public:
  explicit Space(Kind kind) {
    if (kind == Kind::file) {
      url_ = folder_.emplace().url();
    } else if (kind == Kind::etcd) {
      url_ = EtcdServer::shared().url();
      job_ += std::to_string(++spaces_);
    } else {
      auto server = StoreServerThread::start({"127.0.0.1", 0}, job_, Secret("0123456789abcdef"));
      REQUIRE(server);
      server_ = std::move(*server);
      url_ = "tcp://" + to_string(server_->endpoint());
    }
  }
  std::string folder() const { return folder_ ? folder_->path.string() : ""; }
  std::unique_ptr<Store> client() const {
    auto store = open_store(url_, {job_, Secret("0123456789abcdef"), "a test"}, soon());
    REQUIRE(store);
    return std::move(*store);
  }

 private:
  inline static int spaces_ = 0;
  std::unique_ptr<StoreServerThread> server_;
  std::optional<TempFolder> folder_;
  std::string url_, job_ = "job";
};

void conform(Kind kind) {
  const Space space(kind);
  auto a = space.client();
  auto b = space.client();

  SUBCASE("values of any bytes and of the largest size come back") {
    const std::string odd("k\0/../\xff", 7);
    std::string big(kMaxValueBytes, 'b');
    big[7] = '\0';
    REQUIRE(a->set(odd, big, soon()));
    CHECK(*b->get(odd, soon()) == big);
    CHECK(**b->try_get(odd, soon()) == big);
    CHECK_FALSE(b->try_get("none", soon())->has_value());
    CHECK_FALSE(a->set("k", big + "x", soon()));
    CHECK_FALSE(a->compare_and_set("k", big + "x", "v", soon()));
    CHECK_FALSE(a->wait({std::string(kMaxKeyBytes + 1, 'k')}, steady_now()));
    REQUIRE(a->set(odd, "new", soon()));
    CHECK(*b->get(odd, soon()) == "new");
  }
  SUBCASE("a get wakes when the key appears") {
    std::thread writer([&] { CHECK(b->set("late", "v", soon())); });
    CHECK(*a->get("late", soon()) == "v");
    writer.join();
  }
  SUBCASE("time-outs come in time and name the keys") {
    REQUIRE(a->set("x", "1", soon()));
    // Which keys are there only etcd can say, and it may take its time to.
    const Duration limit = kind == Kind::etcd ? 2s : 30ms;
    const auto before = steady_now();
    const auto waited = a->wait({"x", "y", "z"}, before + limit);
    REQUIRE_FALSE(waited);
    CHECK(waited.error().code == Errc::timeout);
    CHECK(waited.error().what.find("y, z") != std::string::npos);
    CHECK(steady_now() - before < limit + 8s);
    CHECK(a->set("still", "works", soon()));
  }
  SUBCASE("compare and set") {
    CHECK(*a->compare_and_set("k", std::nullopt, "1", soon()) == "1");
    CHECK(*b->compare_and_set("k", std::nullopt, "2", soon()) == "1");
    CHECK(*b->compare_and_set("k", "1", "2", soon()) == "2");
    CHECK(*a->compare_and_set("k", "1", "3", soon()) == "2");
    CHECK(*a->compare_and_set("none", "1", "3", soon()) == "");
  }
  SUBCASE("prefixes are deleted, and nothing else") {
    for (const char* key : {"r1/a", "r1/b", "r10/a", "r2/a"}) REQUIRE(a->set(key, "v", soon()));
    CHECK(*b->delete_prefix("r1/", soon()) == 2);
    CHECK_FALSE(a->try_get("r1/a", soon())->has_value());
    CHECK(a->try_get("r10/a", soon())->has_value());
  }
  SUBCASE("eight clients adding at once lose nothing") {
    const int each = kind == Kind::etcd ? 20 : 200;
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        auto store = space.client();
        for (int i = 0; i < each; ++i) CHECK(store->add("n", 1, soon()));
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(*a->add("n", 0, soon()) == 8 * each);
    REQUIRE(a->set("word", "x", soon()));
    CHECK_FALSE(a->add("word", 1, soon()));
  }
}

}  // namespace

TEST_CASE("store conformance: tcp") { conform(Kind::tcp); }
TEST_CASE("store conformance: file") { conform(Kind::file); }
TEST_CASE("store conformance: etcd" * doctest::skip(!EtcdServer::installed())) {
  conform(Kind::etcd);
}

TEST_CASE("a file store works after a writer was killed in the middle of a record") {
  const Space space(Kind::file);
  auto store = space.client();
  REQUIRE(store->set("before", "1", soon()));
  for (int trial = 0; trial < 20; ++trial) {
    const std::string mark = std::to_string(trial);
    const pid_t pid = safe_fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      auto mine = space.client();
      while (true) (void)mine->set("busy", mark + std::string(200000, 'x'), kNever);
    }
    // It writes, and hardly ever lets go of the lock: what needs it may not get it before.
    const auto by = soon();
    const auto it_writes = [&] {
      const auto busy = store->get("busy", by);
      return busy && busy->starts_with(mark + "x");
    };
    while (!it_writes()) {
      REQUIRE(steady_now() < by);
      ::usleep(1000);
    }
    ::usleep(static_cast<useconds_t>(500 * trial));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    REQUIRE(store->add("trial", 1, soon()));
    REQUIRE(store->set("after", mark, soon()));
    CHECK(*space.client()->get("after", soon()) == mark);
  }
  CHECK(*store->get("before", soon()) == "1");
}

TEST_CASE("a file store's journal does not grow with overwritten values") {
  const Space space(Kind::file);
  auto writer = space.client();
  auto reader = space.client();
  auto sleeper = space.client();  // looks for the first time long after the journal was replaced
  REQUIRE(writer->set("first", "1", soon()));
  REQUIRE(*reader->get("first", soon()) == "1");
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(writer->set("k", std::to_string(i) + std::string(4096, 'x'), soon()));
  }
  std::uintmax_t size = 0;
  for (const auto& file : std::filesystem::directory_iterator(space.folder())) {
    size += file.file_size();
  }
  CHECK(size < 512 << 10);
  CHECK(reader->get("k", soon())->starts_with("999x"));
  CHECK(*sleeper->add("first", 1, soon()) == 2);
  CHECK(*reader->add("first", 1, soon()) == 3);
  CHECK(*writer->get("first", soon()) == "3");
  CHECK(*space.client()->get("first", soon()) == "3");
}

TEST_CASE("file store: values that are added while journals are replaced are kept") {
  const Space space(Kind::file);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      auto store = space.client();
      for (int i = 0; i < 50; ++i) {
        CHECK(store->set("big", std::string(50000, 'x'), kNever));
        CHECK(store->add("n", 1, kNever));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(*space.client()->add("n", 0, soon()) == 200);
}

TEST_CASE("malformed rendezvous URLs are refused") {
  for (const char* url :
       {"", "tcp://", "tcp://host", "http://h:1", "file://relative", "file", "etcd://", "etcd:///p",
        "etcd://h:x", "etcd://user:word@h", "etcdx://h"}) {
    CAPTURE(url);
    CHECK_FALSE(open_store(url, {}, soon()));
  }
  const auto missing = open_store("file:///no/such/folder", {}, soon());
  REQUIRE_FALSE(missing);
  CHECK(missing.error().what.find("/no/such/folder") != std::string::npos);
}
