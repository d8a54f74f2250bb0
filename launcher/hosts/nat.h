// Whether a host's address is translated on its way to the leading dlaunch. Its workers tell the
// others the address that it sees itself at, and these may not reach it there. Pure.
#pragma once

#include <string>

namespace dlaunch {

// own: of its end of the connection, as it says; seen: as our end has it, "?" where that is not
// known. "": there is nothing to tell. IPv4 within IPv6 is IPv4, and a zone (%eth0) means nothing
// elsewhere.
std::string nat_warning(const std::string& host, const std::string& own, const std::string& seen);

}  // namespace dlaunch
