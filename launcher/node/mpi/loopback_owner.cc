#include "launcher/node/mpi/loopback_owner.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/small_file.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace dlaunch {
namespace {

// "0100007F:1F90": the address in the machine's byte order, the port as written.
std::string loopback_at(std::uint16_t port) {
  return fmt::format("{:08X}:{:04X}", htonl(INADDR_LOOPBACK), port);
}

constexpr std::size_t kLocal = 1, kRemote = 2, kState = 3, kUser = 7;  // columns
constexpr std::string_view kEstablished = "01";

// The first connection whose local address satisfies `fits`.
template <class Fits>
std::optional<uid_t> find_owner(std::string_view table, std::uint16_t to, const Fits& fits) {
  const std::string remote = loopback_at(to);
  for (const auto line : split_words(table, '\n')) {
    const auto words = split_words(line, ' ');
    if (words.size() <= kUser || words[kRemote] != remote || words[kState] != kEstablished) {
      continue;
    }
    const auto user = std::strtoul(std::string(words[kUser]).c_str(), nullptr, 10);
    if (fits(words[kLocal], user)) return static_cast<uid_t>(user);
  }
  return {};
}

// -- sock_diag: the kernel searches for the connection in question; /proc/net/tcp lists every
// connection of the host, also thousands that have just ended.

using Owners = std::vector<uid_t>;

// nullopt: any port. (A connection that has ended has port 0.)
using Port = std::optional<std::uint16_t>;

bool ask(const UniqueFd& netlink, Port from, std::uint16_t to) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } asked{};
  asked.header.nlmsg_len = sizeof asked;
  asked.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  asked.header.nlmsg_flags = NLM_F_REQUEST | (from ? 0 : NLM_F_DUMP);
  asked.request.sdiag_family = AF_INET;
  asked.request.sdiag_protocol = IPPROTO_TCP;
  asked.request.idiag_states = 1u << TCP_ESTABLISHED;
  auto& id = asked.request.id;
  id.idiag_sport = htons(from.value_or(0));
  id.idiag_dport = htons(to);
  id.idiag_src[0] = id.idiag_dst[0] = htonl(INADDR_LOOPBACK);
  std::fill(std::begin(id.idiag_cookie), std::end(id.idiag_cookie), INET_DIAG_NOCOOKIE);
  return ::send(netlink.get(), &asked, sizeof asked, 0) == sizeof asked;
}

// Checks one entry of a dump, or the answer to an exact question, which may be the listener.
bool answers(const inet_diag_msg& told, Port from, std::uint16_t to) {
  return told.idiag_state == TCP_ESTABLISHED && told.id.idiag_dport == htons(to) &&
         (!from || told.id.idiag_sport == htons(*from)) &&
         told.id.idiag_src[0] == htonl(INADDR_LOOPBACK) &&
         told.id.idiag_dst[0] == htonl(INADDR_LOOPBACK);
}

// The owners of connections between these ports of 127.0.0.1. nullopt: the kernel lacks sock_diag.
std::optional<Owners> owners_by_diag(Port from, std::uint16_t to) {
  const UniqueFd netlink(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink || !ask(netlink, from, to)) return {};
  Owners owners;
  for (;;) {
    alignas(nlmsghdr) char bytes[32768];
    const ssize_t heard = ::recv(netlink.get(), bytes, sizeof bytes, 0);
    if (heard < 0 && errno == EINTR) continue;
    if (heard <= 0) return {};
    auto left = static_cast<unsigned>(heard);
    for (auto* h = reinterpret_cast<const nlmsghdr*>(bytes); NLMSG_OK(h, left);
         h = NLMSG_NEXT(h, left)) {
      if (h->nlmsg_type == NLMSG_DONE) return owners;
      if (h->nlmsg_type == NLMSG_ERROR) {
        const bool none = static_cast<const nlmsgerr*>(NLMSG_DATA(h))->error == -ENOENT;
        return none ? std::optional(owners) : std::nullopt;
      }
      const auto& told = *static_cast<const inet_diag_msg*>(NLMSG_DATA(h));
      if (answers(told, from, to)) owners.push_back(told.idiag_uid);
      if ((h->nlmsg_flags & NLM_F_MULTI) == 0) return owners;
    }
  }
}

}  // namespace

std::optional<uid_t> owner_of_loopback(std::uint16_t from, std::uint16_t to) {
  const auto owners = owners_by_diag(from, to);
  if (!owners) return owner_in_table(text_of("/proc/net/tcp"), from, to);
  return owners->empty() ? std::nullopt : std::optional(owners->front());
}

bool has_loopback(uid_t user, std::uint16_t to) {
  const auto owners = owners_by_diag(std::nullopt, to);
  if (!owners) return has_in_table(text_of("/proc/net/tcp"), user, to);
  return std::ranges::find(*owners, user) != owners->end();
}

std::optional<uid_t> owner_in_table(std::string_view table, std::uint16_t from, std::uint16_t to) {
  return find_owner(table, to, [local = loopback_at(from)](std::string_view at, unsigned long) {
    return at == local;
  });
}

bool has_in_table(std::string_view table, uid_t user, std::uint16_t to) {
  const auto is = [=](std::string_view, unsigned long whose) { return whose == user; };
  return find_owner(table, to, is).has_value();
}

}  // namespace dlaunch
