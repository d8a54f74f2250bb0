#include "cli/ctl/remote.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/address.h"
#include "base/socket.h"
#include "base/write_all.h"
#include "launcher/wire/node_message.h"
#include "rendezvous/etcd_election.h"
#include "rendezvous/file_election.h"
#include "rendezvous/handshake.h"
#include "rendezvous/tls_tunnel.h"
#include "rendezvous/wire.h"

namespace dlaunch::ctl {
namespace {

constexpr Duration kConnectLimit = std::chrono::seconds(10);
constexpr Duration kSilenceLimit = std::chrono::seconds(10);  // the leader sends beats

Result<UniqueFd> connect_to(const Endpoint& leader, TimePoint deadline) {
  const std::string who = "the leader at " + to_string(leader);
  auto addresses = resolve(leader.host, leader.port);
  if (!addresses) return Error{.what = who + ": " + addresses.error().what};
  return connect_to_one_of(*addresses, who, deadline);
}

Result<std::unique_ptr<LeaderElection>> open_election(const RemoteJob& job) {
  constexpr std::string_view kFile = "file://";
  if (job.election.starts_with(kFile)) {
    return open_file_election(job.election.substr(kFile.size()), job.job_id);
  }
  auto access = etcd_access(job.election, [](const std::string& name) {
    const char* const value = ::getenv(name.c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  });
  if (!access) return access.error();
  return open_etcd_election(std::move(*access), job.job_id);
}

Result<std::vector<Endpoint>> find_leaders(const RemoteJob& job, TimePoint deadline) {
  if (job.election.empty()) return job.leaders;
  auto election = open_election(job);
  if (!election) return election.error();
  auto leader = (*election)->find(deadline);
  if (!leader) return leader.error();
  if (!*leader || (*leader)->endpoint.empty()) {
    return Error{.what = "no host leads it, according to " + job.election};
  }
  auto endpoint = parse_endpoint((*leader)->endpoint);
  if (!endpoint) return endpoint.error();
  return std::vector{*endpoint};
}

Result<UniqueFd> open_link(const RemoteJob& job, const Endpoint& leader, TimePoint deadline) {
  auto tcp = connect_to(leader, deadline);
  if (!tcp) return tcp.error();
  auto fd = secured(std::move(*tcp), TlsChannel::Side::connector, job.secret);
  if (!fd) return fd.error();
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  auto proven = handshake_connect(fd->get(), job.secret,
                                  {.purpose = Purpose::node,
                                   .job_id = job.job_id,
                                   .who = fmt::format("dlaunchctl on {}", host.data())},
                                  deadline);
  if (!proven) return proven.error();
  return fd;
}

// To the first of these addresses at which the job's leader is.
Result<UniqueFd> open_link(const RemoteJob& job, TimePoint by) {
  const TimePoint deadline = std::min(steady_now() + kConnectLimit, by);
  if (job.secret.encrypts()) {
    if (auto ready = TlsChannel::prepare(); !ready) return ready.error();
  }
  auto leaders = find_leaders(job, deadline);
  if (!leaders) return leaders.error();
  Error why{.what = "its leader has no address"};
  for (std::size_t i = 0; i < leaders->size(); ++i) {
    const auto left = static_cast<long>(leaders->size() - i);
    const TimePoint now = steady_now();
    auto link = open_link(job, (*leaders)[i], now + (deadline - now) / left);
    if (link) return link;
    why = link.error();
  }
  return why;
}

// The next bytes, or none after a beat. An error: the leader has closed the connection.
Result<std::string> read_some(int fd, TimePoint deadline) {
  pollfd readable{fd, POLLIN, 0};
  const TimePoint until = std::min(steady_now() + kBeat, deadline);
  if (::poll(&readable, 1, poll_timeout_ms(steady_now(), until)) <= 0) return std::string();
  std::array<char, 16384> bytes;
  const ssize_t n = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n > 0) return std::string(bytes.data(), static_cast<std::size_t>(n));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return std::string();
  return Error{.what = "the leader has closed the connection"};
}

// Takes the parts of the answer; true: the last one has come.
Result<bool> take_frames(FrameBuffer& frames, std::string& answer) {
  while (true) {
    const auto frame = frames.next();
    if (!frame) return frame.error();
    if (!*frame) return false;
    if ((*frame)->empty()) continue;  // a beat
    const auto message = decode_node_message(**frame, TimePoint());
    if (!message) return message.error();
    const auto* part = std::get_if<NodeAnswers>(&*message);
    if (part == nullptr) continue;
    answer += part->part;
    if (part->last) return true;
  }
}

}  // namespace

Result<RemoteJob> parse_leader(std::string_view text) {
  RemoteJob job;
  if (is_election_url(text)) {
    job.election = text;
    return job;
  }
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    auto leader = parse_endpoint(text.substr(from, comma - from));
    if (!leader) return leader.error();
    job.leaders.push_back(*leader);
    from = comma + 1;
  }
  return job;
}

Result<std::string> exchange_remotely(const RemoteJob& job, const ControlRequest& request,
                                      TimePoint deadline) {
  auto fd = open_link(job, deadline);
  if (!fd) return fd.error();
  std::string out = encode(NodeMessage(NodeAsks{encode(request)}), TimePoint());
  FrameBuffer frames;
  std::string answer;
  for (TimePoint heard = steady_now(); steady_now() < deadline;) {
    // Both ends show that they are alive. A frame is small, and fits into the socket's buffer.
    if (const int err = write_all(fd->get(), std::exchange(out, kBeatFrame)).os_errno; err != 0) {
      return errno_error("send to the leader", err);
    }
    auto bytes = read_some(fd->get(), deadline);
    if (!bytes) return bytes.error();
    if (!bytes->empty()) heard = steady_now();
    if (steady_now() - heard > kSilenceLimit) return Error{.what = "the leader is silent"};
    frames.append(*bytes);
    auto last = take_frames(frames, answer);
    if (!last) return last.error();
    if (*last) return answer;
  }
  return Error{.what = "it does not answer: is its dlaunch stopped?"};
}

}  // namespace dlaunch::ctl
