// An HTTP server on loopback that answers as a test says: for what a real etcd does only in
// trouble.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/unique_fd.h"
#include "rendezvous/http_client.h"

namespace dlaunch {

// This machine has libcurl.
inline bool has_http() {
  const auto http = HttpClient::open({});
  return http || http.error().code != Errc::unsupported;
}

class FakeEtcd {
 public:
  struct Reply {
    int status = 200;
    std::string body;
  };
  // path: "kv/txn". nullopt: the request stays without an answer.
  using Answer = std::function<std::optional<Reply>(const std::string& path)>;

  FakeEtcd()
      : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
        end_(::eventfd(0, EFD_CLOEXEC)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof any;
    auto* address = reinterpret_cast<sockaddr*>(&any);
    REQUIRE(::bind(listener_.get(), address, size) == 0);
    REQUIRE(::listen(listener_.get(), 16) == 0);
    REQUIRE(::getsockname(listener_.get(), address, &size) == 0);
    port_ = ntohs(any.sin_port);
  }
  explicit FakeEtcd(Answer answer) : FakeEtcd() { serve(std::move(answer)); }
  ~FakeEtcd() {
    ::eventfd_write(end_.get(), 1);
    if (thread_.joinable()) thread_.join();
  }
  FakeEtcd(const FakeEtcd&) = delete;
  FakeEtcd& operator=(const FakeEtcd&) = delete;

  // Call it once. `answer` runs in another thread.
  void serve(Answer answer) {
    thread_ = std::thread([this, answer = std::move(answer)] {
      while (wait_for(listener_.get())) {
        UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (fd) take(std::move(fd), answer);
      }
    });
  }

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string url() const { return "etcd://" + endpoint() + "/test"; }
  int requests() const { return requests_; }
  std::size_t bytes_sent() const { return sent_; }

 private:
  // False: the test is over.
  bool wait_for(int fd) const {
    pollfd fds[] = {{fd, POLLIN, 0}, {end_.get(), POLLIN, 0}};
    ::poll(fds, 2, -1);
    return fds[1].revents == 0;
  }

  // Closes a connection of TLS at once.
  void take(UniqueFd fd, const Answer& answer) {
    std::string request;
    while (!is_whole(request)) {
      char bytes[4096];
      const ssize_t n = wait_for(fd.get()) ? ::recv(fd.get(), bytes, sizeof bytes, 0) : 0;
      if (n <= 0 || bytes[0] == '\x16') return;
      request.append(bytes, static_cast<std::size_t>(n));
    }
    ++requests_;
    const auto path = request.substr(0, request.find(" HTTP")).substr(request.find("/v3/") + 4);
    const auto reply = answer(path);
    if (!reply) {
      silent_.push_back(std::move(fd));
      return;
    }
    const auto head =
        fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    reply->status, reply->body.size());
    send(fd.get(), head + reply->body);
  }

  static bool is_whole(const std::string& request) {
    const auto head = request.find("\r\n\r\n");
    const auto length = request.find("Content-Length: ");
    return head != request.npos && length < head &&
           request.size() >= head + 4 + std::stoul(request.substr(length + 16));
  }

  void send(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      sent_ += static_cast<std::size_t>(n);
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }

  const UniqueFd listener_, end_;
  int port_ = 0;
  std::atomic<int> requests_ = 0;
  std::atomic<std::size_t> sent_ = 0;
  std::vector<UniqueFd> silent_;
  std::thread thread_;
};

}  // namespace dlaunch
