// Addresses that mean another host elsewhere: translated ones (NAT), and such as several hosts give
// themselves, as those of containers. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/interfaces.h"

namespace dlaunch {

// Of a host and its connection to the leading dlaunch: its workers tell the others the address that
// it sees itself at, and these may not reach it there. own: of its end of the connection, as it
// says; seen: as our end has it, "?" where that is not known. "": there is nothing to tell. IPv4
// within IPv6 is IPv4, and a zone (%eth0) means nothing elsewhere.
std::string nat_warning(const std::string& host, const std::string& own, const std::string& seen);

// Of a leader that does not answer at `address`, an address of this host, too. "": it is none.
std::string shared_address_note(const std::string& address, const std::vector<HostAddress>& ours);

}  // namespace dlaunch
