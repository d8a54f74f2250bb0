#include "launcher/node/watch/nccl_ras.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <asio/buffer.hpp>
#include <asio/post.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>

#include "base/endpoint.h"
#include "base/interfaces.h"
#include "base/text.h"
#include "launcher/process/process_tree.h"

namespace dlaunch {
namespace {

using asio::ip::tcp;

constexpr std::uint16_t kRasPort = 28028;
constexpr std::string_view kRequest = "CLIENT PROTOCOL 2\nVERBOSE STATUS\n";
constexpr std::size_t kMaxReport = 4 << 20;
constexpr int kTries = 3;
constexpr Duration kBetweenTries = kRasLimit / (kTries + 1);

// "0100007F:6D7C"; the kernel prints each four bytes as one number of this machine.
std::optional<tcp::endpoint> endpoint_of(std::string_view text) {
  const auto colon = text.find(':');
  if (colon != 8 && colon != 32) return std::nullopt;
  std::uint32_t words[4] = {};
  for (std::size_t i = 0; i < colon / 8; ++i) {
    std::from_chars(text.data() + 8 * i, text.data() + 8 * (i + 1), words[i], 16);
  }
  std::uint16_t port = 0;
  std::from_chars(text.data() + colon + 1, text.data() + text.size(), port, 16);
  if (colon == 8) {
    asio::ip::address_v4::bytes_type bytes;
    std::memcpy(bytes.data(), words, bytes.size());
    return tcp::endpoint(asio::ip::address_v4(bytes), port);
  }
  asio::ip::address_v6::bytes_type bytes;
  std::memcpy(bytes.data(), words, bytes.size());
  return tcp::endpoint(asio::ip::address_v6(bytes), port);
}

std::vector<tcp::endpoint> listeners_here(std::uint16_t port) {
  std::vector<tcp::endpoint> all;
  for (const char* const path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream table(path);
    const auto found = listeners(table, port, ::geteuid());
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

// The processes of our workers, by the addresses of this host.
IsOurProcess our_processes() {
  std::set<std::string, std::less<>> hosts;
  for (const HostAddress& its : host_addresses()) hosts.insert(its.address);
  const auto found = descendants_of(::getpid());
  return
      [hosts, pids = std::set<pid_t>(found.begin(), found.end())](
          std::string_view host, pid_t pid) { return hosts.contains(host) && pids.contains(pid); };
}

}  // namespace

// The tries to get an answer from one port, for all who want to know it.
class NcclRas::Question : public std::enable_shared_from_this<Question> {
 public:
  Question(asio::io_context& loop, std::vector<tcp::endpoint> addresses)
      : loop_(loop),
        timer_(loop),
        addresses_(std::move(addresses)),
        is_ours_(our_processes()),
        until_(steady_now() + kRasLimit) {}

  void add(Done done) { waiting_.push_back(std::move(done)); }
  void next_try();
  bool is_over() const { return waiting_.empty(); }

 private:
  struct Try {
    explicit Try(asio::io_context& loop) : socket(loop) {}
    tcp::socket socket;
    std::string text;
  };

  void wait();
  void over(const Try& done, bool whole);
  void answer(const RasReport& report);

  asio::io_context& loop_;
  asio::steady_timer timer_;  // until the next try, or the end
  const std::vector<tcp::endpoint> addresses_;
  const IsOurProcess is_ours_;
  const TimePoint until_;
  std::vector<Done> waiting_;
  std::vector<std::shared_ptr<Try>> tries_;
  int open_ = 0;
};

void NcclRas::Question::next_try() {
  const auto attempt = std::make_shared<Try>(loop_);
  const auto& address = addresses_[tries_.size() % addresses_.size()];
  tries_.push_back(attempt);
  ++open_;
  const auto self = shared_from_this();
  const auto read = [self, attempt](asio::error_code error, std::size_t) {
    if (error) return self->over(*attempt, false);
    asio::async_read(attempt->socket, asio::dynamic_buffer(attempt->text, kMaxReport),
                     [self, attempt](asio::error_code end, std::size_t) {
                       self->over(*attempt, end == asio::error::eof);
                     });
  };
  attempt->socket.async_connect(address, [self, attempt, read](asio::error_code error) {
    if (error) return self->over(*attempt, false);
    asio::async_write(attempt->socket, asio::buffer(kRequest), read);
  });
  wait();
}

void NcclRas::Question::wait() {
  const bool last = tries_.size() == kTries;
  timer_.expires_at(last ? until_ : std::min(until_, steady_now() + kBetweenTries));
  timer_.async_wait([self = shared_from_this(), last](asio::error_code error) {
    if (error || self->is_over()) return;
    last ? self->answer({}) : self->next_try();
  });
}

void NcclRas::Question::over(const Try& done, bool whole) {
  --open_;
  if (is_over()) return;
  const auto report = whole ? read_ras_report(done.text, is_ours_) : std::nullopt;
  if (report && !(report->named.empty() && report->silent.empty())) return answer(*report);
  if (tries_.size() < kTries) return next_try();
  if (open_ == 0) answer({});
}

void NcclRas::Question::answer(const RasReport& report) {
  timer_.cancel();
  for (const auto& attempt : tries_) {
    asio::error_code ignored;
    attempt->socket.close(ignored);
  }
  for (const Done& done : std::exchange(waiting_, {})) done(report);
}

void NcclRas::ask(pid_t pid, Done done) {
  const std::uint16_t port = ras_port(pid);
  auto question = open_[port].lock();
  if (!question || question->is_over()) {
    auto addresses = port == 0 ? std::vector<tcp::endpoint>{} : listeners_here(port);
    if (addresses.empty()) return asio::post(loop_, [done = std::move(done)] { done({}); });
    question = std::make_shared<Question>(loop_, std::move(addresses));
    open_[port] = question;
    question->next_try();
  }
  question->add(std::move(done));
}

std::uint16_t ras_port(pid_t pid) {
  const auto enabled = environment_of(pid, "NCCL_RAS_ENABLE");
  if (enabled == "0") return 0;
  const auto address = environment_of(pid, "NCCL_RAS_ADDR");
  if (!address) return kRasPort;
  const auto endpoint = parse_endpoint(*address);
  return endpoint ? endpoint->port : 0;
}

std::vector<tcp::endpoint> listeners(std::istream& table, std::uint16_t port, uid_t user) {
  std::vector<tcp::endpoint> found;
  std::string line;
  std::getline(table, line);  // the title
  while (std::getline(table, line)) {
    const auto words = split_words(line, ' ');
    if (words.size() < 8 || words[3] != "0A") break;  // those that listen come first
    auto at = endpoint_of(words[1]);
    if (!at || at->port() != port || words[7] != std::to_string(user)) continue;
    if (at->address().is_unspecified()) {
      at->address(at->address().is_v4() ? asio::ip::address(asio::ip::address_v4::loopback())
                                        : asio::ip::address(asio::ip::address_v6::loopback()));
    }
    if (std::ranges::find(found, *at) == found.end()) found.push_back(*at);
  }
  return found;
}

}  // namespace dlaunch
