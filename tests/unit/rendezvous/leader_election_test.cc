// The same expectations for every way to elect a leader.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include <doctest/doctest.h>

#include "rendezvous/appointed_leader.h"
#include "rendezvous/etcd_election.h"
#include "rendezvous/file_election.h"
#include "tests/unit/rendezvous/etcd_server.h"
#include "tests/unit/safe_fork.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

TimePoint in_election_time() { return steady_now() + 20s; }

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

void elects(bool etcd) {
  const Place place(etcd);
  auto a = place.voter();
  auto b = place.voter();
  CHECK_FALSE(a->find(in_election_time())->has_value());

  SUBCASE("one leads, all hear where, and a later one has a later term") {
    REQUIRE(*a->campaign(in_election_time()));
    CHECK_FALSE(*b->campaign(in_election_time()));
    CHECK((*b->find(in_election_time()))->endpoint.empty());
    REQUIRE(a->announce("[fd77::1]:4711", in_election_time()));
    CHECK(a->keep(in_election_time()));
    const auto first = *b->find(in_election_time());
    REQUIRE(first);
    CHECK(first->endpoint == "[fd77::1]:4711");
    CHECK(*place.voter()->find(in_election_time()) == first);
    a->resign(in_election_time());
    CHECK_FALSE(b->find(in_election_time())->has_value());
    CHECK_FALSE(a->keep(in_election_time()));
    REQUIRE(*b->campaign(in_election_time()));
    REQUIRE(b->announce("h:2", in_election_time()));
    CHECK((*a->find(in_election_time()))->endpoint == "h:2");
    if (etcd) CHECK((*a->find(in_election_time()))->term > first->term);
    b->resign(in_election_time());
  }
  SUBCASE("the journal is the leader's, and the next one's") {
    REQUIRE(*a->campaign(in_election_time()));
    CHECK(a->read_journal(in_election_time())->empty());
    const std::string text("round 3\0\n", 9);
    REQUIRE(a->write_journal("round 2", in_election_time()));
    REQUIRE(a->write_journal(text, in_election_time()));
    CHECK(b->write_journal("mine", in_election_time()).error().code == Errc::aborted);
    CHECK(*b->read_journal(in_election_time()) == text);
    a->resign(in_election_time());
    CHECK(a->write_journal("late", in_election_time()).error().code == Errc::aborted);
    CHECK(b->read_journal(in_election_time())->empty());
  }
  SUBCASE("a change is noticed") {
    REQUIRE(*a->campaign(in_election_time()));
    REQUIRE(b->find(in_election_time()));
    std::thread resigns([&] { a->resign(in_election_time()); });
    const auto by = in_election_time();
    while (b->find(in_election_time())->has_value() && steady_now() < by) b->wait_change(by);
    resigns.join();
    CHECK_FALSE(b->find(in_election_time())->has_value());
  }
  SUBCASE("of many that try, one is elected") {
    std::vector<std::thread> threads;
    std::vector<std::unique_ptr<LeaderElection>> voters;
    std::atomic<int> elected = 0;
    for (int i = 0; i < 8; ++i) voters.push_back(place.voter());
    for (auto& voter : voters) {
      threads.emplace_back([&] {
        const auto won = voter->campaign(in_election_time());
        CHECK(won);
        elected += won && *won;
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(elected == 1);
    for (auto& voter : voters) voter->resign(in_election_time());
    CHECK_FALSE(a->find(in_election_time())->has_value());
  }
  SUBCASE("the lease of one that was killed is free") {
    const pid_t pid = safe_fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      auto mine = place.voter();
      const bool won = *mine->campaign(in_election_time()) &&
                       mine->write_journal("left", in_election_time()) &&
                       mine->announce("dead:1", in_election_time());
      if (won) ::pause();
      ::_exit(1);
    }
    const auto told = [&] {
      const auto found = a->find(in_election_time());
      return found && *found && (*found)->endpoint == "dead:1";
    };
    auto by = in_election_time();
    while (!told() && steady_now() < by) a->wait_change(by);
    CHECK(told());
    CHECK_FALSE(*b->campaign(in_election_time()));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    by = in_election_time();
    bool won = false;
    while (!won && steady_now() < by) {
      a->wait_change(steady_now() + 100ms);
      won = *b->campaign(in_election_time());
    }
    CHECK(won);
    CHECK((*a->find(in_election_time()))->endpoint.empty());
    CHECK(*b->read_journal(in_election_time()) == "left");
    b->resign(in_election_time());
  }
}

}  // namespace

TEST_CASE("leader election: file") { elects(false); }
TEST_CASE("leader election: etcd" * doctest::skip(!EtcdServer::installed())) { elects(true); }

TEST_CASE(
    "leader election by a folder: terms grow past a leader that died, files go with the job") {
  const Place place(false);
  auto a = place.voter();
  REQUIRE(*a->campaign(in_election_time()));
  REQUIRE(a->announce("h:1", in_election_time()));
  const auto first = **a->find(in_election_time());
  a.reset();  // without resigning, as a crash does
  auto b = place.voter();
  CHECK_FALSE(b->find(in_election_time())->has_value());
  REQUIRE(*b->campaign(in_election_time()));
  CHECK((*b->find(in_election_time()))->term > first.term);
  CHECK((*b->find(in_election_time()))->endpoint.empty());
  std::filesystem::remove_all(place.folder());
  CHECK(b->keep(in_election_time()).error().code == Errc::aborted);
  std::filesystem::create_directory(place.folder());
  auto c = place.voter();
  REQUIRE(*c->campaign(in_election_time()));
  c->resign(in_election_time());
  CHECK(std::filesystem::is_empty(place.folder()));
  CHECK_FALSE(open_file_election("/no/such/folder", "j"));
}

namespace {

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("leader election by a folder: a leader whose lock another host has got leads no more") {
  const TempFolder folder;
  const auto note = folder.path / "dlaunch-leader-j", journal = folder.path / "dlaunch-journal-j";
  auto a = open_file_election(folder.path.string(), "j");
  REQUIRE(a);
  REQUIRE(*(*a)->campaign(in_election_time()));
  REQUIRE((*a)->write_journal("ours", in_election_time()));
  std::filesystem::remove(note);
  std::filesystem::create_directory(note);
  CHECK((*a)->keep(in_election_time()));  // a note that we cannot read says nothing
  std::filesystem::remove(note);
  write_file(note, "9 other:1\n");
  CHECK((*a)->keep(in_election_time()).error().code == Errc::aborted);
  CHECK((*a)->announce("h:1", in_election_time()).error().code == Errc::aborted);
  CHECK((*a)->write_journal("late", in_election_time()).error().code == Errc::aborted);
  (*a)->resign(in_election_time());
  CHECK(read_file(note) == "9 other:1\n");
  CHECK(read_file(journal) == "ours");
}

TEST_CASE("leader election by a folder: a folder that cannot be reached is no loss") {
  const TempFolder folder;
  const auto shared = folder.path / "shared", elsewhere = folder.path / "elsewhere";
  auto a = open_file_election(shared.string(), "j");
  REQUIRE(a);
  REQUIRE(*(*a)->campaign(in_election_time()));
  std::filesystem::rename(shared, elsewhere);
  std::filesystem::create_symlink(shared, shared);  // stat() fails with ELOOP
  CHECK((*a)->keep(in_election_time()).error().code == Errc::io);
  CHECK((*a)->write_journal("j", in_election_time()).error().code == Errc::io);
  std::filesystem::remove(shared);
  std::filesystem::rename(elsewhere, shared);
  CHECK((*a)->keep(in_election_time()));
  std::filesystem::rename(shared, elsewhere);
  write_file(shared, "");
  CHECK((*a)->keep(in_election_time()).error().code == Errc::aborted);
}

TEST_CASE("leader election by a folder: long job ids that begin alike are different jobs") {
  const TempFolder folder;
  const std::string alike(200, '~');
  std::vector<std::unique_ptr<LeaderElection>> leaders;
  for (const char* end : {"1", "2"}) {
    auto made = open_file_election(folder.path.string(), alike + end);
    REQUIRE(made);
    REQUIRE(*(*made)->campaign(in_election_time()));
    CHECK((*made)->read_journal(in_election_time())->empty());
    CHECK((*made)->write_journal(end, in_election_time()));
    leaders.push_back(std::move(*made));
  }
}

TEST_CASE("a journal that the user has named exists until the job ends") {
  const TempFolder folder;
  const std::string own = folder.path.string() + "/" + kJournalFolder + "7";
  auto leader = open_appointed_leader(own + "/job-1");
  CHECK(leader->read_journal(in_election_time())->empty());
  REQUIRE(leader->write_journal("round 1", in_election_time()));
  REQUIRE(leader->write_journal("round 2", in_election_time()));
  leader = open_appointed_leader(own + "/job-1");  // started again
  CHECK(*leader->read_journal(in_election_time()) == "round 2");
  CHECK(leader->keep(in_election_time()));
  leader->resign(in_election_time());
  CHECK(std::filesystem::is_empty(folder.path));
  // Folders of the user's stay; what is not his, or no file, is not believed.
  leader = open_appointed_leader(folder.path.string() + "/mine/journal");
  REQUIRE(leader->write_journal("x", in_election_time()));
  leader->resign(in_election_time());
  CHECK(std::filesystem::exists(folder.path / "mine"));
  std::filesystem::create_symlink("/etc/passwd", folder.path / "link");
  leader = open_appointed_leader(folder.path.string() + "/link");
  CHECK(leader->read_journal(in_election_time()).error().code == Errc::auth);
}

TEST_CASE("the default folder of journals is used only if no other user can write there") {
  const TempFolder folder;
  const auto usual = folder.path / (kJournalFolder + std::string("7"));
  auto leader = open_appointed_leader(usual.string() + "/job-1");
  REQUIRE(leader->write_journal("round 1", in_election_time()));
  for (const mode_t others : {0770, 0703}) {
    ::chmod(usual.c_str(), others);
    CHECK(leader->read_journal(in_election_time()).error().code == Errc::auth);
    CHECK(leader->write_journal("round 2", in_election_time()).error().code == Errc::auth);
  }
  ::chmod(usual.c_str(), 0700);
  CHECK(*leader->read_journal(in_election_time()) == "round 1");
  std::filesystem::rename(usual, folder.path / "elsewhere");
  std::filesystem::create_directory_symlink(folder.path / "elsewhere", usual);
  CHECK(leader->read_journal(in_election_time()).error().code == Errc::auth);
}
