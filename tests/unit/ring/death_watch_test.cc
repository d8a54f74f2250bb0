// Watches of several ranks. Some ranks are processes that are killed.
#include "ring/links/death_watch.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

constexpr int kRanks = 3;

Lives shared_lives() {
  void* const memory =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  Lives lives;
  for (int r = 0; r < kRanks; ++r) {
    lives.words.push_back(static_cast<std::atomic<std::uint32_t>*>(memory) + 16 * r);
  }
  lives.keep = {memory, [](void* p) { ::munmap(p, 4096); }};
  return lives;
}

// A rank's watch, and whose death it has told.
struct Watcher {
  std::mutex mutex;
  std::vector<int> dead;
  std::promise<void> first;
  std::future<void> told = first.get_future();
  std::unique_ptr<DeathWatch> watch;

  Watcher(int own, const Lives& lives)
      : watch(DeathWatch::start(own, lives, [this](int rank) {
          const std::lock_guard lock(mutex);
          dead.push_back(rank);
          if (dead.size() == 1) first.set_value();
        })) {}
  bool supported() const {
    if (!watch) MESSAGE("skipped: this kernel has no futex_waitv");
    return watch != nullptr;
  }
  std::vector<int> all() {
    const std::lock_guard lock(mutex);
    return dead;
  }
};

// A process that has its watch when the constructor returns, and that ends at end().
struct MortalRank {
  pid_t pid = -1;
  int go = -1;

  MortalRank(int own, const Lives& lives,
             const std::function<void(std::unique_ptr<DeathWatch>&)>& end) {
    int up[2], down[2];
    REQUIRE(::pipe(up) == 0);
    REQUIRE(::pipe(down) == 0);
    pid = ::fork();
    if (pid == 0) {
      ::close(down[1]);
      auto watch = DeathWatch::start(own, lives, [](int) {});
      while (watch && *lives.words[static_cast<std::size_t>(own)] == 0) ::usleep(1000);
      char byte = 0;
      [[maybe_unused]] auto n = ::write(up[1], &byte, 1);
      n = ::read(down[0], &byte, 1);
      end(watch);
      ::_exit(0);
    }
    ::close(down[0]);
    go = down[1];
    char byte;
    REQUIRE(::read(up[0], &byte, 1) == 1);
    for (const int fd : up) ::close(fd);
  }
  void end() {
    CHECK(::write(go, "", 1) == 1);
    ::close(go);
    ::waitpid(pid, nullptr, 0);
  }
};

}  // namespace

TEST_CASE("death watch: all ranks notice a killed process, once") {
  const Lives lives = shared_lives();
  MortalRank victim(2, lives, [](auto&) { ::raise(SIGKILL); });
  Watcher a(0, lives), b(1, lives);
  if (!a.supported()) return victim.end();
  victim.end();
  for (Watcher* watcher : {&a, &b}) {
    CHECK(watcher->told.wait_for(30s) == std::future_status::ready);
    CHECK(watcher->all() == std::vector<int>{2});
  }
}

TEST_CASE("death watch: a watch that begins after the death reports it, too") {
  const Lives lives = shared_lives();
  MortalRank victim(2, lives, [](auto&) { ::raise(SIGKILL); });
  victim.end();
  Watcher late(0, lives);
  if (!late.supported()) return;
  CHECK(late.told.wait_for(30s) == std::future_status::ready);
  CHECK(late.all() == std::vector<int>{2});
}

TEST_CASE("death watch: an exit with the watch is a death; an exit after its end is a departure") {
  const Lives lives = shared_lives();
  MortalRank leaves(1, lives, [](auto& watch) { watch.reset(); });
  MortalRank exits(2, lives, [](auto&) {});
  Watcher watcher(0, lives);
  if (!watcher.supported()) return;
  leaves.end();
  exits.end();
  CHECK(watcher.told.wait_for(30s) == std::future_status::ready);
  CHECK(watcher.all() == std::vector<int>{2});
}

TEST_CASE("death watch: a rank that has not come yet is no loss") {
  const Lives lives = shared_lives();
  Watcher first(0, lives), second(1, lives);
  if (!first.supported()) return;
  first.watch.reset();
  second.watch.reset();
  CHECK(first.all().empty());
  CHECK(second.all().empty());
}
