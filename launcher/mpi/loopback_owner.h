// Whose connection over the loopback interface it is: the protocols that run there often believe
// what the other side says of itself.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace dlaunch {

// The user who holds the end at port `from` of a connection from 127.0.0.1 to 127.0.0.1, as the
// kernel says by sock_diag or, where that is not to be had, in /proc. nullopt: there is no such
// connection, or neither. One of which that end has been closed is nobody's: the kernel would call
// it root's.
std::optional<uid_t> owner_of_loopback(std::uint16_t from, std::uint16_t to);
// Whether this user holds such an end, at whatever port.
bool has_loopback(uid_t user, std::uint16_t to);
// The same in the text of /proc/net/tcp, which is long where many connections have ended lately.
std::optional<uid_t> owner_in_table(std::string_view table, std::uint16_t from, std::uint16_t to);
bool has_in_table(std::string_view table, uid_t user, std::uint16_t to);

}  // namespace dlaunch
