// A real etcd for tests, on free ports of loopback and in a folder of its own. It ends with the
// object, and with the test program, however that ends.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/unique_fd.h"
#include "rendezvous/etcd_client.h"
#include "tests/unit/temp_folder.h"

namespace dlaunch {

class EtcdServer {
 public:
  static bool installed() { return ::access(kProgram, X_OK) == 0; }
  // One for the whole program: tests keep apart by their job's name.
  static EtcdServer& shared() {
    static EtcdServer server;
    return server;
  }

  EtcdServer() : client_(free_port()), peer_(free_port()) { start(); }
  ~EtcdServer() { kill(); }
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(client_); }
  std::string url() const { return "etcd://" + endpoint() + "/test"; }

  // Ends it as a crash does; what it has confirmed is on its disk.
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // Also after kill(), with the same data.
  void start() {
    const std::string listen = "http://" + endpoint();
    const std::string peer = "http://127.0.0.1:" + std::to_string(peer_);
    const std::vector<std::string> words{
        kProgram,
        "--data-dir=" + (folder_.path / "data").string(),
        "--listen-client-urls=" + listen,
        "--advertise-client-urls=" + listen,
        "--listen-peer-urls=" + peer,
        "--initial-advertise-peer-urls=" + peer,
        "--initial-cluster=default=" + peer,
        "--log-level=error",
        "--logger=zap",
        "--log-outputs=" + (folder_.path / "log").string(),
    };
    std::vector<char*> argv;
    for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      const int null = ::open("/dev/null", O_RDWR);
      ::dup2(null, 1), ::dup2(null, 2);
      ::execv(kProgram, argv.data());
      ::_exit(127);
    }
    auto access = etcd_access(url(), {});
    REQUIRE(access);
    auto client = EtcdClient::open(*access);
    REQUIRE(client);
    REQUIRE((*client)->transact({}, steady_now() + std::chrono::seconds(30)));
  }

 private:
  static constexpr const char* kProgram = "/usr/bin/etcd";

  static int free_port() {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof any;
    auto* address = reinterpret_cast<sockaddr*>(&any);
    REQUIRE(::bind(fd.get(), address, size) == 0);
    REQUIRE(::getsockname(fd.get(), address, &size) == 0);
    return ntohs(any.sin_port);
  }

  TempFolder folder_;
  int client_, peer_;
  pid_t pid_ = -1;
};

}  // namespace dlaunch
