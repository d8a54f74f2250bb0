// Which libpmix this host has, found without loading it and the half a dozen libraries that it
// needs: every job asks, and few have use for it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/mpi/pmix_job.h"

namespace dlaunch {

// The one in DLAUNCH_PMIX_LIBRARY, or of its name where the system looks. nullopt: there is none,
// or none that can be used.
std::optional<PmixVersion> find_pmix();

// Of the version that an ELF file of our own kind says in its constants; 0.0: there is no such
// file, or it says none.
PmixVersion pmix_version_of_file(const std::string& path);
// The path of a library in the text of /etc/ld.so.cache; "": it is not there.
std::string path_in_loader_cache(std::string_view cache, const std::string& name);

}  // namespace dlaunch
