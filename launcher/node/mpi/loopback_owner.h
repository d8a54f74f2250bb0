// Finds the owner of a connection over the loopback interface: protocols there often believe what
// the peer says of itself.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace dlaunch {

// The user who holds the end at port `from` of a connection from 127.0.0.1 to 127.0.0.1, by
// sock_diag or, if the kernel lacks that, by /proc. nullopt: there is no such connection, neither
// source works, or that end has been closed: the kernel would name root as its owner.
std::optional<uid_t> owner_of_loopback(std::uint16_t from, std::uint16_t to);
// Whether this user holds such an end, at any port.
bool has_loopback(uid_t user, std::uint16_t to);
// Search the text of /proc/net/tcp, which is long when many connections have ended lately.
std::optional<uid_t> owner_in_table(std::string_view table, std::uint16_t from, std::uint16_t to);
bool has_in_table(std::string_view table, uid_t user, std::uint16_t to);

}  // namespace dlaunch
