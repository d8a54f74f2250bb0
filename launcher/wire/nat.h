// Addresses that mean a different host elsewhere: translated ones (NAT), and those that several
// hosts have, such as containers'. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/interfaces.h"

namespace dlaunch {

// A warning about a host whose workers others may not reach: they publish the address that the host
// has for itself. own: of its end of the connection to the leader, as it says; seen: as our end has
// it, "?" if unknown. "": no warning. IPv4 within IPv6 counts as IPv4, and a zone (%eth0) means
// nothing elsewhere.
std::string nat_warning(const std::string& host, const std::string& own, const std::string& seen);

// A note on a leader that does not answer at `address`, if this host has that address, too; else
// "".
std::string shared_address_note(const std::string& address, const std::vector<HostAddress>& ours);

}  // namespace dlaunch
