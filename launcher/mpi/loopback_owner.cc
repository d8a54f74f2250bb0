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

constexpr std::size_t kLocal = 1, kRemote = 2, kUser = 7;  // columns

}  // namespace

std::optional<uid_t> owner_of_loopback(std::uint16_t from, std::uint16_t to) {
  return owner_in_table(text_of("/proc/net/tcp"), from, to);
}

std::optional<uid_t> owner_in_table(std::string_view table, std::uint16_t from, std::uint16_t to) {
  const std::string local = loopback_at(from), remote = loopback_at(to);
  for (const auto line : split_words(table, '\n')) {
    const auto words = split_words(line, ' ');
    if (words.size() > kUser && words[kLocal] == local && words[kRemote] == remote) {
      return static_cast<uid_t>(std::strtoul(std::string(words[kUser]).c_str(), nullptr, 10));
    }
  }
  return {};
}

}  // namespace dlaunch
