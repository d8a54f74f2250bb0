// With a server on loopback that stands in for NCCL, and a worker that names it in NCCL_RAS_ADDR.
#include "launcher/node/watch/nccl_ras.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <asio/post.hpp>
#include <asio/read_until.hpp>
#include <asio/write.hpp>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "launcher/process/process_tree.h"

using namespace dlaunch;
using namespace std::chrono_literals;
using asio::ip::tcp;

namespace {

// A child of ours that sleeps.
class RasWorker {
 public:
  explicit RasWorker(std::vector<std::string> environment) {
    std::vector<char*> env;
    for (auto& each : environment) env.push_back(each.data());
    env.push_back(nullptr);
    char name[] = "sleep", time[] = "1000";
    char* argv[] = {name, time, nullptr};
    REQUIRE(::posix_spawnp(&pid_, name, nullptr, nullptr, argv, env.data()) == 0);
    while (!environment_of(pid_, "NCCL_RAS_ADDR")) ::usleep(1000);  // it is about to exec
  }
  ~RasWorker() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  RasWorker(const RasWorker&) = delete;
  RasWorker& operator=(const RasWorker&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

std::string report_on(pid_t pid) {
  return fmt::format(
      "SERVER PROTOCOL 2\nGroup\n0 1 1 4 4 4 RUNNING MISMATCH\n\nWarnings\n========\n\n#0-0 "
      "(00000000000000ab) MISMATCH\n"
      "  Communicator ranks have different AllReduce operation counts\n"
      "  Rank 1 has launched up to operation 41 -- GPU 1 managed by process {} on node 127.0.0.1\n"
      "\n",
      pid);
}

struct RasWorld {
  struct Client {
    explicit Client(tcp::socket connected) : socket(std::move(connected)) {}
    tcp::socket socket;
    std::string request, text;
  };
  asio::io_context loop;
  tcp::acceptor acceptor{loop, tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
  NcclRas ras{loop};
  std::vector<std::shared_ptr<Client>> clients;
  std::vector<RasReport> answers;
  // By connection; "": NCCL stands still.
  std::function<std::string(std::size_t)> serve = [](std::size_t) { return std::string(); };

  std::string address() const {
    return fmt::format("NCCL_RAS_ADDR=127.0.0.1:{}", acceptor.local_endpoint().port());
  }
  void accept() {
    acceptor.async_accept([this](asio::error_code error, tcp::socket client) {
      if (error) return;
      const std::string text = serve(clients.size());
      const auto& its = clients.emplace_back(std::make_shared<Client>(std::move(client)));
      if (!text.empty()) answer(its, text);
      accept();
    });
  }
  static void answer(const std::shared_ptr<Client>& client, const std::string& text) {
    asio::async_read_until(client->socket, asio::dynamic_buffer(client->request),
                           "VERBOSE STATUS\n", [client, text](asio::error_code, std::size_t) {
                             client->text = text;
                             asio::async_write(client->socket, asio::buffer(client->text),
                                               [client](asio::error_code, std::size_t) {
                                                 asio::error_code ignored;
                                                 client->socket.close(ignored);
                                               });
                           });
  }
  void ask(pid_t pid) {
    ras.ask(pid, [this](const RasReport& report) { answers.push_back(report); });
  }
  void wait_for(std::size_t number) {
    const auto began = steady_now();
    while (answers.size() < number && steady_now() < began + 30s) {
      loop.restart();
      loop.run_for(1ms);
    }
    REQUIRE(answers.size() == number);
  }
  // Asks so many times at once. Returns how long it took until all answers were there.
  Duration ask_and_wait(pid_t pid, std::size_t times = 1) {
    const auto began = steady_now();
    const std::size_t number = answers.size() + times;
    for (std::size_t i = 0; i < times; ++i) ask(pid);
    wait_for(number);
    return steady_now() - began;
  }
};

}  // namespace

TEST_CASE("NCCL RAS: workers that ask at one time share one answer") {
  // NcclRas asks on another connection after 200 ms. A try in which this process did not run for
  // most of that time does not count.
  bool counts = false;
  for (int i = 0; i < 20 && !counts; ++i) {
    RasWorld world;
    const RasWorker worker({world.address()});
    world.serve = [&](std::size_t) { return report_on(worker.pid()); };
    world.accept();
    if (world.ask_and_wait(worker.pid(), 2) >= 150ms) continue;
    CHECK(world.clients.size() == 1);
    REQUIRE(world.answers[1].named.contains(worker.pid()));
    CHECK(world.answers[0].named.at(worker.pid())[0].enqueued == 41);
    if (world.ask_and_wait(worker.pid()) >= 150ms) continue;
    CHECK(world.clients.size() == 2);
    counts = true;
  }
  CHECK(counts);
}

TEST_CASE("NCCL RAS: a process that stands still, or of another job, may get the connection") {
  // NcclRas gives up after kRasLimit. A try in which this process did not run for most of that time
  // does not count.
  bool counts = false;
  for (int i = 0; i < 20 && !counts; ++i) {
    RasWorld world;
    const RasWorker worker({world.address()});
    world.serve = [&](std::size_t number) {
      return number == 0 ? "" : report_on(number == 1 ? 1 : worker.pid());
    };
    world.accept();
    if (world.ask_and_wait(worker.pid()) >= kRasLimit - 100ms) continue;
    CHECK(world.clients.size() == 3);
    CHECK(world.answers[0].named.contains(worker.pid()));
    counts = true;
  }
  CHECK(counts);
}

TEST_CASE("NCCL RAS: no answer, none about our workers, or one without an end") {
  RasWorld world;
  const RasWorker worker({world.address()});
  world.accept();
  CHECK(world.ask_and_wait(worker.pid()) >= kRasLimit - 50ms);
  world.serve = [](std::size_t) { return report_on(1); };
  world.ask(worker.pid());
  world.wait_for(2);
  world.serve = [&](std::size_t) { return report_on(worker.pid()) + std::string(4 << 20, '\n'); };
  world.ask(worker.pid());
  world.wait_for(3);
  CHECK(world.clients.size() == 9);
  for (const RasReport& answer : world.answers) CHECK(answer.named.empty());
}

TEST_CASE("NCCL RAS: nothing listens, or the worker has switched it off") {
  RasWorld world;
  const RasWorker off({world.address(), "NCCL_RAS_ENABLE=0"}), senseless({"NCCL_RAS_ADDR=nowhere"});
  world.serve = [&](std::size_t) { return report_on(off.pid()); };
  world.accept();
  world.ask(off.pid());
  world.ask(senseless.pid());
  world.wait_for(2);
  const RasWorker on({world.address()});
  world.acceptor.close();
  world.ask(on.pid());
  world.wait_for(3);
  CHECK(world.clients.empty());
}

TEST_CASE("NCCL RAS: who listens on the port, by the kernel's tables") {
  std::istringstream four(
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
      "   0: 0100007F:6D7C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 7\n"
      "   1: 0100007F:6D7C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 8\n"
      "   2: 0700000A:6D7C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001 0 9\n"
      "   3: 00000000:6D7C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 9\n"
      "   4: 0700000A:6D7D 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 9\n"
      "   5: 0800000A:6D7C 0100000A:0016 01 00000000:00000000 00:00000000 00000000  1000 0 9\n");
  const auto found = listeners(four, 28028, 1000);
  REQUIRE(found.size() == 1);
  CHECK(found[0].address().to_string() == "127.0.0.1");
  std::istringstream six(
      "  sl  local_address                         remote_address                        st\n"
      "   0: 00000000000000000000000001000000:6D7C 00000000000000000000000000000000:0000 0A "
      "00000000:00000000 00:00000000 00000000     0 0 7\n"
      "   1: 000000FD000000000000000007000000:6D7C 00000000000000000000000000000000:0000 0A "
      "00000000:00000000 00:00000000 00000000     0 0 7\n");
  const auto both = listeners(six, 28028, 0);
  REQUIRE(both.size() == 2);
  CHECK(both[0].address().to_string() == "::1");
  CHECK(both[1].address().to_string() == "fd00::7");
}
