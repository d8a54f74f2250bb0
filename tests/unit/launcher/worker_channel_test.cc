#include "launcher/node/worker_channel.h"

#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "base/clock.h"
#include "base/socket.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

constexpr int kWorker = 3;

// The agent's end, on a loop that the test turns, and what the agent hears.
struct Agent {
  Agent() {
    path = folder.path / "agent";
    auto opened = WorkerChannel::open(
        loop, path, [](int worker) { return worker == kWorker; },
        [this](const Ready& ready, pid_t) {
          heard.push_back("ready after " + std::to_string(ready.left));
        },
        [this](const ProgressNotice& progress) {
          heard.push_back("progress " + std::to_string(progress.version));
        },
        [this](int) { heard.push_back("cut off"); });
    REQUIRE(opened);
    channel = std::move(*opened);
  }

  UniqueFd connect() const {
    auto socket = connect_unix_path(path, SOCK_SEQPACKET);
    REQUIRE(socket);
    return std::move(*socket);
  }
  // True once that many messages have come.
  bool hears(std::size_t count) {
    const TimePoint deadline = steady_now() + 20s;
    while (heard.size() < count && steady_now() < deadline) loop.run_one_for(1ms);
    return heard.size() == count;
  }
  // True once the agent has closed its end.
  bool closes(const UniqueFd& socket) {
    const TimePoint deadline = steady_now() + 20s;
    char byte = 0;
    while (steady_now() < deadline) {
      loop.run_one_for(1ms);
      if (::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0) return true;
    }
    return false;
  }

  TempFolder folder;
  std::string path;
  asio::io_context loop;
  std::vector<std::string> heard;
  std::unique_ptr<WorkerChannel> channel;
};

void send_packet(const UniqueFd& socket, const WorkerMessage& message) {
  const std::string packet = encode(message);
  CHECK(::send(socket.get(), packet.data(), packet.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(packet.size()));
}

}  // namespace

TEST_CASE("worker channel: a worker connects again while packets of its old connection wait") {
  Agent agent;
  auto old = agent.connect();
  send_packet(old, Ready{.worker = kWorker});
  REQUIRE(agent.hears(1));

  // The agent stands still meanwhile.
  send_packet(old, ProgressNotice{.worker = kWorker, .version = 1});
  send_packet(old, ProgressNotice{.worker = kWorker, .version = 2});
  send_packet(old, Goodbye{.worker = kWorker});
  old.reset();
  const auto next = agent.connect();
  send_packet(next, Ready{.worker = kWorker, .left = 1});
  CHECK(agent.hears(4));
  CHECK(agent.heard ==
        std::vector<std::string>{"ready after 0", "progress 1", "progress 2", "ready after 1"});

  // The old connection's end does not harm the new one.
  agent.loop.run_for(20ms);
  send_packet(next, ProgressNotice{.worker = kWorker, .version = 3});
  CHECK(agent.hears(5));
  agent.channel->send(kWorker, FenceNotice{.round = 2});
  char packet[kMaxWorkerMessage];
  CHECK(::recv(next.get(), packet, sizeof packet, MSG_DONTWAIT) > 0);
}

TEST_CASE("worker channel: nobody else speaks for a connected worker, or for an unknown one") {
  Agent agent;
  const auto worker = agent.connect();
  send_packet(worker, Ready{.worker = kWorker});
  REQUIRE(agent.hears(1));
  send_packet(worker, ProgressNotice{.worker = kWorker, .version = 1});
  const auto other = agent.connect();
  send_packet(other, Ready{.worker = kWorker, .left = 7});
  CHECK(agent.closes(other));
  const auto unknown = agent.connect();
  send_packet(unknown, Ready{.worker = kWorker + 1});
  CHECK(agent.closes(unknown));
  send_packet(worker, ProgressNotice{.worker = kWorker, .version = 2});
  CHECK(agent.hears(3));
  CHECK(agent.heard == std::vector<std::string>{"ready after 0", "progress 1", "progress 2"});
}
