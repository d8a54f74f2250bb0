// Finds this host's libpmix without loading it and its half a dozen libraries: every job asks, and
// few use it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/node/mpi/pmix_job.h"

namespace dlaunch {

// The library in DLAUNCH_PMIX_LIBRARY, or by that name where the system looks. nullopt: none that
// can be used.
std::optional<PmixVersion> find_pmix();

// The version in the constants of an ELF file of our own kind; 0.0: there is no such file, or it
// has none.
PmixVersion pmix_version_of_file(const std::string& path);
// The path of a library in the text of /etc/ld.so.cache; "": it is not there.
std::string path_in_loader_cache(std::string_view cache, const std::string& name);

}  // namespace dlaunch
