#include "launcher/wire/output_link.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/address.h"
#include "base/clock.h"
#include "base/socket.h"
#include "rendezvous/handshake.h"
#include "rendezvous/tls_tunnel.h"

namespace dlaunch {
namespace {

constexpr Duration kOpenLimit = std::chrono::seconds(10);
constexpr int kPauseMs = 100;

Result<UniqueFd> open_stream(const Endpoint& leader, const Secret& secret,
                             const HandshakeIdentity& self, TimePoint deadline) {
  const auto addresses = resolve(leader.host, leader.port);
  if (!addresses) return addresses.error();
  auto tcp = connect_to_one_of(*addresses, to_string(leader), deadline);
  if (!tcp) return tcp;
  keep_alive(tcp->get());
  auto fd = secured(std::move(*tcp), TlsChannel::Side::connector, secret);
  if (!fd) return fd;
  const auto by = std::min(deadline, deadline_after(steady_now(), kHandshakeTimeout));
  if (auto proved = handshake_connect(fd->get(), secret, self, by); !proved) return proved.error();
  ::fcntl(fd->get(), F_SETFL, ::fcntl(fd->get(), F_GETFL) & ~O_NONBLOCK);
  return fd;
}

// The leader may turn connections away while very many come at once.
Result<UniqueFd> open_patiently(const Endpoint& leader, const Secret& secret,
                                const HandshakeIdentity& self, TimePoint deadline) {
  while (true) {
    auto fd = open_stream(leader, secret, self, deadline);
    if (fd || fd.error().code == Errc::auth || steady_now() >= deadline) return fd;
    ::poll(nullptr, 0, kPauseMs);
  }
}

}  // namespace

Result<OutputLink> open_output_link(const Endpoint& leader, const Secret& secret,
                                    const std::string& job_id, std::int32_t login,
                                    const std::string& who) {
  const TimePoint deadline = deadline_after(steady_now(), kOpenLimit);
  HandshakeIdentity self{.purpose = Purpose::output,
                         .job_id = job_id,
                         .from_rank = login,
                         .to_rank = kOutputStream,
                         .who = who};
  auto out = open_patiently(leader, secret, self, deadline);
  if (!out) return out.error();
  self.to_rank = kErrorStream;
  auto err = open_patiently(leader, secret, self, deadline);
  if (!err) return err.error();
  return OutputLink{std::move(*out), std::move(*err)};
}

}  // namespace dlaunch
