// The discovery with real scripts.
#include "launcher/lead/start/host_discovery.h"

#include <signal.h>

#include <cerrno>
#include <fstream>

#include <doctest/doctest.h>

#include "base/log.h"
#include "tests/unit/process_state.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// Asks a script that the test changes.
struct Discovered {
  explicit Discovered(const std::string& script, Duration patience = 60s) {
    set_log_sink([this](LogLevel, std::string_view line) { told.emplace_back(line); });
    becomes(script);
    discovery.emplace(
        loop, ". " + (folder.path / "script").string(), helpers,
        [this](const std::vector<HostEntry>& hosts) { lists.push_back(in_words(hosts)); },
        HostDiscovery::Times{.period = 1ms, .patience = patience});
    discovery->start();
  }
  ~Discovered() { set_log_sink({}); }
  void becomes(const std::string& script) const {
    const auto fresh = folder.path / "fresh";
    std::ofstream(fresh) << script;
    std::filesystem::rename(fresh, folder.path / "script");
  }
  static std::string in_words(const std::vector<HostEntry>& hosts) {
    std::string text;
    for (const HostEntry& host : hosts) {
      text += host.host + "=" + std::to_string(host.slots.value_or(1)) + " ";
    }
    return text;
  }
  // The limit is for a test that hangs.
  bool comes(const std::function<bool()>& what) {
    const auto by = steady_now() + 30s;
    while (!what() && steady_now() < by) loop.run_for(1ms);
    return what();
  }
  bool lists_come(std::size_t count) {
    return comes([&] { return lists.size() >= count; });
  }
  bool is_told(const std::string& what) {
    return comes([&] { return !told.empty() && told.back().find(what) != std::string::npos; });
  }
  std::vector<pid_t> pids() const {
    std::vector<pid_t> found;
    std::ifstream file(folder.path / "pids");
    for (pid_t pid = 0; file >> pid;) found.push_back(pid);
    return found;
  }

  TempFolder folder;
  asio::io_context loop;
  std::set<pid_t> helpers;
  std::vector<std::string> lists, told;
  std::optional<HostDiscovery> discovery;
};

// A zombie does not run any more, and stays one until its new parent looks.
bool lives(pid_t pid) { return state_of(pid) != 'Z'; }

}  // namespace

TEST_CASE("discovery: a changed list is reported") {
  Discovered world("echo a:2; echo b");
  REQUIRE(world.lists_come(1));
  world.becomes("echo '# the same'; echo a:2; echo b # still");
  world.becomes("echo '[fd00::7]:4'; echo 'b:1'");
  REQUIRE(world.lists_come(2));
  CHECK(world.lists == std::vector<std::string>{"a=2 b=1 ", "fd00::7=4 b=1 "});
  CHECK(world.told.empty());
}

TEST_CASE("discovery: a malformed list changes nothing, and is reported once") {
  Discovered world("echo a:2");
  REQUIRE(world.lists_come(1));
  world.becomes("echo b; echo x >> " + (world.folder.path / "asked").string() + "; exit 1");
  CHECK(world.is_told("the hosts stay as they are: --host-discovery-script"));
  CHECK(world.told.back().ends_with(" ended with exit code 1"));
  const auto asked = [&] {
    std::error_code ec;
    const auto size = std::filesystem::file_size(world.folder.path / "asked", ec);
    return ec ? 0 : size;
  };
  const auto before = asked();
  CHECK(world.comes([&] { return asked() > before + 4; }));
  CHECK(world.told.size() == 1);
  world.becomes("true");
  CHECK(world.is_told("printed something other than hosts"));
  world.becomes("echo; echo '# nobody'");
  world.becomes("echo 'a:2:3 what'");
  CHECK(world.is_told("'a:2:3"));
  world.becomes("echo b; kill -9 $$");
  CHECK(world.is_told("was ended by SIGKILL"));
  CHECK(world.lists.size() == 1);
  world.becomes("echo a:2");
  world.becomes("echo c:3");
  REQUIRE(world.lists_come(2));
  CHECK(world.lists.back() == "c=3 ");
}

TEST_CASE("discovery: a script that hangs is killed with its children, and asked again") {
  Discovered world("echo a:2", 1s);
  REQUIRE(world.lists_come(1));
  // In its group, and in a session of its own, with its output open.
  world.becomes("echo b; sleep 1000 & one=$!; setsid sleep 1000 & echo $$ $one $! >> " +
                (world.folder.path / "pids").string() + "; wait");
  CHECK(world.is_told(" took longer than 1 s"));
  // One that is killed before it has told them is asked again.
  REQUIRE(world.comes([&] { return world.pids().size() >= 3; }));
  const auto pids = world.pids();
  for (std::size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    CHECK(world.comes([&] { return !lives(pids[i]); }));
  }
  CHECK(world.lists.size() == 1);
  world.becomes("echo b:2");
  REQUIRE(world.lists_come(2));
  CHECK(world.lists.back() == "b=2 ");
}

TEST_CASE("discovery: its end kills a script that hangs") {
  Discovered world("echo a:2");
  world.becomes("sleep 1000 & echo $$ $! >> " + (world.folder.path / "pids").string() + "; wait");
  REQUIRE(world.comes([&] { return world.pids().size() >= 2; }));
  CHECK(world.helpers.size() == 1);
  world.discovery.reset();
  CHECK(world.comes([&] { return world.helpers.empty(); }));
  const auto pids = world.pids();
  for (const pid_t pid : {pids[pids.size() - 2], pids.back()}) {
    CHECK(world.comes([&] { return !lives(pid); }));
  }
}
