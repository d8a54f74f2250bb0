#include "launcher/mpi/loopback_owner.h"

#include <netinet/in.h>

#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "base/small_file.h"
#include "base/text.h"

namespace dlaunch {
namespace {

// "0100007F:1F90": the address as the machine holds it, the port as it is said.
std::string loopback_at(std::uint16_t port) {
  return fmt::format("{:08X}:{:04X}", htonl(INADDR_LOOPBACK), port);
}

constexpr std::size_t kLocal = 1, kRemote = 2, kState = 3, kUser = 7;  // columns
constexpr std::string_view kEstablished = "01";

// The first connection that `fits` with its local address.
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

}  // namespace

std::optional<uid_t> owner_of_loopback(std::uint16_t from, std::uint16_t to) {
  return owner_in_table(text_of("/proc/net/tcp"), from, to);
}

bool has_loopback(uid_t user, std::uint16_t to) {
  return has_in_table(text_of("/proc/net/tcp"), user, to);
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
