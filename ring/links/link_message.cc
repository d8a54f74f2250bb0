#include "ring/links/link_message.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <span>
#include <utility>

#include "base/codec.h"
#include "base/cpus.h"
#include "base/failpoint.h"
#include "base/passed_descriptors.h"
#include "ring/links/rank_facts.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMessageHeader = 1 + 1 + 2 + 4 + 2 + 4 + 4;
constexpr std::size_t kMaxText = 1000;
constexpr std::size_t kMostRanks = 1 << 17;

Error peer_ended() { return {.code = Errc::peer_lost, .what = "it ended while joining"}; }

Result<void> wait_for(int fd, short events, TimePoint deadline) {
  pollfd p{fd, events, 0};
  while (::poll(&p, 1, poll_timeout_ms(steady_now(), deadline)) <= 0) {
    if (steady_now() >= deadline) {
      return Error{.code = Errc::timeout, .what = "it does not answer on its link"};
    }
  }
  return {};
}

using PassedFds = PassedDescriptors<kMaxPassedFds>;

// Fills `out`; descriptors that come with its bytes go to `fds`.
Result<void> receive_all(int link, std::span<char> out, std::vector<UniqueFd>& fds,
                         TimePoint deadline) {
  while (!out.empty()) {
    if (auto ready = wait_for(link, POLLIN, deadline); !ready) return ready;
    PassedFds passed;
    iovec payload{out.data(), out.size()};
    msghdr message{};
    message.msg_iov = &payload;
    message.msg_iovlen = 1;
    passed.receive_with(message);
    const ssize_t n = ::recvmsg(link, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n == 0 || (n < 0 && errno == ECONNRESET)) return peer_ended();
    if (n < 0) return errno_error("receive", errno);
    for (UniqueFd& fd : PassedFds::taken_from(message)) fds.push_back(std::move(fd));
    out = out.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace

LinkMessage joined(LinkMessage one, LinkMessage other) {
  one.cpus = united(std::move(one.cpus), other.cpus);
  one.facts += other.facts;
  if (other.cores > 0 && (one.cores == 0 || other.cores < one.cores)) one.cores = other.cores;
  if (other.answer > one.answer) {
    one.answer = other.answer;
    one.error = std::move(other.error);
  }
  return one;
}

Result<void> send_link_message(int link, const LinkMessage& said, const std::vector<int>& fds,
                               TimePoint deadline) {
  DL_ASSERT(fds.size() <= kMaxPassedFds && said.cpus.size() <= kMostCpuBytes);
  const auto text = std::string_view(said.error.what).substr(0, kMaxText);
  Writer out;
  out.put(static_cast<std::uint8_t>(said.answer));
  out.put(static_cast<std::uint8_t>(said.error.code));
  out.put(static_cast<std::uint16_t>(text.size()));
  out.put(static_cast<std::int32_t>(said.error.rank));
  out.put(static_cast<std::uint16_t>(said.cpus.size()));
  out.put(said.cores);
  out.put(static_cast<std::uint32_t>(said.facts.size()));
  out.put_raw(text);
  out.put_raw(said.cpus);
  out.put_raw(said.facts);

  PassedFds passed;
  iovec payload{const_cast<char*>(out.bytes().data()), out.bytes().size()};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  passed.send_with(message, fds);
  const char* const end = out.bytes().data() + out.bytes().size();
  while (payload.iov_base != end) {
    payload.iov_len = failpoint_write(
        "link_message.send", static_cast<std::size_t>(end - static_cast<char*>(payload.iov_base)));
    const ssize_t n = ::sendmsg(link, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
      if (auto ready = wait_for(link, POLLOUT, deadline); !ready) return ready;
    } else if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
      return peer_ended();
    } else if (n < 0 && errno != EINTR) {
      return errno_error("send", errno);
    } else if (n > 0) {
      // The descriptors went with the first bytes.
      message.msg_control = nullptr;
      message.msg_controllen = 0;
      payload.iov_base = static_cast<char*>(payload.iov_base) + n;
    }
  }
  return {};
}

bool says_failed(int link) {
  char answer = 0;
  return ::recv(link, &answer, 1, MSG_PEEK | MSG_DONTWAIT) == 1 &&
         answer == static_cast<char>(LinkMessage::Answer::failed);
}

Result<LinkMessage> receive_link_message(int link, TimePoint deadline) {
  const Error nonsense{.code = Errc::protocol, .what = "it sent bytes that make no sense"};
  LinkMessage got;
  char header[kMessageHeader];
  if (auto ok = receive_all(link, header, got.fds, deadline); !ok) return ok.error();
  Reader in(std::string_view(header, sizeof header));
  got.answer = static_cast<LinkMessage::Answer>(in.get<std::uint8_t>());
  got.error.code = static_cast<Errc>(in.get<std::uint8_t>());
  const auto size = in.get<std::uint16_t>();
  got.error.rank = in.get<std::int32_t>();
  const auto cpu_bytes = in.get<std::uint16_t>();
  got.cores = in.get<std::int32_t>();
  const auto facts_bytes = in.get<std::uint32_t>();
  if (got.answer < LinkMessage::Answer::yes || got.answer > LinkMessage::Answer::failed ||
      got.error.code > kLastErrc || size > kMaxText || cpu_bytes > kMostCpuBytes || got.cores < 0 ||
      facts_bytes > kMostRanks * kMostFactsBytes) {
    return nonsense;
  }
  got.error.what.resize(size);
  got.cpus.resize(cpu_bytes);
  got.facts.resize(facts_bytes);
  for (const std::span<char> part :
       {std::span<char>(got.error.what), std::span<char>(got.cpus), std::span<char>(got.facts)}) {
    if (auto ok = receive_all(link, part, got.fds, deadline); !ok) return ok.error();
  }
  return got;
}

}  // namespace dlaunch
