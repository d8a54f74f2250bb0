// The same expectations for every way to elect a leader.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include <doctest/doctest.h>

#include "rendezvous/etcd_election.h"
#include "rendezvous/file_election.h"
#include "tests/unit/rendezvous/etcd_server.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

TimePoint soon() { return steady_now() + 20s; }

class Place {
 public:
  explicit Place(bool etcd) : job_("job" + std::to_string(++places_)) {
    if (!etcd) folder_.emplace();
  }
  std::unique_ptr<LeaderElection> voter() const {
    auto made = folder_ ? open_file_election(folder_->path.string(), job_)
                        : open_etcd_election(*etcd_access(EtcdServer::shared().url(), {}), job_);
    REQUIRE(made);
    return std::move(*made);
  }
  std::string folder() const { return folder_->path.string(); }

 private:
  inline static int places_ = 0;
  std::optional<TempFolder> folder_;
  const std::string job_;
};

void conform(bool etcd) {
  const Place place(etcd);
  auto a = place.voter();
  auto b = place.voter();
  CHECK_FALSE(a->find(soon())->has_value());

  SUBCASE("one leads, all hear where, and a later one has a later term") {
    REQUIRE(*a->campaign(soon()));
    CHECK_FALSE(*b->campaign(soon()));
    CHECK((*b->find(soon()))->endpoint.empty());
    REQUIRE(a->announce("[fd77::1]:4711", soon()));
    CHECK(a->keep(soon()));
    const auto first = *b->find(soon());
    REQUIRE(first);
    CHECK(first->endpoint == "[fd77::1]:4711");
    CHECK(*place.voter()->find(soon()) == first);
    a->resign(soon());
    CHECK_FALSE(b->find(soon())->has_value());
    CHECK_FALSE(a->keep(soon()));
    REQUIRE(*b->campaign(soon()));
    REQUIRE(b->announce("h:2", soon()));
    CHECK((*a->find(soon()))->endpoint == "h:2");
    if (etcd) CHECK((*a->find(soon()))->term > first->term);
    b->resign(soon());
  }
  SUBCASE("the journal is the leader's, and the next one's") {
    REQUIRE(*a->campaign(soon()));
    CHECK(a->read_journal(soon())->empty());
    const std::string text("round 3\0\n", 9);
    REQUIRE(a->write_journal("round 2", soon()));
    REQUIRE(a->write_journal(text, soon()));
    CHECK(b->write_journal("mine", soon()).error().code == Errc::aborted);
    CHECK(*b->read_journal(soon()) == text);
    a->resign(soon());
    CHECK(a->write_journal("late", soon()).error().code == Errc::aborted);
    CHECK(b->read_journal(soon())->empty());
  }
  SUBCASE("a change is noticed") {
    REQUIRE(*a->campaign(soon()));
    REQUIRE(b->find(soon()));
    std::thread resigns([&] { a->resign(soon()); });
    const auto by = soon();
    while (b->find(soon())->has_value() && steady_now() < by) b->wait_change(by);
    resigns.join();
    CHECK_FALSE(b->find(soon())->has_value());
  }
  SUBCASE("of many that try, one is elected") {
    std::vector<std::thread> threads;
    std::vector<std::unique_ptr<LeaderElection>> voters;
    std::atomic<int> elected = 0;
    for (int i = 0; i < 8; ++i) voters.push_back(place.voter());
    for (auto& voter : voters) {
      threads.emplace_back([&] {
        const auto won = voter->campaign(soon());
        CHECK(won);
        elected += won && *won;
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(elected == 1);
    for (auto& voter : voters) voter->resign(soon());
    CHECK_FALSE(a->find(soon())->has_value());
  }
  SUBCASE("the office of one that was killed is free") {
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      auto mine = place.voter();
      const bool won = *mine->campaign(soon()) && mine->write_journal("left", soon()) &&
                       mine->announce("dead:1", soon());
      if (won) ::pause();
      ::_exit(1);
    }
    const auto told = [&] {
      const auto found = a->find(soon());
      return found && *found && (*found)->endpoint == "dead:1";
    };
    auto by = soon();
    while (!told() && steady_now() < by) a->wait_change(by);
    CHECK(told());
    CHECK_FALSE(*b->campaign(soon()));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    by = soon();
    bool won = false;
    while (!won && steady_now() < by) {
      a->wait_change(steady_now() + 100ms);
      won = *b->campaign(soon());
    }
    CHECK(won);
    CHECK((*a->find(soon()))->endpoint.empty());
    CHECK(*b->read_journal(soon()) == "left");
    b->resign(soon());
  }
}

}  // namespace

TEST_CASE("leader election: file") { conform(false); }
TEST_CASE("leader election: etcd" * doctest::skip(!EtcdServer::installed())) { conform(true); }

TEST_CASE(
    "leader election by a folder: terms grow past a leader that died, files go with the job") {
  const Place place(false);
  auto a = place.voter();
  REQUIRE(*a->campaign(soon()));
  REQUIRE(a->announce("h:1", soon()));
  const auto first = **a->find(soon());
  a.reset();  // without resigning, as a crash does
  auto b = place.voter();
  CHECK_FALSE(b->find(soon())->has_value());
  REQUIRE(*b->campaign(soon()));
  CHECK((*b->find(soon()))->term > first.term);
  CHECK((*b->find(soon()))->endpoint.empty());
  std::filesystem::remove_all(place.folder());
  CHECK(b->keep(soon()).error().code == Errc::aborted);
  std::filesystem::create_directory(place.folder());
  auto c = place.voter();
  REQUIRE(*c->campaign(soon()));
  c->resign(soon());
  CHECK(std::filesystem::is_empty(place.folder()));
  CHECK_FALSE(open_file_election("/no/such/folder", "j"));
}
